// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A random cluster under random load and random faults, all from one seed.
//
// Two phases, as FoundationDB's tests have: safety while faults happen, liveness after they
// stop.  In the first, requests arrive, are cancelled or completed, and processes crash, stop,
// wedge, drain and restart while links and calls break, are cut or held.  Then everything is
// healed: every request must end, nobody may own anything, and new requests must be answered.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster.h"

namespace baton::sim {

struct SwarmResult {
  uint64_t seed = 0;
  std::vector<std::string> violations;
  std::string tail;   // the last lines of the log
  uint64_t hash = 0;  // of the whole log
  uint64_t lines = 0;
  uint32_t requests = 0;
  uint32_t answered = 0;   // with a complete answer
  uint32_t resumed = 0;    // of them, after a resume
  uint32_t pushed = 0;     // of them, by the disaggregated path
  uint32_t fallbacks = 0;  // of them
};

// The cluster of a seed; a tenth of the seeds have no faults, and then every request that was
// not rejected, cancelled or given too little time is answered.
class Swarm {
 public:
  explicit Swarm(uint64_t seed);
  SwarmResult Run();
  Cluster& cluster() { return cluster_; }

 private:
  Swarm(uint64_t seed, Random random);
  void ScheduleLoad();
  void ScheduleFaults();
  void Fault();
  void FaultOfWorker(WorkerProcess& worker, uint64_t kind);
  void FaultOfFrontend(FrontendProcess& frontend);
  void FaultOfLink();
  void FaultOfCalls();
  void RestartWhenGone(WorkerProcess& worker, size_t life, absl::Duration pause);
  void Heal();
  void Probe();
  absl::Duration Upto(absl::Duration max) { return max * random_.Unit(); }
  WorkerProcess& AnyWorker();

  const uint64_t seed_;
  Random random_;
  Cluster cluster_;
  bool faults_ = false;
};

}  // namespace baton::sim
