// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K9: every request ends exactly once, by its deadline at the latest, and then owns nothing.
//
// At a worker: an attempt ends by its back-stop and with its front end's lease, and none is given
// up without a cause.  At a front end: when a request is over, no stream of it is open any more.
// What clients are told (once, in time) is compared by the request checker.
// Cost: per tick one look at the worker's attempts, at most every 5 ms of virtual time.
#pragma once

#include "sim/checkers/k5_bounds.h"
#include "sim/checkers/streams.h"
#include "sim/event_log.h"

namespace baton::sim {

class K9Ending {
 public:
  explicit K9Ending(EventLog& log) : log_(log) {}

  // After a tick at `now`, its outputs entered.
  void Ticked(const WorkerFacts& worker, absl::Time now);
  // Whoever drains takes nothing new, and is done with the rest in time.
  void Drains(const WorkerFacts& worker, absl::Time now, const K5Bounds::Limits& limits);
  // Every Revoke has its answer by the end of the tick that took it in.
  void Answered(const WorkerFacts& worker);
  // No grant stays open whose writer failed, or has no link any more.
  void LetGo(const WorkerFacts& worker, const Book& book);
  // A drained worker leaves.
  void Leaves(const WorkerFacts& worker);
  // A worker gives an attempt up; before it is entered.
  void Ended(const WorkerFacts& worker, const StreamFacts& stream, const baton::Ended& ended,
             absl::Time now);

 private:
  EventLog& log_;
};

}  // namespace baton::sim
