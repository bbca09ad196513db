// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What happened in a run, line by line, and what should not have happened.
//
// Two runs of one seed write the same bytes; `hash` covers all of them although only the last
// lines are kept.  A violation is a line as well: the checkers add them, tests ask for none.
// Thread: one.  Bounds: lines_max lines.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/messages.h"
#include "sim/event_queue.h"

namespace baton::sim {

class EventLog {
 public:
  explicit EventLog(const EventQueue& queue, size_t lines_max = 120)
      : queue_(queue), lines_max_(lines_max) {}

  template <typename... Parts>
  void Add(absl::string_view who, const Parts&... parts) {
    AddLine(absl::StrCat(who, " ", parts...));
  }
  template <typename... Parts>
  void Violation(const Parts&... parts) {
    violations_.push_back(absl::StrCat(parts...));
    AddLine(absl::StrCat("VIOLATION ", parts...));
  }

  absl::Time now() const { return queue_.Now(); }
  const std::vector<std::string>& violations() const { return violations_; }
  uint64_t hash() const { return hash_; }  // of every line so far
  uint64_t count() const { return count_; }
  std::string Tail() const;

 private:
  void AddLine(const std::string& text);

  const EventQueue& queue_;
  const size_t lines_max_;
  std::deque<std::string> lines_;
  std::vector<std::string> violations_;
  uint64_t hash_ = 0;
  uint64_t count_ = 0;
};

// Short words for the log.
std::string Describe(const WorkerInput& input);
std::string Describe(const WorkerOutput& output);

}  // namespace baton::sim
