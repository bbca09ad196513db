// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Metrics agree with the state: what a process reports of itself is what it was seen doing.
//
// A decode's blocks by state add up to its pool, its reserved and quarantined ones are those of
// the book; waiting, landing and running are its open streams; totals are what was heard and
// said.  Likewise a prefill's and a front end's.  Every difference is named with both values.
// Cost: a copy of the process's numbers; the hub asks every some hundred ticks and at the end.
#pragma once

#include "decode_worker/decode_worker.h"
#include "prefill_worker/prefill_worker.h"
#include "router/dispatcher.h"
#include "sim/checkers/attempts_checker.h"
#include "sim/checkers/streams.h"
#include "sim/event_log.h"

namespace baton::sim {

class MetricsChecker {
 public:
  MetricsChecker(const Book& book, EventLog& log) : book_(book), log_(log) {}

  // What the transports of a life did, entered by the hub.
  struct Moved {
    uint64_t pushes = 0;  // Commits that arrived, or were sent
    uint64_t blocks = 0;
    uint64_t bytes = 0;
  };

  void Check(const WorkerFacts& worker, const decode::Metrics& metrics, const Moved& moved);
  void Check(const WorkerFacts& worker, const prefill::Metrics& metrics, const Moved& moved);
  void Check(const std::string& frontend, const AttemptsChecker& seen,
             const router::Snapshot& snapshot);
  void Equal(const std::string& who, const char* what, uint64_t said, uint64_t seen);

 private:
  const Book& book_;
  EventLog& log_;
};

}  // namespace baton::sim
