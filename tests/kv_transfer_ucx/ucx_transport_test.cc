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
  INFO(info.tried);
  CHECK(info.data_path == path);
  const bool says_why = info.tried.find("memory writes: excluded by") != std::string::npos;
  CHECK(says_why == (path == 'B'));
  if (!transport.empty()) CHECK(info.transport == transport);
  CHECK(info.cost.bandwidth > 1e7);
  CHECK(info.cost.sums_bandwidth > 1e7);
  CHECK(info.cost.latency > absl::ZeroDuration());
  CHECK(info.cost.per_operation < absl::Milliseconds(1));
  CHECK(info.link_class == (path == 'A' ? "shm" : "tcp"));
  CHECK(info.expected == info.link_class);
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

// Of the writes 1 to 3 (the first push) none is damaged, of 4 to 6 the first is.
TEST_CASE("K3: a bit that is flipped on its way is caught on every path, and without sums is not") {
  for (const TransportChoice choice :
       {TransportChoice::kShm, TransportChoice::kTcp, TransportChoice::kUcxTcp}) {
    for (const uint32_t check_one_in : {1u, 0u}) {
      Pair pair(choice, 64, 40, [&](UcxTransportOptions& options) {
        options.damage_one_in = 4;
        options.check_one_in = check_one_in;
      });
      pair.WaitUp();
      const LinkInfo link = pair.owner.Find<PeerUp>()->link;
      INFO(link.transport << ", checks one in " << check_one_in);
      const Ticket good = pair.MakeTicket(1, {3, 5, 6}), bad = pair.MakeTicket(2, {7, 9, 1});
      pair.owner.transport->Grant(good);
      pair.Push(good);
      REQUIRE(
          WaitFor(absl::Seconds(10), [&] { return pair.owner.Find<CommitArrived>() != nullptr; }));
      CHECK(pair.Landed(good));
      pair.owner.events.clear();
      pair.owner.transport->Grant(bad);
      pair.Write(bad);
      if (check_one_in == 0) {
        pair.SendCommit(bad);
        REQUIRE(WaitFor(absl::Seconds(10),
                        [&] { return pair.owner.Find<CommitArrived>() != nullptr; }));
        CHECK(!pair.Landed(bad));  // wrong bytes would have been used
        continue;
      }
      if (link.data_path == 'A') pair.SendCommit(bad);  // its writer does not know
      REQUIRE(
          WaitFor(absl::Seconds(10), [&] { return pair.owner.Find<WriterFailed>() != nullptr; }));
      const absl::Status why = pair.owner.Find<WriterFailed>()->why;
      CHECK(absl::IsDataLoss(why));
      CHECK(why.message().find("from prefill-0 over " + link.transport) != std::string::npos);
      pair.owner.transport->Revoke(Generation(2));
      REQUIRE(WaitFor(absl::Seconds(10), [&] { return pair.owner.Find<Quiet>() != nullptr; }));
      CHECK(pair.owner.Find<CommitArrived>() == nullptr);
      const ComparedOver over{"prefill-0", link.transport, link.data_path};
      CHECK(WaitFor(absl::Seconds(10), [&] {
        const ComparedBlocks compared = pair.owner.transport->counters().compared;
        const auto found = compared.find(over);
        return found != compared.end() && found->second.wrong == 1 && found->second.right >= 9;
      }));
    }
  }
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
