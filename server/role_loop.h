// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The one thread of a role's logic: it ticks a state machine and sleeps when there is nothing
// to do, until the bell rings or the machine's next wake-up.
//
// Thread:  Run on its own; bell() is everyone's.  The tick counter goes out with heartbeats:
//          a loop that hangs is seen from outside.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/this_thread.h"

namespace baton::server {

class RoleLoop {
 public:
  // One moment of the role; returns when to call it again at the latest.
  using Turn = std::function<absl::Time(absl::Time now)>;

  explicit RoleLoop(const Clock* clock)
      : clock_(clock), last_turn_ns_(absl::ToUnixNanos(clock->Now())) {}
  ~RoleLoop() { Stop(); }
  RoleLoop(const RoleLoop&) = delete;
  RoleLoop& operator=(const RoleLoop&) = delete;

  void Start(Turn turn) {
    thread_ = std::thread([this, turn = std::move(turn)] {
      NameThisThread("role-loop");
      Run(turn);
    });
  }
  // After the turn that runs.
  void Stop() {
    stopping_ = true;
    bell_.Ring();
    if (thread_.joinable()) thread_.join();
  }
  Bell* bell() { return &bell_; }
  const std::atomic<uint64_t>* turns() const { return &turns_; }
  // When the last turn began, on the clock; to tell a wedged loop from a quiet one.
  absl::Time last_turn() const {
    return absl::UnixEpoch() + absl::Nanoseconds(last_turn_ns_.load(std::memory_order_relaxed));
  }

 private:
  // A quiet loop still turns, so that its counter shows life.
  static constexpr absl::Duration kQuietMax = absl::Milliseconds(200);

  void Run(const Turn& turn) {
    while (!stopping_) {
      const absl::Time now = clock_->Now();
      last_turn_ns_.store(absl::ToUnixNanos(now), std::memory_order_relaxed);
      const absl::Time wake = turn(now);
      turns_.fetch_add(1, std::memory_order_relaxed);
      const absl::Duration wait = std::min(wake - clock_->Now(), kQuietMax);
      if (wait > absl::ZeroDuration()) bell_.Wait(wait);
    }
  }

  const Clock* const clock_;
  Bell bell_;
  std::atomic<uint64_t> turns_{0};
  std::atomic<int64_t> last_turn_ns_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace baton::server
