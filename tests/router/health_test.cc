// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/health.h"

#include <catch2/catch.hpp>

namespace baton::router {
namespace {

absl::Time At(int milliseconds) {
  return absl::FromUnixSeconds(100) + absl::Milliseconds(milliseconds);
}

WorkerStatus Status(uint64_t life, uint64_t ticks) {
  WorkerStatus status;
  status.self = {"decode-0", Incarnation(life)};
  status.ready = true;
  status.ticks = ticks;
  return status;
}

}  // namespace

TEST_CASE("a worker that never answered is not usable and never dies", "[router]") {
  Health health({});
  CHECK(health.Advance(At(100000)) == Health::Change::kNone);
  CHECK(health.state() == PeerState::kUnknown);
  CHECK_FALSE(health.usable());
  CHECK(health.NextChange() == absl::InfiniteFuture());
}

TEST_CASE("silence makes a worker suspect, then dead, and says lost once", "[router]") {
  Health health({});
  health.Answered(Status(1, 1), At(0));
  CHECK(health.usable());
  CHECK(health.NextChange() == At(800));
  CHECK(health.Advance(At(799)) == Health::Change::kNone);
  CHECK(health.state() == PeerState::kAlive);
  health.Advance(At(800));
  CHECK(health.state() == PeerState::kSuspect);
  CHECK(health.usable());
  CHECK(health.NextChange() == At(2000));
  CHECK(health.Advance(At(2000)) == Health::Change::kLost);
  CHECK(health.Advance(At(2001)) == Health::Change::kNone);
  CHECK_FALSE(health.usable());
  health.Answered(Status(1, 2), At(3000));
  CHECK(health.usable());
  CHECK(health.returns() == 1);
}

TEST_CASE("a broken connection makes a worker unusable at once, until it answers", "[router]") {
  Health health({});
  health.Answered(Status(1, 1), At(0));
  health.Gone();
  CHECK_FALSE(health.usable());
  health.Answered(Status(1, 2), At(200));
  CHECK(health.usable());
  health.Gone();
  CHECK(health.Advance(At(2200)) == Health::Change::kLost);
}

TEST_CASE("a worker that answers but does not tick is wedged, and dead until it ticks",
          "[router]") {
  Health health({});
  bool lost = false;
  for (int ms = 0; ms <= 2000; ms += 200) {
    health.Answered(Status(1, 5), At(ms));
    lost = health.Advance(At(ms)) == Health::Change::kLost;
  }
  CHECK(lost);
  CHECK(health.state() == PeerState::kDead);
  health.Answered(Status(1, 5), At(2200));
  CHECK_FALSE(health.usable());
  health.Answered(Status(1, 6), At(2400));
  CHECK(health.usable());
}

TEST_CASE("a gap in which nobody listened is neither silence nor a wedged loop", "[router]") {
  Health health({});
  health.Answered(Status(1, 5), At(0));
  health.Advance(At(100));
  health.Forgive(absl::Seconds(60));
  health.Advance(At(60100));
  CHECK(health.state() == PeerState::kAlive);
  health.Answered(Status(1, 5), At(61000));
  CHECK(health.Advance(At(61999)) == Health::Change::kNone);
  CHECK(health.Advance(At(62000)) == Health::Change::kLost);
}

TEST_CASE("an answer under another incarnation means that the earlier process is lost",
          "[router]") {
  Health health({});
  CHECK(health.Answered(Status(1, 9), At(0)) == Health::Change::kNone);
  CHECK(health.Answered(Status(2, 9), At(200)) == Health::Change::kLost);
  CHECK(health.usable());
  CHECK(health.returns() == 1);
}

TEST_CASE("a worker that is not ready or drains is alive but not usable", "[router]") {
  Health health({});
  WorkerStatus status = Status(1, 1);
  status.ready = false;
  health.Answered(status, At(0));
  CHECK_FALSE(health.usable());
  status.ready = true;
  status.draining = true;
  health.Answered(status, At(200));
  CHECK(health.state() == PeerState::kAlive);
  CHECK_FALSE(health.usable());
}

}  // namespace baton::router
