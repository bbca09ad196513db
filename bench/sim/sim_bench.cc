// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How many requests a second of wall time the simulator lives through, checkers on.
//
// The cluster: one front end, 2 prefill, 2 decode; prompts of 1 to 64 tokens, half of them pushed,
// 16 output tokens.  One thread.  Goal: 4,000 requests a second.
// Not measured: faults, and the time to draw a plan.
//
//   sim_bench [REQUESTS]     default 20000
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "absl/time/clock.h"
#include "sim/cluster.h"

namespace baton::sim {
namespace {

ClusterOptions Options() {
  ClusterOptions options;
  options.prefill = options.decode = 2;
  options.prefill_blocks = options.decode_blocks = 400;
  return options;
}

// Closed loop: so many are always open.
constexpr uint64_t kOpen = 32;

int Main(uint64_t requests) {
  Cluster cluster(Options());
  if (!cluster.Ready()) return 1;
  Random random(7);
  const absl::Time begin = absl::Now();
  uint64_t asked = 0, first_open = 0;
  while (first_open < requests) {
    while (asked < requests && asked - first_open < kOpen) {
      cluster.Submit(
          {.prompt_tokens = static_cast<uint32_t>(random.Between(1, 64)), .new_tokens = 16});
      ++asked;
    }
    const Reply& oldest = cluster.replies()[first_open];
    if (!cluster.Until([&] { return oldest.done(); })) return 1;
    ++first_open;
  }
  cluster.Settle();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  uint64_t answered = 0, pushed = 0;
  for (const Reply& reply : cluster.replies()) {
    answered += reply.ok();
    pushed += reply.ok() && reply.over->path == router::Path::kDisaggregated;
  }
  const auto count = static_cast<double>(requests);
  std::printf("{\"requests\": %" PRIu64 ", \"answered\": %" PRIu64 ", \"pushed\": %" PRIu64
              ", \"requests_per_s\": %.0f, \"events_per_request\": %.0f, "
              "\"us_per_event\": %.2f, \"log_hash\": \"%016" PRIx64 "\"}\n",
              requests, answered, pushed, count / seconds,
              static_cast<double>(cluster.queue().executed()) / count,
              seconds * 1e6 / static_cast<double>(cluster.queue().executed()),
              cluster.log().hash());
  return cluster.violations().empty() && answered == requests ? 0 : 1;
}

}  // namespace
}  // namespace baton::sim

int main(int argc, char** argv) {
  return baton::sim::Main(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20000);
}
