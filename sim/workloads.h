// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Clients to draw from, one entry each: what they ask, when, and how they behave.
//
// Thread: any; pure.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/random.h"
#include "sim/plan.h"

namespace baton::sim {

struct Workload {
  const char* name;
  void (*add)(std::vector<PlannedRequest>&, const ClusterOptions&, absl::Duration span, Random&);
};

absl::Span<const Workload> AllWorkloads();

}  // namespace baton::sim
