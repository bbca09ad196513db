// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/swarm.h"

#include "base/random.h"
#include "sim/faults.h"
#include "sim/topologies.h"
#include "sim/workloads.h"

namespace baton::sim {
namespace {

constexpr absl::Duration kFaultPhase = absl::Seconds(6);
constexpr absl::Duration kLoadPhase = absl::Seconds(5);
constexpr uint64_t kEventMax = 20000;  // of a run's first seconds

void DrawRequests(Plan& plan, Random& random) {
  const auto all = AllWorkloads();
  const uint64_t kinds = random.Between(1, 2);
  for (uint64_t i = 0; i < kinds; ++i) {
    all[random.Below(all.size())].add(plan.requests, plan.cluster, kLoadPhase, random);
  }
}

void DrawFaults(Plan& plan, Random& random) {
  std::vector<const FaultKind*> kinds;
  const double common = random.Chance(0.3) ? 1 : 0.35;
  for (const FaultKind& kind : AllFaults()) {
    if (!kind.apart && random.Chance(common)) kinds.push_back(&kind);
  }
  if (kinds.empty()) return;
  const uint64_t count = random.Between(1, 10);
  for (uint64_t i = 0; i < count; ++i) {
    const FaultKind& kind = *kinds[random.Below(kinds.size())];
    Fault& fault = plan.faults.emplace_back(DrawFault(kind, plan.cluster, kFaultPhase, random));
    // At any event: where much happens there are many of them.
    if (random.Chance(0.4)) fault.at_event = random.Between(1, kEventMax);
  }
}

// By chance of their own: the rest of a plan does not depend on them.
void DrawApart(Plan& plan, Random random) {
  for (const FaultKind& kind : AllFaults()) {
    if (!kind.apart || !random.Chance(0.3)) continue;
    const uint64_t count = random.Between(1, 4);
    for (uint64_t i = 0; i < count; ++i) {
      plan.faults.push_back(DrawFault(kind, plan.cluster, kFaultPhase, random));
    }
  }
}

// Where nothing damages bytes it may be that not every push has sums.
void DrawChecks(Plan& plan, Random random) {
  for (const Fault& fault : plan.faults) {
    if (fault.kind == "damage_link") return;
  }
  if (random.Chance(0.2)) plan.cluster.check_one_in = static_cast<uint32_t>(random.Below(4));
}

}  // namespace

Plan DrawPlan(uint64_t seed) {
  Random random(SplitMix64(seed ^ 0x5eed));
  Plan plan;
  plan.cluster = DrawCluster(seed, random);
  DrawRequests(plan, random);
  if (random.Chance(0.9)) DrawFaults(plan, random);
  if (!plan.faults.empty()) DrawApart(plan, Random(SplitMix64(seed ^ 0xa9a27)));
  DrawChecks(plan, Random(SplitMix64(seed ^ 0xc4c)));
  return plan;
}

}  // namespace baton::sim
