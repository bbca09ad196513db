// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What happened in a run, line by line, and what should not have happened.
//
// Two runs of one seed write the same bytes; `hash` covers all of them although only the last
// lines are kept.  Lines are kept as the values they were made of and become text when someone
// reads them.  A violation is a line as well: the checkers add them, tests ask for none.
//
// A line may be about a client.  Workers know requests by other names; they find the client of
// a sequence by its sampling seed and choice, which no two clients share.
//
// Thread: one.  Bounds: lines_max lines.  Cost: a line is some copies into a reused buffer.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/messages.h"
#include "sim/event_queue.h"

namespace baton::sim {

using ClientNumber = uint64_t;  // 0: none

// The values of one line.
class LogLine {
 public:
  void Clear() { bytes_.clear(); }
  void Add(absl::string_view text);
  void Add(const char* text) { Add(absl::string_view(text)); }
  void Add(const std::string& text) { Add(absl::string_view(text)); }
  void Add(std::integral auto number) { AddNumber(static_cast<uint64_t>(number)); }
  void Add(const WorkerInput& input);
  void Add(const WorkerOutput& output);

  absl::string_view bytes() const { return bytes_; }
  std::string Text() const;

 private:
  void AddNumber(uint64_t number);
  std::string bytes_;  // per value: its kind, then itself
};

class EventLog {
 public:
  explicit EventLog(const EventQueue& queue, size_t lines_max = 120)
      : queue_(queue), lines_(lines_max) {}

  template <typename... Parts>
  void Add(absl::string_view who, const Parts&... parts) {
    AddAbout(0, who, parts...);
  }
  template <typename... Parts>
  void AddAbout(ClientNumber client, absl::string_view who, const Parts&... parts) {
    Line& line = Next(client);
    line.values.Add(who);
    line.values.Add(" ");
    (line.values.Add(parts), ...);
    Close(line);
  }
  template <typename... Parts>
  void Violation(const Parts&... parts) {
    violations_.push_back(absl::StrCat(parts...));
    Add("VIOLATION", violations_.back());
  }

  absl::Time now() const { return queue_.Now(); }
  // Whose sequence it is; 0: nobody's that is known.
  void SetClient(const Sequence& sequence, ClientNumber client) {
    clients_[{sequence.sampling.seed, sequence.sampling.choice}] = client;
  }
  ClientNumber ClientOf(const Sequence& sequence) const;

  const std::vector<std::string>& violations() const { return violations_; }
  uint64_t hash() const { return hash_; }  // of every line so far
  uint64_t count() const { return count_; }
  // Later lines; what was kept is forgotten.
  void Keep(size_t lines_max);
  std::string Tail() const;
  // The last `count` lines that are about one of these.
  std::string About(const std::vector<ClientNumber>& clients, size_t count) const;

 private:
  struct Line {
    absl::Time when;
    ClientNumber client = 0;
    LogLine values;
  };
  Line& Next(ClientNumber client);
  void Close(const Line& line);
  std::string Text(const Line& line) const;

  const EventQueue& queue_;
  std::vector<Line> lines_;  // a ring
  std::vector<std::string> violations_;
  absl::btree_map<std::pair<uint64_t, uint32_t>, ClientNumber> clients_;
  uint64_t hash_ = 0;
  uint64_t count_ = 0;
  uint64_t kept_from_ = 0;
};

}  // namespace baton::sim
