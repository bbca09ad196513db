// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What happens in a run of the simulator, as plain data: a cluster, its clients, its faults.
//
// A plan decides everything that is chosen; what is left to chance within a run (delays, the
// order of equal moments) comes from cluster.seed.  So a plan replays exactly, can be printed,
// pasted into a scenario, and made smaller by leaving things out (sim/shrink.h).
//
// Text: one line per thing, fields that have their default left out:
//   cluster seed=7 prefill=2 path=B
//   run heal_at=3s
//   request at=10ms prompt=150 new=20 cancel_after=5ms
//   fault crash who=p0 at=12ms lasts=1s
//
// Thread: values.  Cost: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "sim/cluster.h"

namespace baton::sim {

struct PlannedRequest {
  absl::Duration at;     // since the load began
  uint32_t extends = 0;  // not 0: the conversation of this request (1: the plan's first) goes on
  Ask ask;
  bool operator==(const PlannedRequest&) const = default;
};

struct Fault {
  std::string kind;       // of AllFaults() (sim/faults.h)
  Party who, whom;        // the process, or the two ends of a link
  absl::Duration at;      // since the load began
  uint64_t at_event = 0;  // not 0: before this event since then, instead of `at`
  absl::Duration lasts;   // until it is undone, or the process is back
  uint32_t how = 0;       // which variant of the kind
  bool operator==(const Fault&) const = default;
};

struct Plan {
  ClusterOptions cluster;
  absl::Duration heal_at = absl::Seconds(7);  // faults stop; then everything must end well
  std::vector<PlannedRequest> requests;
  std::vector<Fault> faults;
};

std::string Print(const Plan& plan);
// INVALID_ARGUMENT names the line and the word that is wrong.
absl::StatusOr<Plan> ParsePlan(absl::string_view text);
// Whether the plan can be run at all; says what is wrong.
absl::Status CheckPlan(const Plan& plan);

}  // namespace baton::sim
