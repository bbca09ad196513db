// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Finds the first of some stop strings in a text that arrives in parts, wherever the parts
// are cut, and says how much of the text must wait because it may be the start of one.
//
// The earliest end wins; of stops that end together, the longest.  One automaton per stop
// string; amortised work is stops × characters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace baton::text {

inline constexpr size_t kStopsMax = 16;
inline constexpr size_t kStopBytesMax = 1024;

class StopMatcher {
 public:
  // InvalidArgument: too many, too long, empty, or not UTF-8.
  static absl::Status Check(absl::Span<const std::string> stops);

  // REQUIRES: Check(stops) is OK.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Match {
    size_t end;   // offset in the text of this call, behind the stop string
    size_t size;  // of the stop string; may reach back before this call's text
  };
  // REQUIRES: no match was returned before.
  std::optional<Match> Push(absl::string_view text);

  // Length of the longest end of all text so far that is a proper start of a stop string.
  size_t held() const;

 private:
  struct Automaton {
    std::string stop;
    std::vector<uint32_t> fallback;  // [i]: longest proper border of stop[0, i]
    uint32_t matched = 0;
  };
  std::vector<Automaton> automata_;
};

}  // namespace baton::text
