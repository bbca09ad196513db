// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/stop_matcher.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

// The state after `byte` in state `matched` of the automaton of `stop`.
uint32_t Advance(const std::string& stop, const std::vector<uint32_t>& fallback, uint32_t matched,
                 char byte) {
  while (matched > 0 && stop[matched] != byte) matched = fallback[matched - 1];
  return stop[matched] == byte ? matched + 1 : 0;
}

}  // namespace

absl::Status StopMatcher::Check(absl::Span<const std::string> stops) {
  if (stops.size() > kStopsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop: ", stops.size(), " strings; ", kStopsMax, " are the most"));
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return absl::InvalidArgumentError("stop: an empty string");
    if (stop.size() > kStopBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat("stop: a string of ", stop.size(), " bytes; ",
                                                     kStopBytesMax, " are the most"));
    }
    if (FirstInvalidUtf8(stop).has_value()) {
      return absl::InvalidArgumentError("stop: a string that is not UTF-8");
    }
  }
  return absl::OkStatus();
}

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  ENSURE(Check(stops).ok());
  for (std::string& stop : stops) {
    Automaton automaton;
    automaton.fallback.push_back(0);
    for (size_t i = 1; i < stop.size(); ++i) {
      const uint32_t border = automaton.fallback.back();
      automaton.fallback.push_back(Advance(stop, automaton.fallback, border, stop[i]));
    }
    automaton.stop = std::move(stop);
    automata_.push_back(std::move(automaton));
  }
}

std::optional<StopMatcher::Match> StopMatcher::Push(absl::string_view text) {
  if (automata_.empty()) return std::nullopt;
  for (size_t at = 0; at < text.size(); ++at) {
    size_t longest = 0;
    for (Automaton& automaton : automata_) {
      automaton.matched = Advance(automaton.stop, automaton.fallback, automaton.matched, text[at]);
      if (automaton.matched == automaton.stop.size()) {
        longest = std::max(longest, automaton.stop.size());
      }
    }
    if (longest > 0) return Match{at + 1, longest};
  }
  return std::nullopt;
}

size_t StopMatcher::held() const {
  size_t longest = 0;
  for (const Automaton& automaton : automata_) {
    longest = std::max<size_t>(longest, automaton.matched);
  }
  return longest;
}

}  // namespace baton::text
