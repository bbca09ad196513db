// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A process's loop in virtual time: ticks when rung, or when it said it wants to.
//
// The loop of production: tick until there is nothing to do, then wait for the bell or the
// next wake-up.  Each tick is an event of its own and takes a little time, so that whatever
// else happens may happen between two of them.  A stopped loop (SIGSTOP) remembers that it
// was rung.  A killed one never ticks again; it must outlive the queue's events, so whoever
// kills it keeps it.  Thread: one.  Cost: one event per tick.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "sim/event_queue.h"

namespace baton::sim {

class RoleLoop {
 public:
  // `tick` does one tick and says whether anything happened; `next_wake` when to tick at the
  // latest.  Both are called from events of `queue` until the loop is killed.
  RoleLoop(EventQueue& queue, Random& random, absl::AnyInvocable<bool()> tick,
           absl::AnyInvocable<absl::Time()> next_wake);

  void Ring() { TickAt(queue_.Now() + Moment()); }
  void SetStopped(bool stopped);
  // Each tick comes late, by up to this.
  void SetSlow(absl::Duration late_max) { late_max_ = late_max; }
  bool stopped() const { return stopped_; }
  void Kill() { dead_ = true; }

 private:
  absl::Duration Moment() {
    return absl::Microseconds(random_.Between(1, 30 + absl::ToInt64Microseconds(late_max_)));
  }
  void TickAt(absl::Time when);
  void Run();

  EventQueue& queue_;
  Random& random_;
  absl::AnyInvocable<bool()> tick_;
  absl::AnyInvocable<absl::Time()> next_wake_;
  absl::Time due_ = absl::InfiniteFuture();  // of the tick that counts; others are ignored
  absl::Duration late_max_;
  bool stopped_ = false;
  bool missed_ = false;  // a tick fell into the stop
  bool dead_ = false;
};

}  // namespace baton::sim
