// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/watched_transport.h"

#include <catch2/catch.hpp>

namespace baton::server {
namespace {

kv::PeerUp Up(const std::string& worker) {
  kv::PeerUp up;
  up.peer = {worker, Incarnation(1)};
  return up;
}

kv::PeerDown Refused(const std::string& worker, bool agreed) {
  kv::PeerDown down;
  down.peer = {worker, Incarnation(2)};
  down.why = absl::FailedPreconditionError("moves less than kv_transfer.min_bandwidth");
  down.agreed = agreed;
  return down;
}

absl::Status VerdictOf(bool required, const std::vector<kv::TransportEvent>& events) {
  TransportWatch watch(required);
  watch.See(events, 0);
  return watch.verdict();
}

TEST_CASE("less than the required link ends a process that has had none") {
  CHECK(absl::IsFailedPrecondition(VerdictOf(true, {Refused("prefill-0", true)})));
  CHECK(VerdictOf(false, {Refused("prefill-0", true)}).ok());
}

TEST_CASE("one bad peer ends no process that has served others") {
  CHECK(VerdictOf(true, {Up("prefill-0"), Refused("prefill-1", true)}).ok());
}

TEST_CASE("a stranger who does not pair ends nobody") {
  CHECK(VerdictOf(true, {Refused("prefill-0", false)}).ok());
}

TEST_CASE("what a process must end for is kept, whatever came up before") {
  const kv::MustExit must{absl::AbortedError("declared dead")};
  CHECK(absl::IsAborted(VerdictOf(false, {Up("prefill-0"), must})));
}

}  // namespace
}  // namespace baton::server
