// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/role_loop.h"

#include <algorithm>

namespace baton::sim {

RoleLoop::RoleLoop(EventQueue& queue, Random& random, absl::AnyInvocable<bool()> tick,
                   absl::AnyInvocable<absl::Time()> next_wake)
    : queue_(queue), random_(random), tick_(std::move(tick)), next_wake_(std::move(next_wake)) {}

void RoleLoop::SetStopped(bool stopped) {
  stopped_ = stopped;
  if (!stopped && std::exchange(missed_, false)) Ring();
}

void RoleLoop::TickAt(absl::Time when) {
  if (dead_ || when >= due_) return;
  due_ = when;
  queue_.At(when, [this, when] {
    if (due_ == when) Run();
  });
}

void RoleLoop::Run() {
  due_ = absl::InfiniteFuture();
  if (dead_) return;
  if (stopped_) {
    missed_ = true;
    return;
  }
  const bool worked = tick_();
  if (dead_) return;
  const absl::Time soon = queue_.Now() + Moment();
  if (worked) {
    TickAt(soon);
  } else if (const absl::Time wake = next_wake_(); wake < absl::InfiniteFuture()) {
    TickAt(std::max(wake, soon));
  }
}

}  // namespace baton::sim
