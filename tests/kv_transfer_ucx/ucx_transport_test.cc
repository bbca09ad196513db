// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Both data paths end to end: real sockets, real UCX, two transports in one process.
#include "tests/kv_transfer_ucx/transport_pair.h"

namespace baton::kv {
namespace {

void PushesArrive(TransportChoice choice, char path, const std::string& transport = "") {
  Pair pair(choice);
  pair.WaitUp();
  const LinkInfo info = pair.writer.Find<PeerUp>()->link;
  INFO(pair.writer.transport->Links().at(0).fallback);
  CHECK(info.data_path == path);
  if (!transport.empty()) CHECK(info.transport == transport);
  CHECK(info.bandwidth_bytes_per_second > 1e7);
  CHECK(info.latency > absl::ZeroDuration());
  for (uint64_t generation = 1; generation <= 5; ++generation) {
    const Ticket ticket = pair.MakeTicket(generation, {7, 8, 9, 30, 2, 55, 63});
    pair.owner.transport->Grant(ticket);
    pair.Push(ticket);
    REQUIRE(WaitFor(absl::Seconds(10), [&] {
      const auto* commit = pair.owner.Find<CommitArrived>();
      return commit != nullptr && commit->commit.key == ticket.key;
    }));
    CHECK(pair.Landed(ticket));
    pair.owner.events.clear();
  }
}

TEST_CASE("pushes through shared memory arrive whole and in their place") {
  PushesArrive(TransportChoice::kShm, 'A');
}

TEST_CASE("pushes over TCP arrive whole and in their place") {
  PushesArrive(TransportChoice::kTcp, 'B', "tcp");
}

TEST_CASE("pushes over UCX's TCP arrive whole and in their place") {
  PushesArrive(TransportChoice::kUcxTcp, 'B', "ucx_tcp");
}

TEST_CASE("two processes of one host choose shared memory by themselves") {
  Pair pair(TransportChoice::kAuto);
  pair.WaitUp();
  const LinkInfo info = pair.writer.Find<PeerUp>()->link;
  CHECK(info.data_path == 'A');
  CHECK((info.transport == "sysv" || info.transport == "posix"));
  CHECK(pair.owner.Find<PeerUp>()->link.transport == info.transport);
  CHECK(pair.writer.transport->Links().size() == 1);
}

TEST_CASE("a bandwidth below the configured one is refused with the setting's name") {
  End owner;
  owner.Open(OwnerOptions(TransportChoice::kTcp, SmallLayout(8)));
  auto options = WriterOptions(TransportChoice::kTcp, SmallLayout(8), owner.transport->port());
  options.min_bandwidth = 1e15;
  End strict;
  strict.Open(options);
  REQUIRE(WaitFor(absl::Seconds(10), [&] { return strict.Find<PeerDown>() != nullptr; }));
  const absl::Status why = strict.Find<PeerDown>()->why;
  CHECK(absl::IsFailedPrecondition(why));
  CHECK(why.message().find("min_bandwidth") != std::string::npos);
  CHECK(why.message().find("tcp") != std::string::npos);
}

TEST_CASE("RDMA required where there is none is refused at start") {
  auto options = OwnerOptions(TransportChoice::kAuto, SmallLayout(8));
  options.require_rdma = true;
  const auto made = UcxTransport::Create(options);
  CHECK(absl::IsFailedPrecondition(made.status()));
  CHECK(made.status().message().find("require_rdma") != std::string::npos);
}

}  // namespace
}  // namespace baton::kv
