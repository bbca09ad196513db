// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/stages.h"

#include <catch2/catch.hpp>

namespace baton::router {
namespace {

absl::Time At(int milliseconds) {
  return absl::FromUnixSeconds(100) + absl::Milliseconds(milliseconds);
}
absl::Duration Ms(int milliseconds) { return absl::Milliseconds(milliseconds); }

absl::Duration UpToFirstToken(const Stages& s) {
  return s.queue + s.reserve + s.prefill + s.kv_exposed + s.first_token + s.retry;
}

}  // namespace

TEST_CASE("stages are consecutive and add up to the time to the first token", "[router]") {
  StageClock clock(At(0));
  clock.Opened(At(10));
  clock.Reserved(At(30));
  clock.FirstToken(At(100), {.queued = Ms(5), .compute = Ms(40), .exposed = Ms(15)});
  const Stages stages = clock.Over(At(350));
  CHECK(stages.queue == Ms(10));
  CHECK(stages.reserve == Ms(20));
  CHECK(stages.prefill == Ms(45));
  CHECK(stages.kv_exposed == Ms(15));
  CHECK(stages.first_token == Ms(10));
  CHECK(stages.decode == Ms(250));
  CHECK(UpToFirstToken(stages) == Ms(100));
}

TEST_CASE("durations that a worker claims are cut to what there was", "[router]") {
  StageClock clock(At(0));
  clock.Opened(At(0));
  clock.Reserved(At(0));
  clock.FirstToken(At(50), {.queued = Ms(-7), .compute = Ms(40000), .exposed = Ms(20)});
  const Stages stages = clock.Over(At(50));
  CHECK(stages.kv_exposed == Ms(20));
  CHECK(stages.prefill == Ms(30));
  CHECK(UpToFirstToken(stages) == Ms(50));
}

TEST_CASE("time in failed attempts is retry, time with a full decode is queue", "[router]") {
  StageClock clock(At(0));
  clock.Opened(At(10));
  clock.Refused(At(20));
  clock.Opened(At(30));
  clock.Reserved(At(40));
  clock.Failed(At(90));
  clock.Opened(At(95));
  clock.Reserved(At(96));
  clock.FirstToken(At(100), {});
  clock.Failed(At(200));  // after the first token everything is decode
  clock.Opened(At(210));
  const Stages stages = clock.Over(At(300));
  CHECK(stages.queue == Ms(30));
  CHECK(stages.retry == Ms(65));
  CHECK(stages.reserve == Ms(1));
  CHECK(stages.first_token == Ms(4));
  CHECK(stages.decode == Ms(200));
  CHECK(UpToFirstToken(stages) == Ms(100));
}

TEST_CASE("a request that ends without a token spent its last interval where it was", "[router]") {
  StageClock waiting(At(0));
  CHECK(waiting.Over(At(9)).queue == Ms(9));
  StageClock reserving(At(0));
  reserving.Opened(At(1));
  CHECK(reserving.Over(At(9)).reserve == Ms(8));
  StageClock running(At(0));
  running.Opened(At(1));
  running.Reserved(At(3));
  const Stages stages = running.Over(At(9));
  CHECK(stages.reserve == Ms(2));
  CHECK(stages.prefill == Ms(6));
}

}  // namespace baton::router
