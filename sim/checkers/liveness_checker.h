// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Liveness: once faults stop, every request ends, and nothing stays owned.
//
// A request that times out although no fault was there in the last kAnswerMax of its life, nor in
// the time that the run's load takes by itself, waited for something that did not come. kRequestMax
// after the last fault every request that is not newer is over, or its own deadline comes first;
// kOwnedMax after that, every block is free or cached, and no attempt, stream, grant or write is
// left.  Without any fault nothing fails at all: every request that was not rejected, cancelled or
// given too little time is answered, by its first attempt or one after a refusal.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "router/dispatcher.h"
#include "sim/event_log.h"

namespace baton::sim {

class LivenessChecker {
 public:
  static constexpr absl::Duration kAnswerMax = absl::Seconds(15);
  static constexpr absl::Duration kRequestMax = absl::Seconds(70);
  static constexpr absl::Duration kOwnedMax = absl::Seconds(20);

  explicit LivenessChecker(EventLog& log) : log_(log) {}

  // From now on, and for the whole run if it is said at its start, nothing fails.
  void ExpectNoFaults() { no_faults_ = true; }

  // `load`: what all the run's requests take at least.
  void FaultsStop(absl::Time now, absl::Duration load) {
    healed_ = now;
    load_ = load;
  }

  void Over(const router::Over& over);
  // Of a front end, now: without faults no attempt fails.
  void Attempts(const std::string& frontend, const router::Snapshot& snapshot);
  // A request that is not over although kRequestMax passed.
  void Unanswered(uint64_t client);
  // What is still owned although kOwnedMax passed since the last request ended.
  void Owned(const std::string& what);

 private:
  EventLog& log_;
  bool no_faults_ = false;
  absl::Time healed_ = absl::InfiniteFuture();
  absl::Duration load_;
};

}  // namespace baton::sim
