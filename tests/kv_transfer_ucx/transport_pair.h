// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// An owner and a writer in one process, over loopback and a port of the system's choice.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/random.h"
#include "kv_transfer/ucx_transport.h"

namespace baton::kv {

inline Layout SmallLayout(uint32_t blocks) {
  Layout layout;
  layout.layers = 3;
  layout.kv_heads = 2;
  layout.head_dim = 32;
  layout.block_tokens = 16;
  layout.blocks = blocks;
  return layout;
}

// Where a pair meets.
struct Place {
  std::string host = "127.0.0.1";
  std::string device = "lo";
  bool rdma = false;
};

inline UcxTransportOptions OwnerOptions(TransportChoice choice, Layout layout,
                                        const Place& place = {}) {
  UcxTransportOptions options;
  options.self = {"decode-0", Incarnation(0xd0)};
  options.role = Role::kDecode;
  options.listen = absl::StrCat(place.host, ":0");
  options.layout = layout;
  options.model_fingerprint = 7;
  options.numeric_class = "test";
  options.choice = choice;
  options.devices = {place.device};
  options.require_rdma = place.rdma;
  options.seed = 1;
  return options;
}

inline UcxTransportOptions WriterOptions(TransportChoice choice, Layout layout, uint16_t port,
                                         const Place& place = {}) {
  UcxTransportOptions options = OwnerOptions(choice, layout, place);
  options.self = {"prefill-0", Incarnation(0xf0)};
  options.role = Role::kPrefill;
  options.peers = {{"decode-0", absl::StrCat(place.host, ":", port)}};
  options.seed = 2;
  return options;
}

template <typename Event>
const Event* Find(const std::vector<TransportEvent>& events) {
  for (const TransportEvent& event : events) {
    if (const auto* found = std::get_if<Event>(&event)) return found;
  }
  return nullptr;
}

// A transport and everything it ever said.
struct End {
  std::unique_ptr<UcxTransport> transport;
  std::vector<TransportEvent> events;
  Layout layout;

  void Open(const UcxTransportOptions& options) {
    auto made = UcxTransport::Create(options);
    INFO(made.status());
    REQUIRE(made.ok());
    transport = *std::move(made);
    layout = options.layout;
  }
  template <typename Event>
  const Event* Find() {
    transport->Poll(events);
    return kv::Find<Event>(events);
  }
  uint8_t* block(uint32_t layer, uint32_t index) {
    return transport->PoolBase() + layout.offset(layer, index);
  }
};

inline bool WaitFor(absl::Duration limit, const std::function<bool()>& condition) {
  const absl::Time end = absl::Now() + limit;
  while (absl::Now() < end) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return condition();
}

inline void FillBlock(uint8_t* block, uint64_t bytes, uint64_t seed) {
  for (uint64_t at = 0; at + 8 <= bytes; at += 8) {
    const uint64_t word = SplitMix64(seed * 1000003 + at);
    std::memcpy(block + at, &word, 8);
  }
}
inline bool HasBlock(const uint8_t* block, uint64_t bytes, uint64_t seed) {
  for (uint64_t at = 0; at + 8 <= bytes; at += 8) {
    const uint64_t word = SplitMix64(seed * 1000003 + at);
    if (std::memcmp(block + at, &word, 8) != 0) return false;
  }
  return true;
}

struct Pair {
  End owner, writer;
  uint64_t next_write = 1;

  explicit Pair(TransportChoice choice, uint32_t owner_blocks = 64, uint32_t writer_blocks = 40)
      : Pair(choice, owner_blocks, writer_blocks, [](UcxTransportOptions&) {}) {}
  // `change`: of the writer's options.
  template <typename Change>
  Pair(TransportChoice choice, uint32_t owner_blocks, uint32_t writer_blocks, Change change) {
    owner.Open(OwnerOptions(choice, SmallLayout(owner_blocks)));
    UcxTransportOptions options =
        WriterOptions(choice, SmallLayout(writer_blocks), owner.transport->port());
    change(options);
    writer.Open(options);
  }
  void WaitUp() {
    const bool up = WaitFor(absl::Seconds(10), [&] {
      return owner.Find<PeerUp>() != nullptr && writer.Find<PeerUp>() != nullptr;
    });
    for (const auto& event : writer.events) {
      if (const auto* down = std::get_if<PeerDown>(&event)) UNSCOPED_INFO(down->why);
    }
    REQUIRE(up);
  }
  Ticket MakeTicket(uint64_t generation, std::vector<BlockIndex> blocks) const {
    Ticket ticket;
    ticket.key = {Incarnation(0xd0), Generation(generation)};
    ticket.writer = Incarnation(0xf0);
    ticket.attempt = {{Incarnation(1), generation}, 1};
    ticket.tokens = static_cast<uint32_t>(blocks.size()) * 16;
    ticket.blocks = std::move(blocks);
    return ticket;
  }
  // Every layer of every block, from the writer's blocks 1, 2, …, then the Commit.
  void Push(const Ticket& ticket) {
    Write(ticket);
    SendCommit(ticket);
  }
  void Write(const Ticket& ticket) {
    const uint64_t bytes = owner.layout.block_bytes();
    std::vector<WritePiece> pieces;
    for (uint32_t i = 0; i < ticket.blocks.size(); ++i) pieces.push_back({i + 1, i});
    writer.transport->Accept(ticket);
    const size_t before = Count<WriteDone>();
    for (uint32_t layer = 0; layer < owner.layout.layers; ++layer) {
      for (const WritePiece& piece : pieces) {
        FillBlock(writer.block(layer, piece.source), bytes,
                  ticket.key.generation.value() * 100000 + layer * 1000 + piece.target_index);
      }
      writer.transport->Write(WriteId(next_write++), ticket.key, layer, pieces);
    }
    REQUIRE(WaitFor(absl::Seconds(10),
                    [&] { return Count<WriteDone>() == before + owner.layout.layers; }));
  }
  void SendCommit(const Ticket& ticket) {
    const uint64_t bytes = owner.layout.block_bytes();
    Commit commit;
    commit.key = ticket.key;
    commit.writer = ticket.writer;
    commit.attempt = ticket.attempt;
    commit.blocks = static_cast<uint32_t>(ticket.blocks.size());
    commit.layers = owner.layout.layers;
    commit.bytes = bytes * commit.blocks * commit.layers;
    commit.first_tokens.emplace_back();
    writer.transport->SendCommit(commit);
  }
  bool Landed(const Ticket& ticket) {
    const uint64_t bytes = owner.layout.block_bytes();
    for (uint32_t layer = 0; layer < owner.layout.layers; ++layer) {
      for (uint32_t i = 0; i < ticket.blocks.size(); ++i) {
        if (!HasBlock(owner.block(layer, ticket.blocks[i]), bytes,
                      ticket.key.generation.value() * 100000 + layer * 1000 + i)) {
          return false;
        }
      }
    }
    return true;
  }
  template <typename Event>
  size_t Count() {
    writer.transport->Poll(writer.events);
    size_t count = 0;
    for (const auto& event : writer.events) count += std::holds_alternative<Event>(event);
    return count;
  }
};

}  // namespace baton::kv
