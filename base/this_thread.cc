// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/this_thread.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace baton {
namespace {

constexpr uint64_t kShortTurnNs = 100'000;  // the kernel's minimum
constexpr uint64_t kUsualTurn = 0;

// struct sched_attr of the kernel, which libraries do not declare; its first version.
struct Attributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;  // of the usual policy: how long a turn is; ignored before 6.12
  uint64_t deadline;
  uint64_t period;
};

void Share(uint64_t turn_ns, int nice) {
  const pid_t self = 0;
  if (sched_getscheduler(self) != SCHED_OTHER) return;
  const int now = getpriority(PRIO_PROCESS, self);  // of this thread, on Linux
  Attributes wanted = {.size = sizeof wanted,
                       .policy = SCHED_OTHER,
                       .flags = 0,
                       .nice = std::max(nice, now),
                       .priority = 0,
                       .runtime = turn_ns,
                       .deadline = 0,
                       .period = 0};
  (void)syscall(SYS_sched_setattr, self, &wanted, 0);
}

}  // namespace

void NameThisThread(const char* name) { prctl(PR_SET_NAME, name, 0, 0, 0); }

void TakeShortTurns() { Share(kShortTurnNs, -20); }

void TakeUsualTurns(int nice) { Share(kUsualTurn, nice); }

}  // namespace baton
