// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Runs seeds until a checker finds something, and says which checker and which seed.
//
//   hunt SEEDS [FIRST]     whole clusters and kv_transfer's swarm, by turns
//
// Each seed runs in a process of its own, so that one that aborts ends nothing else.  A checker
// that found something before the abort counts; an ENSURE alone is remembered, and the hunt goes
// on for kMore seeds for a checker that sees the fault from outside.
// Prints "NAME KIND SEED": K2 swarm 17, ENSURE kv 3, hang swarm 5; nothing if all seeds pass.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_split.h"
#include "base/ensure.h"
#include "sim/runner.h"
#include "sim/swarm.h"
#include "tests/kv_transfer/kv_swarm.h"
#include "tests/sim/apart.h"

namespace baton::sim {
namespace {

constexpr uint64_t kMore = 150;
constexpr unsigned kSecondsMax = 60;

const std::vector<std::string>* running = nullptr;
int result_pipe = -1;

// The checker's name: what stands before the first colon.
void Tell() {
  if (running == nullptr || running->empty()) return;
  const std::string& violation = running->front();
  const std::string line = "CHECKER " + violation.substr(0, violation.find(':')) + "\n";
  if (write(result_pipe, line.data(), line.size()) < 0) _exit(3);
}

void OnAbort(int signal_number) {
  Tell();
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

void RunSeed(bool kv, uint64_t seed) {
  for (const int caught : {SIGABRT, SIGSEGV}) signal(caught, OnAbort);
  alarm(kSecondsMax);
  if (kv) {
    KvSwarm swarm(seed);
    running = &swarm.violations();
    swarm.Run();
    Tell();
  } else {
    Runner runner(DrawPlan(seed));
    running = &runner.cluster().violations();
    runner.Run();
    Tell();
  }
}

// "" if nothing is wrong.
std::string Hunt(bool kv, uint64_t seed) {
  const ChildEnd end = RunApart([&](int out) {
    result_pipe = out;
    ENSURE(freopen("/dev/null", "w", stderr) != nullptr);
    RunSeed(kv, seed);
  });
  if (!end.said.empty()) return end.said.substr(8, end.said.find('\n') - 8);
  if (!WIFSIGNALED(end.status)) return "";
  return WTERMSIG(end.status) == SIGALRM ? "hang" : "ENSURE";
}

}  // namespace
}  // namespace baton::sim

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const uint64_t seeds = std::strtoull(argv[1], nullptr, 10);
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::string ensure;
  uint64_t last = first + seeds;
  for (uint64_t seed = first; seed < last; ++seed) {
    for (const bool kv : {false, true}) {
      if (kv && seed % 4 != 0) continue;  // they are dearer
      const std::string found = baton::sim::Hunt(kv, kv ? seed / 4 : seed);
      if (found.empty()) continue;
      const std::string line =
          found + (kv ? " kv " : " swarm ") + std::to_string(kv ? seed / 4 : seed);
      if (found != "ENSURE") {
        std::printf("%s\n", line.c_str());
        return 0;
      }
      if (!ensure.empty()) continue;
      ensure = line;
      last = std::min(last, seed + baton::sim::kMore);
    }
  }
  if (!ensure.empty()) std::printf("%s\n", ensure.c_str());
  return 0;
}
