// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Many random clusters, each from one seed.
//
// SEED=n replays one; SEEDS=n and FIRST=n choose how many, and from where.  A failing seed
// is printed with its violations and the last lines of its log; an assertion that fails
// inside the code prints them as well.
#include "sim/swarm.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace baton::sim {
namespace {

constexpr uint64_t kSeeds = 300;

const Cluster* running = nullptr;
uint64_t running_seed = 0;

void OnAbort(int signal_number) {
  if (running != nullptr) {
    std::fprintf(stderr, "%s\nSEED=%llu aborted\n",
                 const_cast<Cluster*>(running)->log().Tail().c_str(),
                 static_cast<unsigned long long>(running_seed));
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

SwarmResult RunSeed(uint64_t seed) {
  auto swarm = std::make_unique<Swarm>(seed);
  running = &swarm->cluster();
  running_seed = seed;
  SwarmResult result = swarm->Run();
  running = nullptr;
  return result;
}

}  // namespace

TEST_CASE("random clusters under random faults keep every invariant", "[swarm]") {
  signal(SIGABRT, OnAbort);
  signal(SIGSEGV, OnAbort);
  const uint64_t one = Number("SEED", 0);
  const uint64_t first = one != 0 ? one : Number("FIRST", 1);
  const uint64_t seeds = one != 0 ? 1 : Number("SEEDS", kSeeds);
  uint64_t requests = 0, answered = 0, resumed = 0, pushed = 0, fallbacks = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const SwarmResult result = RunSeed(seed);
    if (!result.violations.empty()) {
      UNSCOPED_INFO("SEED=" << seed << "\n" << result.tail);
      for (const std::string& violation : result.violations) UNSCOPED_INFO(violation);
      CHECK(result.violations.empty());
    }
    requests += result.requests;
    answered += result.answered;
    resumed += result.resumed;
    pushed += result.pushed;
    fallbacks += result.fallbacks;
  }
  std::printf(
      "swarm: %llu seeds, %llu requests, %llu answered (%llu pushed, %llu by fallback, "
      "%llu resumed)\n",
      static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(requests),
      static_cast<unsigned long long>(answered), static_cast<unsigned long long>(pushed),
      static_cast<unsigned long long>(fallbacks), static_cast<unsigned long long>(resumed));
  // A swarm in which little succeeds tests little.
  if (one == 0) {
    CHECK(answered * 2 > requests);
    CHECK(pushed > 0);
    CHECK(fallbacks > 0);
    CHECK(resumed > 0);
  }
}

TEST_CASE("one seed writes the same log, byte for byte", "[swarm]") {
  for (const uint64_t seed : {3, 17, 99}) {
    const SwarmResult first = RunSeed(seed), second = RunSeed(seed);
    CHECK(first.lines == second.lines);
    CHECK(first.hash == second.hash);
    CHECK(first.tail == second.tail);
    CHECK(RunSeed(seed + 1).hash != first.hash);
  }
}

}  // namespace baton::sim
