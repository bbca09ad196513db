// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/workloads.h"

namespace baton::sim {
namespace {

using Requests = std::vector<PlannedRequest>;

uint32_t Number(Random& random, uint64_t low, uint64_t high) {
  return static_cast<uint32_t>(random.Between(low, high));
}
absl::Duration Upto(absl::Duration max, Random& random) {
  return absl::Microseconds(random.Below(absl::ToInt64Microseconds(max) + 1));
}

// Any request at any moment.
void Mixed(Requests& requests, const ClusterOptions& cluster, absl::Duration span, Random& random) {
  const uint64_t count = random.Between(3, 30);
  const uint64_t prompt_max = random.Between(20, 250);
  // Long answers are there when a fault comes; short ones are many.
  const uint64_t new_tokens_max = random.Chance(0.4) ? 250 : 40;
  for (uint64_t i = 0; i < count; ++i) {
    PlannedRequest& request = requests.emplace_back();
    request.at = Upto(span, random);
    Ask& ask = request.ask;
    ask.prompt_tokens = Number(random, 1, prompt_max);
    ask.new_tokens = Number(random, 1, new_tokens_max);
    ask.frontend = Number(random, 0, cluster.frontends - 1);
    if (random.Chance(0.5)) ask.content = random.Between(1, 3);
    if (random.Chance(0.3)) ask.temperature = 0;
    ask.deadline = absl::Milliseconds(random.Between(500, 40000));
    while (random.Chance(0.8) && ask.stop_ids < 20) ++ask.stop_ids;
    const bool cancelled = random.Chance(0.15), completed = random.Chance(0.1);
    if (cancelled) {
      ask.cancel_after = Upto(absl::Milliseconds(500), random);
    } else if (completed) {
      ask.complete_at = Number(random, 1, 20);
    }
  }
}

constexpr Workload kWorkloads[] = {
    {"mixed", Mixed},
};

}  // namespace

absl::Span<const Workload> AllWorkloads() { return kWorkloads; }

}  // namespace baton::sim
