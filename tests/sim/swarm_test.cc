// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Many random clusters, each from one seed.
//
//   SEED=n          replays one
//   SEEDS=n FIRST=n how many, and from where
//   PLAN=file       runs the plan in a file instead
//   HASHES=1        prints the hash of each seed's log, to compare builds by
//   SHRINK=1        prints the smallest plan that still fails as the seed or plan does
// A failing seed is printed with its plan, its violations and the last lines of its log; an
// assertion that fails inside the code prints them as well.
#include "sim/swarm.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "sim/runner.h"
#include "sim/shrink.h"
#include "tests/sim/apart.h"

namespace baton::sim {
namespace {

constexpr uint64_t kSeeds = 300;

Runner* running = nullptr;
std::string running_name;

void OnAbort(int signal_number) {
  if (running != nullptr) {
    std::fprintf(stderr, "%s\n%s aborted\n", running->cluster().log().Tail().c_str(),
                 running_name.c_str());
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

uint64_t Number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

RunResult RunHere(const Plan& plan, const std::string& name) {
  Runner runner(plan);
  running = &runner;
  running_name = name;
  RunResult result = runner.Run();
  running = nullptr;
  return result;
}

RunResult RunSeed(uint64_t seed) { return RunHere(DrawPlan(seed), "SEED=" + std::to_string(seed)); }

void ShrinkAndPrint(const Plan& plan) {
  const Plan small = Shrink(plan, FailureApart);
  std::printf("shrunk; it fails with: %s\n%s", FailureApart(small).c_str(), Print(small).c_str());
}

// What happened to the clients that the violations name: the last lines of each of them.
std::string AboutInvolved(const Plan& plan, const RunResult& result) {
  constexpr size_t kAll = 1 << 20, kShown = 60;
  std::vector<ClientNumber> clients;
  for (const std::string& violation : result.violations) {
    const size_t at = violation.find("client ");
    if (at != std::string::npos) clients.push_back(std::strtoull(&violation[at + 7], nullptr, 10));
  }
  if (clients.empty()) return "";
  Runner again(plan);
  again.cluster().log().Keep(kAll);
  again.Run();
  return "of the clients involved:\n" + again.cluster().log().About(clients, kShown);
}

// Says how to get there again; false if nothing is wrong.
bool Report(const Plan& plan, const RunResult& result, const std::string& replay) {
  if (result.violations.empty()) return false;
  const std::string command = replay + " build/swarm_test 'random*'\n";
  UNSCOPED_INFO("replay: " << command << "shrink: SHRINK=1 " << command << Print(plan)
                           << result.tail << AboutInvolved(plan, result));
  for (const std::string& violation : result.violations) UNSCOPED_INFO(violation);
  CHECK(result.violations.empty());
  return true;
}

}  // namespace

TEST_CASE("random clusters under random faults keep every invariant", "[swarm]") {
  signal(SIGABRT, OnAbort);
  signal(SIGSEGV, OnAbort);
  if (const char* path = std::getenv("PLAN")) {
    std::ifstream file(path);
    const auto plan = ParsePlan(std::string(std::istreambuf_iterator<char>(file), {}));
    REQUIRE(plan.ok());
    if (Number("SHRINK", 0) != 0) return ShrinkAndPrint(*plan);
    Report(*plan, RunHere(*plan, path), std::string("PLAN=") + path);
    return;
  }
  const uint64_t one = Number("SEED", 0);
  const uint64_t first = one != 0 ? one : Number("FIRST", 1);
  const uint64_t seeds = one != 0 ? 1 : Number("SEEDS", kSeeds);
  if (one != 0 && Number("SHRINK", 0) != 0) return ShrinkAndPrint(DrawPlan(one));
  const bool hashes = Number("HASHES", 0) != 0;
  RunResult sum;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const RunResult result = RunSeed(seed);
    Report(DrawPlan(seed), result, "SEED=" + std::to_string(seed));
    if (hashes) {
      std::printf("seed %llu: log %016llx, %llu lines\n", static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(result.hash),
                  static_cast<unsigned long long>(result.lines));
    }
    sum.requests += result.requests;
    sum.answered += result.answered;
    sum.resumed += result.resumed;
    sum.pushed += result.pushed;
    sum.fallbacks += result.fallbacks;
  }
  std::printf(
      "swarm: %llu seeds, %u requests, %u answered (%u pushed, %u by fallback, %u resumed)\n",
      static_cast<unsigned long long>(seeds), sum.requests, sum.answered, sum.pushed, sum.fallbacks,
      sum.resumed);
  // A swarm in which little succeeds tests little.
  if (seeds >= kSeeds) {
    CHECK(sum.answered * 2 > sum.requests);
    CHECK(sum.pushed > 0);
    CHECK(sum.fallbacks > 0);
    CHECK(sum.resumed > 0);
  }
}

TEST_CASE("one seed writes the same log, byte for byte", "[swarm]") {
  for (const uint64_t seed : {3, 17, 99}) {
    const RunResult first = RunSeed(seed), second = RunSeed(seed);
    CHECK(first.lines == second.lines);
    CHECK(first.hash == second.hash);
    CHECK(first.tail == second.tail);
    CHECK(RunSeed(seed + 1).hash != first.hash);
  }
}

}  // namespace baton::sim
