// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A core alone: its peers are scripted frame by frame, and LinkIo writes down what it asks.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kv_transfer/owner_core.h"
#include "kv_transfer/writer_core.h"

namespace baton::kv {

class FakeIo final : public LinkIo {
 public:
  void Send(LinkId link, std::vector<uint8_t> bytes) override {
    auto frame = DecodeFrame(bytes);
    REQUIRE(frame.ok());
    sent.emplace_back(link, *std::move(frame));
  }
  void Close(LinkId link, const absl::Status& why) override { closed.emplace_back(link, why); }
  void Prepare(LinkId link, const Hello&) override { prepared.push_back(link); }
  void Post(LinkId link, DataWrite write) override { posted.emplace_back(link, std::move(write)); }
  absl::Time Now() const override { return now; }

  // Frames of one kind sent on a link since the last Clear.
  template <typename T>
  std::vector<T> Sent(LinkId link) const {
    std::vector<T> found;
    for (const auto& [to, frame] : sent) {
      if (to == link && std::holds_alternative<T>(frame)) found.push_back(std::get<T>(frame));
    }
    return found;
  }
  bool Closed(LinkId link) const {
    for (const auto& [id, why] : closed) {
      if (id == link) return true;
    }
    return false;
  }
  void Clear() { sent.clear(); }

  std::vector<std::pair<LinkId, Frame>> sent;
  std::vector<std::pair<LinkId, absl::Status>> closed;
  std::vector<LinkId> prepared;
  std::vector<std::pair<LinkId, DataWrite>> posted;
  absl::Time now = absl::UnixEpoch();
};

inline Hello MakeHello(Role role, std::string worker, uint64_t incarnation, uint32_t pid) {
  Hello hello;
  hello.self = {std::move(worker), Incarnation(incarnation)};
  hello.role = role;
  hello.process = {.boot_id = "boot", .pid_namespace = 1, .pid = pid, .start_time = 5};
  hello.host = "host";
  hello.model_fingerprint = 77;
  hello.layout = {.layers = 2, .kv_heads = 1, .head_dim = 4, .block_tokens = 16, .blocks = 8};
  hello.numeric_class = "class";
  return hello;
}

inline constexpr LinkId kLink1{1}, kLink2{2}, kLink3{3};

// What a core works on; of a writer that converts, with staging for two owners.
template <typename Core>
uint64_t MemoryBytes(const typename Core::Options& options, const Layout& layout) {
  if constexpr (std::is_same_v<Core, WriterCore>) {
    return WriterCore::MemoryBytes(options, layout, 2);
  }
  return layout.pool_bytes();
}

// One core with a hand on everything around it.
template <typename Core>
struct Harness {
  FakeIo io;
  std::vector<uint8_t> pool;
  Core core;
  absl::Time now = absl::UnixEpoch();
  std::vector<TransportEvent> events;

  template <typename... Args>
  explicit Harness(const typename Core::Options& options, Hello self, Args... args)
      : pool(MemoryBytes<Core>(options, self.layout)),
        core(options, std::move(self), args..., absl::MakeSpan(pool), io) {}

  void Frame(LinkId link, const kv::Frame& frame) {
    core.FrameArrived(link, EncodeFrame(frame), now);
  }
  void Hi(LinkId link, const Hello& peer) {
    core.LinkOpened(link, "", now);
    Frame(link, peer);
  }
  void Up(LinkId link, const Hello& peer, char path = 'A') {
    Hi(link, peer);
    const LinkInfo info{.transport = "fake", .data_path = path, .cost = {.bandwidth = 1}};
    core.DataReady(link, info);
    Frame(link, Ready{.transport = "fake", .data_path = path});
    REQUIRE(Take<PeerUp>().size() == 1);
  }
  void Lose(LinkId link) { core.LinkLost(link, absl::UnavailableError("reset")); }
  void Pass(absl::Duration span, uint64_t ticks = 0) {
    io.now = now += span;
    core.Tick(now, ticks);
  }

  // The events of one kind, taken out.
  template <typename T>
  std::vector<T> Take() {
    core.Poll(events);
    std::vector<T> found;
    std::vector<TransportEvent> kept;
    for (TransportEvent& event : events) {
      if (std::holds_alternative<T>(event)) {
        found.push_back(std::get<T>(std::move(event)));
      } else {
        kept.push_back(std::move(event));
      }
    }
    events = std::move(kept);
    return found;
  }
  bool IsQuiet(uint64_t generation) {
    bool found = false;
    for (const kv::Quiet& quiet : Take<kv::Quiet>()) {
      found = found || quiet.generation == Generation(generation);
    }
    return found;
  }
};

inline Ticket MakeTicket(uint64_t owner, uint64_t generation, uint64_t writer,
                         std::vector<BlockIndex> blocks = {3}) {
  Ticket ticket;
  ticket.key = {Incarnation(owner), Generation(generation)};
  ticket.writer = Incarnation(writer);
  ticket.attempt = {{Incarnation(9), 1}, 1};
  ticket.tokens = static_cast<uint32_t>(blocks.size()) * kBlockTokens;
  ticket.blocks = std::move(blocks);
  return ticket;
}

inline Commit CommitOf(const Ticket& ticket, const Layout& layout) {
  Commit commit;
  commit.key = ticket.key;
  commit.writer = ticket.writer;
  commit.attempt = ticket.attempt;
  commit.blocks = static_cast<uint32_t>(ticket.blocks.size());
  commit.layers = layout.layers;
  commit.bytes = uint64_t{commit.blocks} * layout.layers * layout.block_bytes();
  commit.first_tokens = {{.id = 1}};
  return commit;
}

inline DataHeader HeaderOf(const Ticket& ticket, uint64_t write, uint32_t layer,
                           std::vector<uint32_t> targets = {0}) {
  return {.key = ticket.key,
          .writer = ticket.writer,
          .attempt = ticket.attempt,
          .write = write,
          .layer = layer,
          .targets = std::move(targets)};
}

}  // namespace baton::kv
