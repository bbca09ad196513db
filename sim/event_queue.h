// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Virtual time: what happens next, and when.
//
// Events of one moment run in the order in which they were added, so that a run
// depends on its seed and on nothing else.  It is also the Clock of everything simulated.
//
// Thread:     one.
// Ownership:  an event owns what it captured; what it refers to must outlive it.
// Cost:       log(pending) per event; no allocation once it has grown, but for what does not
//             fit into the Action itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

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
    uint32_t slot = 0;
    if (free_.empty()) {
      slot = static_cast<uint32_t>(actions_.size());
      actions_.push_back(std::move(action));
    } else {
      slot = free_.back();
      free_.pop_back();
      actions_[slot] = std::move(action);
    }
    heap_.push_back({when, ++last_, slot});
    std::push_heap(heap_.begin(), heap_.end(), Later);
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
    if (heap_.empty()) return false;
    ++executed_;
    while (!hooks_.empty() && hooks_.begin()->first <= executed_) {
      Action hook = std::move(hooks_.begin()->second);
      hooks_.erase(hooks_.begin());
      hook();
    }
    const Entry first = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    heap_.pop_back();
    now_ = first.when;
    Action action = std::move(actions_[first.slot]);
    actions_[first.slot] = nullptr;
    free_.push_back(first.slot);
    action();
    return true;
  }
  // Runs everything up to and including `end`; then it is `end`.
  void RunUntil(absl::Time end) {
    while (next() <= end) RunNext();
    ENSURE(end >= now_);
    now_ = end;
  }
  void RunFor(absl::Duration span) { RunUntil(now_ + span); }
  // Until `done` says so; false if `limit` came first.
  template <typename Done>
  bool RunUntilDone(Done done, absl::Duration limit) {
    const absl::Time end = now_ + limit;
    while (!done()) {
      if (heap_.empty() || next() > end) return false;
      RunNext();
    }
    return true;
  }

  absl::Time next() const { return heap_.empty() ? absl::InfiniteFuture() : heap_.front().when; }
  size_t pending() const { return heap_.size(); }

 private:
  struct Entry {
    absl::Time when;
    uint64_t number = 0;
    uint32_t slot = 0;  // of its action
  };
  static bool Later(const Entry& a, const Entry& b) {
    return a.when != b.when ? a.when > b.when : a.number > b.number;
  }

  absl::Time now_ = absl::UnixEpoch();
  uint64_t last_ = 0;
  uint64_t executed_ = 0;
  std::vector<Entry> heap_;
  std::vector<Action> actions_;
  std::vector<uint32_t> free_;  // slots
  absl::btree_multimap<uint64_t, Action> hooks_;
};

}  // namespace baton::sim
