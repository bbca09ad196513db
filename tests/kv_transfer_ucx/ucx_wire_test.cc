// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Bytes between two reactors: round trips, and what lies or is cut short.
#include "kv_transfer/ucx_wire.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/socket_links.h"
#include "kv_transfer/ucx_copy.h"
#include "kv_transfer/ucx_path.h"
#include "kv_transfer/ucx_process.h"

namespace baton::kv {
namespace {

MemoryOffer SomeOffer() {
  MemoryOffer offer;
  offer.worker_address = {1, 2, 3};
  offer.key = {4, 5};
  offer.base = 0x7f0000000000;
  offer.bytes = 1 << 20;
  offer.nonce = 77;
  offer.probe_offset = 4096;
  offer.probe_bytes = 65536;
  offer.pool_offset = 1 << 18;
  offer.pool_bytes = 1 << 19;
  return offer;
}

TEST_CASE("messages between reactors survive a round trip") {
  CHECK(*DecodeMemoryOffer(Encode(SomeOffer())) == SomeOffer());
  PathMessage message{.step = PathStep::kMeasured, .path = 'A', .ok = true};
  message.number = 9;
  message.cost = {.latency = absl::Nanoseconds(120),
                  .per_operation = absl::Nanoseconds(90),
                  .bandwidth = 5e9,
                  .sums_bandwidth = 7e9};
  message.text = "sysv";
  CHECK(*DecodePathMessage(Encode(message)) == message);
  MessageHeader first{.token = 3, .write = 4, .offset = 0, .total = 100, .data_header = {1, 2}};
  CHECK(*DecodeMessageHeader(Encode(first)) == first);
  MessageHeader more{.token = 3, .write = 4, .offset = 50, .total = 100};
  CHECK(*DecodeMessageHeader(Encode(more)) == more);
}

TEST_CASE("every shortened message between reactors is refused") {
  const auto offer = Encode(SomeOffer());
  for (size_t n = 0; n < offer.size(); ++n) {
    CHECK_FALSE(DecodeMemoryOffer({offer.data(), n}).ok());
  }
  const auto message = Encode(PathMessage{.step = PathStep::kCheck, .text = "abc"});
  for (size_t n = 0; n < message.size(); ++n) {
    CHECK_FALSE(DecodePathMessage({message.data(), n}).ok());
  }
}

TEST_CASE("an offer whose regions leave the mapping is refused") {
  MemoryOffer offer = SomeOffer();
  offer.pool_bytes = offer.bytes;
  CHECK_FALSE(DecodeMemoryOffer(Encode(offer)).ok());
  offer = SomeOffer();
  offer.probe_offset = ~uint64_t{0} - 10;
  CHECK_FALSE(DecodeMemoryOffer(Encode(offer)).ok());
  offer = SomeOffer();
  offer.base = ~uint64_t{0} - 10;
  CHECK_FALSE(DecodeMemoryOffer(Encode(offer)).ok());
  offer = SomeOffer();
  offer.key.clear();
  CHECK_FALSE(DecodeMemoryOffer(Encode(offer)).ok());
}

TEST_CASE("a bandwidth that is no number is refused") {
  PathMessage message{.step = PathStep::kMeasured};
  message.cost.bandwidth = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(DecodePathMessage(Encode(message)).ok());
  message.cost.bandwidth = -1;
  CHECK_FALSE(DecodePathMessage(Encode(message)).ok());
}

TEST_CASE("the first message of a write carries its header, the others do not") {
  MessageHeader header{.token = 1, .write = 1, .offset = 0, .total = 10};
  CHECK_FALSE(DecodeMessageHeader(Encode(header)).ok());
  header.offset = 5;
  header.data_header = {1};
  CHECK_FALSE(DecodeMessageHeader(Encode(header)).ok());
}

TEST_CASE("a probe is one run or runs of some size, and a pattern is one run") {
  MessageHeader header{.kind = MessageHeader::Kind::kProbe, .token = 1, .write = 1};
  CHECK(DecodeMessageHeader(Encode(header)).ok());
  header.offset = 4096;
  CHECK(*DecodeMessageHeader(Encode(header)) == header);
  header.total = 5;
  CHECK_FALSE(DecodeMessageHeader(Encode(header)).ok());
  header.total = 0;
  header.offset = kProbeRunMin - 1;
  CHECK_FALSE(DecodeMessageHeader(Encode(header)).ok());
}

TEST_CASE("scattered runs are all of them, and no two go on without a gap") {
  for (const uint64_t count : {32, 64, 256}) {
    std::vector<bool> seen(count);
    for (uint64_t i = 0; i < count; ++i) {
      seen.at(Scattered(i, count)) = true;
      if (i > 0) CHECK(Scattered(i, count) != Scattered(i - 1, count) + 1);
    }
    CHECK(std::count(seen.begin(), seen.end(), true) == static_cast<ptrdiff_t>(count));
  }
}

TEST_CASE("the class that should come up follows the configuration and the hosts") {
  const ProcessId here{.boot_id = "a"};
  Hello same, namespaced, far;
  same.process.boot_id = namespaced.process.boot_id = "a";
  far.process.boot_id = "b";
  same.net_namespace = far.net_namespace = 7;
  namespaced.net_namespace = 8;
  PathPolicy automatic{.net_namespace = 7};
  CHECK(ExpectedClass(automatic, here, same) == "shm");
  CHECK(ExpectedClass(automatic, here, namespaced) == "tcp");
  CHECK(ExpectedClass(automatic, here, far).empty());
  PathPolicy tcp{.allow_memory = false, .net_namespace = 7};
  CHECK(ExpectedClass(tcp, here, same) == "tcp");
  PathPolicy shm{.allow_sockets = false, .allow_messages = false, .net_namespace = 7};
  CHECK(ExpectedClass(shm, here, namespaced) == "shm");
  PathPolicy rdma{.net_namespace = 7, .require_rdma = true};
  CHECK(ExpectedClass(rdma, here, same) == "rdma");
  CHECK(ClassOf("sysv") == "shm");
  CHECK(ClassOf("posix") == "shm");
  CHECK(ClassOf("rc_verbs") == "rdma");
  CHECK(ClassOf("tcp") == "tcp");
  CHECK(ClassOf("ucx_tcp") == "tcp");
}

TEST_CASE("one run more costs its part of the difference, never less than nothing") {
  CHECK(PerOperation(absl::Microseconds(73), absl::Microseconds(10), 64) == absl::Microseconds(1));
  CHECK(PerOperation(absl::Microseconds(9), absl::Microseconds(10), 64) == absl::ZeroDuration());
  BestTime best;
  for (const int us : {5, 3, 9}) best.Note(absl::Microseconds(us));
  CHECK(best.best() == absl::Microseconds(3));
  CHECK(best.rounds() == 3);
}

TEST_CASE("a pattern is found whole, and not when one bit differs") {
  std::vector<uint8_t> bytes(1003);
  FillPattern(5, absl::MakeSpan(bytes));
  CHECK(HasPattern(5, bytes));
  CHECK_FALSE(HasPattern(6, bytes));
  for (const size_t at : {size_t{0}, size_t{500}, size_t{1002}}) {
    bytes[at] ^= 1;
    CHECK_FALSE(HasPattern(5, bytes));
    bytes[at] ^= 1;
  }
}

TEST_CASE("a copy to a peer is exact at any alignment and length") {
  std::vector<uint8_t> from(600), to(600);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 37 + 1);
  for (size_t start = 0; start < 70; start += 7) {
    for (size_t bytes = 0; bytes < 300; bytes += 13) {
      std::fill(to.begin(), to.end(), 0);
      CopyToPeer(to.data() + start, from.data() + start / 2, bytes);
      bool right = true;
      for (size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= start && i < start + bytes;
        right = right && to[i] == (inside ? from[i - start + start / 2] : 0);
      }
      CHECK(right);
    }
  }
}

TEST_CASE("addresses with names, numbers and brackets are split") {
  CHECK(SplitHostPort("10.1.2.3:80")->host == "10.1.2.3");
  CHECK(SplitHostPort("10.1.2.3:80")->port == 80);
  CHECK(SplitHostPort("[::1]:8203")->host == "::1");
  CHECK(SplitHostPort("decode-0.baton:1")->host == "decode-0.baton");
  for (const char* wrong : {"", "host", ":1", "a:b", "a:70000", "a:-1", "a:"}) {
    CHECK_FALSE(SplitHostPort(wrong).ok());
  }
}

TEST_CASE("the start time of a process is found behind any command name") {
  const std::string fields = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 0";
  CHECK(ParseStartTime("12 (cat)" + fields) == std::optional<uint64_t>(4711));
  CHECK(ParseStartTime("12 (a) S (b c)" + fields) == std::optional<uint64_t>(4711));
  CHECK_FALSE(ParseStartTime("12 (cat) S 1 2").has_value());
  CHECK_FALSE(ParseStartTime("").has_value());
}

TEST_CASE("this process is seen alive, another start time is not") {
  const auto self = DescribeSelf();
  REQUIRE(self.ok());
  CHECK(IsAlive(self->process));
  CHECK(WatchProcess(self->process, self->process).ok());
  ProcessId earlier = self->process;
  --earlier.start_time;
  CHECK_FALSE(IsAlive(earlier));
  CHECK_FALSE(WatchProcess(self->process, earlier).ok());
  ProcessId elsewhere = self->process;
  elsewhere.boot_id = "other";
  CHECK_FALSE(SharesPids(self->process, elsewhere));
}

TEST_CASE("pauses between dials double up to a second, with jitter") {
  Random random(1);
  for (uint32_t failures = 0; failures < 40; ++failures) {
    const absl::Duration full =
        std::min(absl::Milliseconds(50) * (1 << std::min(failures, 10u)), absl::Seconds(1));
    const absl::Duration pause = DialPause(failures, random);
    CHECK(pause <= full);
    CHECK(pause >= full * 0.75);
  }
}

TEST_CASE("an RDMA offer names a port and nothing else") {
  MemoryOffer offer;
  offer.worker_address = RdmaAddress(4791);
  CHECK(RdmaPort(offer).value() == 4791);
  for (const std::vector<uint8_t>& wrong :
       std::vector<std::vector<uint8_t>>{{}, {7}, {0, 0}, {1, 2, 3}}) {
    offer.worker_address = wrong;
    CHECK(absl::IsInvalidArgument(RdmaPort(offer).status()));
  }
}

TEST_CASE("both kinds of memory writes are path A, both kinds of messages path B") {
  std::string paths;
  for (const char proposal : kProposals) paths += DataPathOf(proposal);
  CHECK(paths == "AABB");
}

TEST_CASE("a path that failed is tried again, one that the configurations exclude is not") {
  PathMessage message{.step = PathStep::kMeasured};
  message.text = "no data path to decode-3";
  CHECK(absl::IsFailedPrecondition(NoPath(message)));
  message.number = 1;
  CHECK(absl::IsUnavailable(NoPath(message)));
  CHECK(NoPath(message).message() == message.text);
}

TEST_CASE("a link that is not what the configuration demands is refused with the reason") {
  const WorkerRef peer{"decode-3", Incarnation(1)};
  LinkInfo info;
  info.transport = "tcp";
  info.cost.bandwidth = 2e9;
  CHECK(CheckPolicy({}, peer, info).ok());
  const absl::Status slow = CheckPolicy({.min_bandwidth = 3e9}, peer, info);
  CHECK(absl::IsFailedPrecondition(slow));
  CHECK(slow.message().find("2.00 GB/s") != std::string::npos);
  const absl::Status rdma = CheckPolicy({.require_rdma = true}, peer, info);
  CHECK(absl::IsFailedPrecondition(rdma));
  CHECK(rdma.message().find("decode-3") != std::string::npos);
  CHECK(rdma.message().find("tcp") != std::string::npos);
  info.transport = "rc_mlx5";
  CHECK(CheckPolicy({.require_rdma = true}, peer, info).ok());
}

}  // namespace
}  // namespace baton::kv
