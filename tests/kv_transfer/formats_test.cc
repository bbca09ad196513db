// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Tickets, Commits, frames and data headers as bytes: there and back, and what is refused.
#include <catch2/catch.hpp>
#include <limits>

#include "base/random.h"
#include "kv_transfer/frame.h"
#include "kv_transfer/ticket.h"
#include "tests/kv_transfer/core_harness.h"

namespace baton::kv {
namespace {

Ticket SomeTicket() {
  Ticket ticket = MakeTicket(11, 22, 33, {5, 6, 9});
  ticket.first_position = 32;
  ticket.tokens = 32 + 41;
  return ticket;
}

Commit SomeCommit() {
  Commit commit = CommitOf(SomeTicket(), MakeHello(Role::kDecode, "d", 1, 1).layout);
  commit.first_tokens = {{.id = 7, .logprob = -0.5f, .top = {{7, -0.5f}, {9, -1.5f}}}, {.id = 8}};
  commit.summed = true;
  commit.first_index = 3;
  commit.cached_tokens = 16;
  commit.computed_tokens = 25;
  commit.queued = absl::Milliseconds(1);
  commit.compute = absl::Milliseconds(20);
  commit.transfer = absl::Microseconds(300);
  commit.exposed = absl::Nanoseconds(4);
  commit.predicted = absl::Microseconds(290);
  return commit;
}

DataHeader SummedHeader() {
  DataHeader header = HeaderOf(SomeTicket(), 4, 1, {0, 2});
  header.sums = {0xe3069283, 0};
  return header;
}

LinkCost SomeCost() {
  return {.latency = absl::Nanoseconds(900),
          .per_operation = absl::Nanoseconds(130),
          .bandwidth = 2.5e10,
          .sums_bandwidth = 9e9};
}

std::vector<Frame> SomeFrames() {
  Hello hello = MakeHello(Role::kPrefill, "prefill-0", 5, 6);
  hello.offers = {{'A', "shm", {1, 2, 3}}, {'B', "tcp", {}}};
  return {hello,
          HelloRefused{"model", "differs"},
          Ready{"posix", 'A', SomeCost()},
          Heartbeat{17, Generation(4)},
          Heartbeat{18, Generation(0), {SomeCost(), absl::Seconds(3), 1u << 20}},
          DeclaredDead{Incarnation(99)},
          DataPathMessage{{9, 8, 7}},
          RevokeFrame{Generation(3), Generation(2)},
          WriteResult{12, true},
          QuietFrame{Generation(3)},
          QuietFrame{},
          WriterFailedFrame{Generation(3), absl::StatusCode::kUnavailable, "gone"},
          SomeCommit(),
          WrittenFrame{SummedHeader()}};
}

TEST_CASE("a ticket and a Commit survive the wire") {
  CHECK(DecodeTicket(Encode(SomeTicket())).value() == SomeTicket());
  CHECK(DecodeCommit(Encode(SomeCommit())).value() == SomeCommit());
}

TEST_CASE("sizes are those of docs/kv_transfer.md") {
  std::vector<BlockIndex> blocks(125);
  for (uint32_t i = 0; i < blocks.size(); ++i) blocks[i] = i;
  const Ticket ticket = MakeTicket(1, 2, 3, blocks);
  CHECK(Encode(ticket).size() == 570);
  CHECK(Encode(CommitOf(ticket, MakeHello(Role::kDecode, "d", 1, 1).layout)).size() == 139);
  CHECK(Encode(HeaderOf(ticket, 1, 0, {0, 1, 2})).size() == 68 + 3 * 4);
  CHECK(Encode(SummedHeader()).size() == 68 + 2 * 8);
}

TEST_CASE("every kind of frame survives the wire") {
  for (const Frame& frame : SomeFrames()) {
    const auto back = DecodeFrame(EncodeFrame(frame));
    REQUIRE(back.ok());
    CHECK(*back == frame);
  }
}

TEST_CASE("a data header survives the wire") {
  for (const DataHeader& header : {HeaderOf(SomeTicket(), 4, 1, {0, 2}), SummedHeader()}) {
    CHECK(DecodeDataHeader(Encode(header)).value() == header);
  }
}

TEST_CASE("a data header has one sum for each target, or none; a Written frame has them") {
  std::vector<uint8_t> bytes = Encode(SummedHeader());
  const size_t count_at = bytes.size() - 3 * 4;
  bytes[count_at] = 1;
  CHECK(!DecodeDataHeader(bytes).ok());
  bytes.resize(bytes.size() - 4);
  CHECK(!DecodeDataHeader(bytes).ok());
  bytes.resize(count_at);
  CHECK(!DecodeDataHeader(bytes).ok());
  std::vector<uint8_t> frame = EncodeFrame(WrittenFrame{SummedHeader()});
  frame.resize(frame.size() - 2 * 4);
  frame[frame.size() - 4] = 0;
  frame[0] = static_cast<uint8_t>(frame.size() - 4);
  CHECK(DecodeDataHeader(absl::MakeConstSpan(frame).subspan(5)).ok());
  CHECK(!DecodeFrame(frame).ok());
}

TEST_CASE("no damaged ticket or Commit is accepted: any bit, any length") {
  for (const std::vector<uint8_t>& good : {Encode(SomeTicket()), Encode(SomeCommit())}) {
    for (size_t size = 0; size < good.size(); ++size) {
      const auto cut = absl::MakeConstSpan(good).first(size);
      CHECK(!DecodeTicket(cut).ok());
      CHECK(!DecodeCommit(cut).ok());
    }
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::vector<uint8_t> bad = good;
      bad[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      CHECK(!DecodeTicket(bad).ok());
      CHECK(!DecodeCommit(bad).ok());
    }
    std::vector<uint8_t> longer = good;
    longer.push_back(0);
    CHECK(!DecodeTicket(longer).ok());
  }
}

TEST_CASE("costs and ages that no link has are refused") {
  std::vector<uint8_t> ready = EncodeFrame(Ready{"posix", 'A', SomeCost()});
  const size_t cost_at = ready.size() - 32;
  std::vector<uint8_t> bad = ready;
  bad[cost_at + 7] = 0xff;  // sign and exponent of the bandwidth
  CHECK(!DecodeFrame(bad).ok());
  bad = ready;
  bad[cost_at + 15] = 0x80;  // a latency of centuries
  CHECK(!DecodeFrame(bad).ok());
  std::vector<uint8_t> heartbeat = EncodeFrame(Heartbeat{1, Generation(1), {SomeCost()}});
  CHECK(DecodeFrame(heartbeat).ok());
  heartbeat[heartbeat.size() - 9] = 0x80;  // a negative age
  CHECK(!DecodeFrame(heartbeat).ok());
}

TEST_CASE("no cut or lengthened frame is accepted") {
  for (const Frame& frame : SomeFrames()) {
    const std::vector<uint8_t> good = EncodeFrame(frame);
    for (size_t size = 0; size < good.size(); ++size) {
      CHECK(!DecodeFrame(absl::MakeConstSpan(good).first(size)).ok());
    }
    std::vector<uint8_t> longer = good;
    longer.push_back(0);
    CHECK(!DecodeFrame(longer).ok());
  }
}

TEST_CASE("damaged frames give an error or another frame, never more") {
  Random random(3);
  for (const Frame& frame : SomeFrames()) {
    const std::vector<uint8_t> good = EncodeFrame(frame);
    for (int i = 0; i < 2000; ++i) {
      std::vector<uint8_t> bad = good;
      for (int n = 0; n < 3; ++n) bad[random.Below(bad.size())] = random.Next() & 0xff;
      const auto back = DecodeFrame(bad);
      if (back.ok()) CHECK(DecodeFrame(EncodeFrame(*back)).ok());
    }
  }
}

TEST_CASE("a Hello of another protocol version is read as such, whatever follows") {
  Hello hello = MakeHello(Role::kPrefill, "prefill-0", 5, 6);
  std::vector<uint8_t> bytes = EncodeFrame(hello);
  bytes[5] = 9;  // behind u32 length and u8 type
  bytes.resize(bytes.size() - 10);
  bytes[0] = static_cast<uint8_t>(bytes.size() - 4);
  const auto back = DecodeFrame(bytes);
  REQUIRE(back.ok());
  CHECK(std::get<Hello>(*back).protocol == 9);
}

TEST_CASE("a layout of another version or kind is read as such; one of a wrong size is not") {
  Hello hello = MakeHello(Role::kPrefill, "prefill-0", 5, 6);
  hello.layout.heads_before = 3;
  hello.layout.kv_order = KvOrder::kInner;
  const std::vector<uint8_t> good = EncodeFrame(hello);
  const size_t at = [&] {  // of the descriptor: its version and kind, and 40 bytes
    for (size_t i = 0; i + 4 <= good.size(); ++i) {
      if (good[i] == 1 && good[i + 1] == 1 && good[i + 2] == 40 && good[i + 3] == 0) return i;
    }
    return good.size();
  }();
  REQUIRE(at < good.size());
  CHECK(std::get<Hello>(*DecodeFrame(good)).layout == hello.layout);
  for (const size_t field : {at, at + 1}) {
    std::vector<uint8_t> other = good;
    other[field] = 2;
    const auto back = DecodeFrame(other);
    REQUIRE(back.ok());
    const Hello& read = std::get<Hello>(*back);
    CHECK(read.numeric_class == hello.numeric_class);  // what follows is where it was
    CHECK(CheckLayout(read.layout)->field == (field == at ? "layout.version" : "layout.kind"));
  }
  for (const uint8_t size : {0, 39, 41, 80}) {
    std::vector<uint8_t> other = good;
    other[at + 2] = size;
    CHECK(!DecodeFrame(other).ok());
  }
}

TEST_CASE("the cutter finds frames whatever the pieces, and stops at a bad length") {
  std::vector<uint8_t> stream;
  for (const Frame& frame : SomeFrames()) {
    const auto bytes = EncodeFrame(frame);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    FrameCutter cutter;
    std::vector<std::vector<uint8_t>> frames;
    for (size_t at = 0; at < stream.size();) {
      const size_t size = std::min<size_t>(random.Between(1, 60), stream.size() - at);
      REQUIRE(cutter.Feed(absl::MakeConstSpan(stream).subspan(at, size), frames).ok());
      at += size;
    }
    REQUIRE(frames.size() == SomeFrames().size());
    for (size_t i = 0; i < frames.size(); ++i) CHECK(*DecodeFrame(frames[i]) == SomeFrames()[i]);
  }
  FrameCutter cutter;
  std::vector<std::vector<uint8_t>> frames;
  CHECK(!cutter.Feed(std::vector<uint8_t>{0, 0, 0, 0}, frames).ok());
  FrameCutter other;
  CHECK(!other.Feed(std::vector<uint8_t>{0xff, 0xff, 0xff, 0xff, 1}, frames).ok());
}

TEST_CASE("the largest Commit, Written and Hello fit in a frame") {
  Commit commit = SomeCommit();
  const OutputToken token{.id = 1, .top = std::vector<TokenLogprob>(256)};
  commit.first_tokens.assign(128, token);
  CHECK(EncodeFrame(commit).size() < kFrameBytesMax);
  DataHeader header = SummedHeader();
  header.targets.clear();
  for (uint32_t i = 0; i < kDataTargetsMax; ++i) header.targets.push_back(i);
  header.sums.assign(kDataTargetsMax, 1);
  CHECK(EncodeFrame(WrittenFrame{header}).size() < kFrameBytesMax);
  Hello hello = MakeHello(Role::kPrefill, "prefill-0", 5, 6);
  hello.offers.assign(8, {'A', "shm", std::vector<uint8_t>(64u << 10)});
  CHECK(EncodeFrame(hello).size() < kFrameBytesMax);
  CHECK(DecodeFrame(EncodeFrame(hello)).ok());
}

TEST_CASE("durations that do not fit are clamped, not wrapped") {
  Commit commit = SomeCommit();
  commit.queued = absl::InfiniteDuration();
  const Commit back = DecodeCommit(Encode(commit)).value();
  CHECK(back.queued > absl::Hours(1));
}

}  // namespace
}  // namespace baton::kv
