// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Both ends of a flow over a real connection: whatever the sizes, the cuts and the order of
// what is refused, each payload lands whole in its place and nowhere else.
#include "kv_transfer/socket_flow.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "base/random.h"

namespace baton::kv {
namespace {

using Bytes = std::vector<uint8_t>;

std::pair<Fd, Fd> Connection() {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

MessageHeader Data(uint64_t write, uint64_t total) {
  MessageHeader header{.kind = MessageHeader::Kind::kData, .token = 9, .write = write};
  header.total = total;
  header.data_header.assign(1 + write % 5000, 7);
  return header;
}

Bytes Pattern(uint64_t seed, size_t size) {
  Bytes bytes(size);
  FillPattern(seed, absl::MakeSpan(bytes));
  return bytes;
}

// Lands every write in pieces of its own; refuses those listed.
class Memory final : public FlowReceiver::Target {
 public:
  explicit Memory(size_t piece_bytes) : piece_bytes_(piece_bytes) {}
  absl::StatusOr<std::vector<absl::Span<uint8_t>>> Begin(const MessageHeader& header,
                                                         uint64_t payload_bytes) override {
    if (header.offset != 0) return absl::InvalidArgumentError("told to fail");
    std::vector<absl::Span<uint8_t>> pieces;
    if (header.write % 3 == 0) return pieces;
    Bytes& memory = landed[header.write];
    memory.resize(payload_bytes);
    for (size_t at = 0; at < payload_bytes; at += piece_bytes_) {
      pieces.push_back(absl::MakeSpan(memory).subspan(at, piece_bytes_));
    }
    return pieces;
  }
  void End(const MessageHeader& header, uint64_t payload_bytes) override {
    CHECK(payload_bytes == landed[header.write].size());
    ended.push_back(header.write);
  }

  std::map<uint64_t, Bytes> landed;
  std::vector<uint64_t> ended;

 private:
  const size_t piece_bytes_;
};

TEST_CASE("payloads of any size land whole, what is refused lands nowhere") {
  Random random(11);
  auto [out, in] = Connection();
  FlowSender sender(std::move(out));
  FlowReceiver receiver(std::move(in));
  Memory memory(700);
  std::map<uint64_t, Bytes> sources;
  std::vector<uint64_t> sent;
  const uint64_t writes = 60;
  for (uint64_t write = 1; write <= writes; ++write) {
    const size_t size = 1 + random.Below(write % 7 == 0 ? 400'000 : 3'000);
    const Bytes& source = sources[write] = Pattern(write, size);
    std::vector<absl::Span<const uint8_t>> pieces;
    for (size_t at = 0; at < size; at += 1 + size / 100) {
      pieces.push_back(absl::MakeConstSpan(source).subspan(at, 1 + size / 100));
    }
    sender.Queue(Data(write, size), pieces, write);
  }
  for (int turn = 0; turn < 100'000 && memory.ended.size() < writes - writes / 3; ++turn) {
    REQUIRE(sender.Flush(1 + random.Below(100'000), sent).ok());
    REQUIRE(receiver.Receive(1 + random.Below(100'000), memory).ok());
  }
  REQUIRE(sender.Flush(1u << 30, sent).ok());
  CHECK(sender.queued_bytes() == 0);
  std::vector<uint64_t> all(writes);
  std::iota(all.begin(), all.end(), 1);
  CHECK(sent == all);
  CHECK(memory.ended.size() == writes - writes / 3);
  for (const uint64_t write : memory.ended) {
    INFO(write);
    CHECK(memory.landed.at(write) == sources.at(write));
  }
  while (receiver.in_message()) REQUIRE(receiver.Receive(1u << 20, memory).ok());
}

TEST_CASE("a flow that ends in the middle of a message says so") {
  auto [out, in] = Connection();
  FlowReceiver receiver(std::move(in));
  Memory memory(64);
  Bytes message = EncodeFlowMessage(Encode(Data(1, 100)), 100);
  message.resize(message.size() + 99);
  REQUIRE(::send(out.get(), message.data(), message.size(), 0) ==
          static_cast<ssize_t>(message.size()));
  REQUIRE(receiver.Receive(1u << 20, memory).ok());
  CHECK(receiver.in_message());
  out.Close();
  CHECK(absl::IsUnavailable(receiver.Receive(1u << 20, memory)));
  CHECK(memory.ended.empty());
}

TEST_CASE("lengths that make no sense end a flow before anything is allocated for them") {
  for (const FlowPrefix prefix : {FlowPrefix{0, 1}, FlowPrefix{kFlowHeaderBytesMax + 1, 1},
                                  FlowPrefix{10, 0}, FlowPrefix{10, ~uint64_t{0}}}) {
    auto [out, in] = Connection();
    FlowReceiver receiver(std::move(in));
    Memory memory(64);
    Bytes bytes(kFlowPrefixBytes);
    std::memcpy(bytes.data(), &prefix.header_bytes, 4);
    std::memcpy(bytes.data() + 4, &prefix.payload_bytes, 8);
    REQUIRE(::send(out.get(), bytes.data(), bytes.size(), 0) == kFlowPrefixBytes);
    CHECK(absl::IsInvalidArgument(receiver.Receive(1u << 20, memory)));
    CHECK(memory.landed.empty());
  }
}

TEST_CASE("a target's error ends the flow") {
  auto [out, in] = Connection();
  FlowReceiver receiver(std::move(in));
  Memory memory(64);
  MessageHeader header = Data(1, 8);
  header.offset = 4;
  header.data_header.clear();
  const Bytes bytes = EncodeFlowMessage(Encode(header), 8);
  REQUIRE(::send(out.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  CHECK(absl::IsInvalidArgument(receiver.Receive(1u << 20, memory)));
}

TEST_CASE("a connection's first bytes tell a flow from frames") {
  const Bytes preamble = EncodeFlowPreamble(0x1234);
  REQUIRE(preamble.size() == kFlowPreambleBytes);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(BeginsFlow(absl::MakeConstSpan(preamble).subspan(0, i)) == std::nullopt);
  }
  CHECK(BeginsFlow(preamble) == true);
  CHECK(DecodeFlowPreamble(preamble).value() == 0x1234);
  CHECK(BeginsFlow(EncodeFrame(Heartbeat{})) == false);
  Bytes other = preamble;
  other[4] = 77;
  CHECK(DecodeFlowPreamble(other).status().message().find("version 77") != std::string::npos);
}

}  // namespace
}  // namespace baton::kv
