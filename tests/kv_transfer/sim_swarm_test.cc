// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Many seeds of kv_swarm.h.  SEED=n replays one run; SEEDS=n chooses how many.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/kv_transfer/kv_swarm.h"

namespace baton::sim {
namespace {

TEST_CASE("whatever fails, no late byte is read and everything ends", "[sim][kv]") {
  uint64_t first = 1, last = 100;
  if (const char* seeds = std::getenv("SEEDS")) last = std::strtoull(seeds, nullptr, 10);
  const char* one = std::getenv("SEED");
  if (one != nullptr) first = last = std::strtoull(one, nullptr, 10);
  uint64_t commits = 0, quiets = 0, reborn = 0, dead = 0, damaged = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    KvSwarm swarm(seed);
    swarm.Run();
    if (!swarm.violations().empty()) {
      UNSCOPED_INFO("replay with SEED=" << seed << "\n" << swarm.log().Tail());
      for (const std::string& violation : swarm.violations()) UNSCOPED_INFO(violation);
      CHECK(swarm.violations().empty());
    }
    commits += swarm.commits;
    quiets += swarm.quiets;
    reborn += swarm.reborn;
    dead += swarm.dead;
    damaged += swarm.damaged;
  }
  INFO(commits << " commits, " << quiets << " quiets, " << dead << " dead, " << reborn
               << " reborn, " << damaged << " damaged");
  CHECK(commits > 0);
  if (last - first < 39) return;  // few seeds need not meet everything
  CHECK(quiets > 1000);
  CHECK(dead > 100);
  CHECK(reborn > 50);
  CHECK(damaged > 50);
}

}  // namespace
}  // namespace baton::sim
