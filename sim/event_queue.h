// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Virtual time: things that will happen, each at a moment, run one after another.
//
// Two events of the same moment run in the order in which they were added, so that a run
// depends on its seed and on nothing else.  It is also the Clock of everything simulated.
//
// Thread:     one.
// Ownership:  an event owns what it captured; what it refers to must outlive it.
// Cost:       log(pending) per event.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ensure.h"

namespace baton::sim {

class EventQueue final : public Clock {
 public:
  using Action = absl::AnyInvocable<void()>;

  absl::Time Now() const override { return now_; }

  void At(absl::Time when, Action action) {
    ENSURE(when >= now_);
    pending_.emplace(std::pair(when, ++last_), std::move(action));
  }
  void After(absl::Duration delay, Action action) { At(now_ + delay, std::move(action)); }

  // Runs `action` right before the event that is the `number`-th ever run.
  void BeforeEvent(uint64_t number, Action action) {
    ENSURE(number > executed_);
    hooks_.emplace(number, std::move(action));
  }
  uint64_t executed() const { return executed_; }  // events run so far

  // Runs the next event, having moved time to it; false if there is none.
  bool RunNext() {
    if (pending_.empty()) return false;
    ++executed_;
    while (!hooks_.empty() && hooks_.begin()->first <= executed_) {
      Action hook = std::move(hooks_.begin()->second);
      hooks_.erase(hooks_.begin());
      hook();
    }
    const auto first = pending_.begin();
    now_ = first->first.first;
    Action action = std::move(first->second);
    pending_.erase(first);
    action();
    return true;
  }
  // Runs everything up to and including `end`; then it is `end`.
  void RunUntil(absl::Time end) {
    while (!pending_.empty() && pending_.begin()->first.first <= end) RunNext();
    ENSURE(end >= now_);
    now_ = end;
  }
  void RunFor(absl::Duration span) { RunUntil(now_ + span); }
  // Until `done` says so; false if `limit` came first.
  template <typename Done>
  bool RunUntilDone(Done done, absl::Duration limit) {
    const absl::Time end = now_ + limit;
    while (!done()) {
      if (pending_.empty() || pending_.begin()->first.first > end) return false;
      RunNext();
    }
    return true;
  }

  absl::Time next() const {
    return pending_.empty() ? absl::InfiniteFuture() : pending_.begin()->first.first;
  }
  size_t pending() const { return pending_.size(); }

 private:
  absl::Time now_ = absl::UnixEpoch();
  uint64_t last_ = 0;
  uint64_t executed_ = 0;
  absl::btree_multimap<uint64_t, Action> hooks_;
  absl::btree_map<std::pair<absl::Time, uint64_t>, Action> pending_;
};

}  // namespace baton::sim
