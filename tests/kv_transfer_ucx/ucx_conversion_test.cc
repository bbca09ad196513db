// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Pools of different element types over real shared memory and TCP: what arrives is what the
// definition says, with sums, in several parts; without permission the pair is refused.
#include "tests/kv_transfer/naive_conversion.h"
#include "tests/kv_transfer_ucx/transport_pair.h"

namespace baton::kv {
namespace {

constexpr uint32_t kPushed = 36;  // blocks; in f32 they take three pieces of the staging area

Layout PoolOf(ElementType type, uint32_t blocks) {
  Layout layout = SmallLayout(blocks);
  layout.kv_heads = 4;
  layout.head_dim = 64;
  layout.element_type = type;
  layout.scales = ScalesOf(type);
  return layout;
}

struct Ends {
  Ends(TransportChoice choice, ElementType target, bool owner_allows, bool writer_allows) {
    UcxTransportOptions options = OwnerOptions(choice, PoolOf(target, 64));
    options.pair.allow_conversion = owner_allows;
    owner.Open(options);
    options = WriterOptions(choice, PoolOf(ElementType::kBf16, 40), owner.transport->port());
    options.pair.allow_conversion = writer_allows;
    writer.Open(options);
  }
  bool WaitUp() {
    return WaitFor(absl::Seconds(10), [&] {
      return owner.Find<PeerUp>() != nullptr && writer.Find<PeerUp>() != nullptr;
    });
  }
  uint64_t BytesDone() {
    writer.transport->Poll(writer.events);
    uint64_t bytes = 0;
    for (const TransportEvent& event : writer.events) {
      if (const auto* done = std::get_if<WriteDone>(&event)) bytes += done->work.bytes;
    }
    return bytes;
  }
  End owner, writer;
};

// Random bf16 numbers, all finite.
void FillFinite(uint8_t* block, uint64_t bytes, uint64_t seed) {
  FillBlock(block, bytes, seed);
  for (uint64_t at = 1; at < bytes; at += 2) block[at] &= 0xbf;
}

TEST_CASE("pushed KV is converted on its way, over every data path") {
  for (const TransportChoice choice :
       {TransportChoice::kShm, TransportChoice::kTcp, TransportChoice::kUcxTcp}) {
    for (const ElementType target : {ElementType::kInt8, ElementType::kF16, ElementType::kF32}) {
      INFO(static_cast<int>(choice) << " to " << NameOf(target));
      Ends ends(choice, target, true, true);
      REQUIRE(ends.WaitUp());
      const LinkInfo link = ends.owner.Find<PeerUp>()->link;
      CHECK(link.conversion == std::string("bf16 to ") + NameOf(target));
      CHECK(link.mixed_numerics);
      Ticket ticket;
      ticket.key = {Incarnation(0xd0), Generation(1)};
      ticket.writer = Incarnation(0xf0);
      ticket.attempt = {{Incarnation(1), 1}, 1};
      ticket.tokens = kPushed * 16;
      std::vector<WritePiece> pieces;
      for (uint32_t i = 0; i < kPushed; ++i) {
        ticket.blocks.push_back((i * 37 + 5) % 64);
        pieces.push_back({i + 1, i});
      }
      ends.owner.transport->Grant(ticket);
      ends.writer.transport->Accept(ticket);
      const Layout& from = ends.writer.layout;
      const Layout& to = ends.owner.layout;
      for (uint32_t layer = 0; layer < from.layers; ++layer) {
        for (uint32_t i = 1; i <= kPushed; ++i) {
          FillFinite(ends.writer.block(layer, i), from.block_bytes(), layer * 100 + i);
        }
        ends.writer.transport->Write(WriteId(layer + 1), ticket.key, layer, pieces);
      }
      const uint64_t bytes = to.block_bytes() * kPushed * to.layers;
      REQUIRE(WaitFor(absl::Seconds(10), [&] { return ends.BytesDone() == bytes; }));
      Commit commit;
      commit.key = ticket.key;
      commit.writer = ticket.writer;
      commit.attempt = ticket.attempt;
      commit.blocks = kPushed;
      commit.layers = to.layers;
      commit.bytes = bytes;
      commit.first_tokens.emplace_back();
      ends.writer.transport->SendCommit(commit);
      REQUIRE(
          WaitFor(absl::Seconds(10), [&] { return ends.owner.Find<CommitArrived>() != nullptr; }));
      CHECK(ends.owner.Find<CommitArrived>()->commit.summed);
      for (uint32_t layer = 0; layer < to.layers; ++layer) {
        for (uint32_t i = 0; i < kPushed; ++i) {
          const auto expected = naive::Converted(from, to, {ends.writer.block(layer, i + 1)},
                                                 std::vector<uint8_t>(to.block_bytes()));
          REQUIRE(std::memcmp(ends.owner.block(layer, ticket.blocks[i]), expected.data(),
                              expected.size()) == 0);
        }
      }
    }
  }
}

TEST_CASE("pools of different elements are refused by either end that does not allow it") {
  for (const bool owner_allows : {false, true}) {
    Ends ends(TransportChoice::kTcp, ElementType::kInt8, owner_allows, !owner_allows);
    End& strict = owner_allows ? ends.writer : ends.owner;
    REQUIRE(WaitFor(absl::Seconds(10), [&] { return strict.Find<PeerDown>() != nullptr; }));
    const absl::Status why = strict.Find<PeerDown>()->why;
    CHECK(absl::IsFailedPrecondition(why));
    CHECK(why.message().find("layout.element_type differs") != std::string::npos);
    CHECK(why.message().find("kv_transfer.allow_conversion") != std::string::npos);
    CHECK(ends.owner.Find<PeerUp>() == nullptr);
    CHECK(ends.writer.Find<PeerUp>() == nullptr);
  }
}

}  // namespace
}  // namespace baton::kv
