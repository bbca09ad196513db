// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Carries out a plan and says what came of it.
//
// Two phases, as FoundationDB's tests have: safety while faults happen, liveness after they
// stop.  In the first the plan's requests arrive and its faults happen.  At plan.heal_at
// everything is healed: every request must end, nobody may own anything, and new requests
// must be answered by every front end on every path.
//
// Thread: one.  Cost: some milliseconds a run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster.h"
#include "sim/plan.h"

namespace baton::sim {

struct RunResult {
  std::vector<std::string> violations;
  std::string tail;   // the last lines of the log
  uint64_t hash = 0;  // of the whole log
  uint64_t lines = 0;
  uint32_t requests = 0;
  uint32_t answered = 0;                    // with a complete answer
  uint32_t resumed = 0;                     // of them, after a resume
  uint32_t pushed = 0;                      // of them, by the disaggregated path
  uint32_t fallbacks = 0;                   // of them
  std::vector<absl::Duration> fault_times;  // when each fault of the plan happened
};

class Runner {
 public:
  explicit Runner(const Plan& plan) : plan_(plan), cluster_(plan.cluster) {}
  RunResult Run();
  Cluster& cluster() { return cluster_; }

 private:
  void Schedule();
  void Submit(size_t request);
  bool Answered(const Ask& ask);
  void Probe();
  RunResult Result();

  const Plan plan_;
  Cluster cluster_;
  std::vector<absl::Duration> fault_times_;
  std::vector<const Reply*> replies_;  // of the plan's requests; nullptr: not yet
};

}  // namespace baton::sim
