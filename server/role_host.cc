// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/role_host.h"

#include <signal.h>
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "server/command_line.h"

namespace baton::server {
namespace {

constexpr absl::Duration kPoll = absl::Milliseconds(50);
// Above the workers' own drain limit, which hands back what is left.
constexpr absl::Duration kDrainMargin = absl::Seconds(2);

sigset_t WaitedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) sigaddset(&set, number);
  return set;
}

}  // namespace

void BlockSignals() {
  const sigset_t set = WaitedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int WaitForSignal(absl::Duration timeout) {
  const sigset_t set = WaitedSignals();
  const timespec time = absl::ToTimespec(timeout);
  const int number = sigtimedwait(&set, nullptr, &time);
  return number < 0 ? 0 : number;
}

int HostRole(RoleProcess& role, absl::Duration drain_max, const std::function<void()>& reload) {
  const RealClock clock;
  bool draining = false;
  bool was_ready = false;
  absl::Time drain_end = absl::InfiniteFuture();
  while (true) {
    const int number = WaitForSignal(kPoll);
    if (number == SIGTERM || number == SIGINT) {
      if (draining) _exit(128 + number);
      draining = true;
      drain_end = clock.Now() + drain_max + kDrainMargin;
      LogInfo("draining", {{"limit_ms", absl::ToInt64Milliseconds(drain_max)}});
      role.StartDrain();
    } else if (number == SIGHUP) {
      reload();
    }
    if (const absl::Status status = role.Poll(); !status.ok()) return Fail(status);
    if (role.ready() && !std::exchange(was_ready, true)) LogInfo("ready", {{"pid", getpid()}});
    if (draining && role.drained()) return kExitOk;
    if (clock.Now() >= drain_end) {
      LogWarn("the drain's limit passed; what is left ends now");
      return kExitOk;
    }
  }
}

}  // namespace baton::server
