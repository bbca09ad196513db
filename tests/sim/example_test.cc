// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The scenario that docs/testing.md shows; tests/tidy compares the two.
#include <catch2/catch.hpp>

#include "sim/cluster.h"

namespace baton::sim {

TEST_CASE("a scenario in ten lines: a prefill dies while it pushes", "[sim]") {
  ClusterOptions options;
  options.prefill = 2;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 150, .new_tokens = 10});
  cluster.Until([&] { return cluster.fabric().writes_out() > 0; });
  cluster.prefill(cluster.prefill(0).Status().attempts > 0 ? 0 : 1).Crash();
  cluster.Settle();
  CHECK(reply.tokens == cluster.Expected(reply));
  CHECK(cluster.violations().empty());
}

}  // namespace baton::sim
