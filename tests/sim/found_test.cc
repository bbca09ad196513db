// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What seeds found, shrunk: each failed before its cause was mended.
#include <catch2/catch.hpp>

#include "sim/runner.h"
#include "tests/sim/scenario.h"

namespace baton::sim {
namespace {

void CheckClean(const char* text) {
  const auto plan = ParsePlan(text);
  REQUIRE(plan.ok());
  const RunResult result = Runner(*plan).Run();
  if (!result.violations.empty()) UNSCOPED_INFO(result.tail);
  for (const std::string& violation : result.violations) UNSCOPED_INFO(violation);
  CHECK(result.violations.empty());
}

}  // namespace

// Heartbeats went on, so nobody missed the bytes: the writer waited for its owner's answers for
// ever, with its blocks and every later push over that link.
TEST_CASE("a data path that swallows what is pushed is given up", "[found]") {
  CheckClean(R"(
cluster decode=2 path=B
request
fault deafen_link who=p0 whom=d1 how=2)");
  CheckClean(R"(
cluster decode=6 path=B router.attempts=1
request
request
request
fault deafen_link who=p0 whom=d5 how=2)");
}

// Pushes were given up sooner than the link: a client that asked again was sent to it again.
TEST_CASE("a link is given up no later than the pushes that it does not carry", "[found]") {
  CheckClean(R"(
cluster path=B router.attempts=1 router.progress_timeout=3s
fault deafen_link who=p0 how=2)");
}

// The checker's fault: it missed that the queue was full for the second request, and that the
// first one left room for the third, all while the front end stood still.
TEST_CASE("a request that was rejected is not passed over", "[found]") {
  CheckClean(R"(
cluster router.queue=1
request at=1ms
request cancel_after=937us
request
fault stop who=f0 lasts=1ms)");
}

// Queued behind it, a prompt showed life while nothing moved: it was waited for, beyond its
// deadline, until the link was given up.
TEST_CASE("a prompt that waits behind a push that stands still goes elsewhere", "[found]") {
  ClusterOptions options;
  options.path = 'B';
  options.decode_blocks = 256;
  options.prefill_options.sequences_max = 1;
  options.router.progress_timeout = absl::Seconds(2);
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  cluster.fabric().Deafen(cluster.prefill(0).process(), cluster.decode(0).process(),
                          {.writer = false, .owner = false, .data = true});
  for (int i = 0; i < 3; ++i) cluster.Submit(kLong);
  cluster.Run(absl::Seconds(4));
  for (const Reply& reply : cluster.replies()) CHECK(Right(cluster, reply));
  CheckEnd(cluster);
}

// It was taken for a failure: with few attempts the client was told UNAVAILABLE though nothing
// had failed, and decode had room to compute the prompt itself.
TEST_CASE("a prefill whose queue is full has not failed", "[found]") {
  CheckClean(R"(
cluster router.attempts=1 prefill.queue=1
request
request
request)");
}

// Not the code was wrong but the checker: it took a queue that is longer than the deadline for
// an answer that never comes (seed 364310).
TEST_CASE("a deadline that decode has no time for is no lack of liveness", "[found]") {
  CheckClean(R"(
cluster decode.sequences=1 step=5ms
request new=900
request new=900
request new=900
request new=900
request new=900
request new=900
request new=900
request new=900
request at=1s new=10 deadline=29s)");
}

// Not the code was wrong but the checker: it looked at the silence when the wedged role loop
// took the news, not when the transport declared the writer dead.
TEST_CASE("a writer is dead to a wedged decode, and speaks before the news is taken", "[found]") {
  CheckClean(R"(
cluster prefill=7
request
request
fault stop who=p5 at=4.063s lasts=2.29s
fault wedge at=4.957s lasts=1.61s
fault wedge who=p5 at=4.597s lasts=3.93s)");
}

}  // namespace baton::sim
