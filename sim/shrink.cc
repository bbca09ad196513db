// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/shrink.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace baton::sim {
namespace {

using Lines = std::vector<std::string>;

// Smaller values than `text`, the boldest first.
std::vector<std::string> Smaller(absl::string_view text) {
  std::vector<std::string> smaller;
  uint64_t number = 0;
  absl::Duration span;
  if (absl::SimpleAtoi(text, &number)) {
    if (number > 2) smaller.push_back(absl::StrCat(number / 2));
    if (number > 1) smaller.push_back(absl::StrCat(number - 1));
  } else if (text.size() > 1 && absl::SimpleAtoi(text.substr(1), &number)) {  // a party
    if (number > 0) smaller.push_back(absl::StrCat(text.substr(0, 1), 0));
  } else if (absl::ParseDuration(text, &span) && span > absl::Milliseconds(1)) {
    const absl::Duration half = span / 2;
    const absl::Duration unit =
        half > absl::Milliseconds(20) ? absl::Milliseconds(10) : absl::Microseconds(1);
    smaller.push_back(absl::FormatDuration(absl::Floor(half, unit)));
    if (const absl::Duration round = absl::Floor(span, absl::Milliseconds(1)); round != span) {
      smaller.push_back(absl::FormatDuration(round));
    }
  }
  return smaller;
}

class Shrinker {
 public:
  Shrinker(const Plan& plan, FailureOf failure_of, uint32_t runs_max)
      : failure_of_(failure_of),
        runs_left_(runs_max),
        lines_(absl::StrSplit(Print(plan), '\n', absl::SkipEmpty())),
        wanted_(failure_of(plan)) {}

  Plan Run() {
    if (!wanted_.empty()) {
      do {
        progress_ = false;
        DropLines();
        EachWord([this](size_t line, size_t word) { return DropWord(line, word); });
        EachWord([this](size_t line, size_t word) { return ShrinkWord(line, word); });
      } while (progress_ && runs_left_ > 0);
    }
    return *ParsePlan(absl::StrJoin(lines_, "\n"));
  }

 private:
  bool Try(Lines lines) {
    if (runs_left_ == 0) return false;
    const auto plan = ParsePlan(absl::StrJoin(lines, "\n"));
    if (!plan.ok() || !CheckPlan(*plan).ok()) return false;
    --runs_left_;
    if (failure_of_(*plan) != wanted_) return false;
    lines_ = std::move(lines);
    return progress_ = true;
  }

  // Ever smaller groups of neighbours.
  void DropLines() {
    for (size_t group = lines_.size(); group > 0; group /= 2) {
      for (size_t begin = 0; begin < lines_.size();) {
        Lines fewer = lines_;
        const size_t end = std::min(begin + group, fewer.size());
        fewer.erase(fewer.begin() + static_cast<int64_t>(begin),
                    fewer.begin() + static_cast<int64_t>(end));
        if (!Try(std::move(fewer))) begin += group;
      }
    }
  }

  template <typename Change>
  void EachWord(Change change) {
    for (size_t line = 0; line < lines_.size(); ++line) {
      for (size_t word = 1;; ++word) {
        while (change(line, word)) continue;
        if (word >= Words(line).size()) break;
      }
    }
  }

  std::vector<std::string> Words(size_t line) const {
    return absl::StrSplit(lines_[line], ' ', absl::SkipEmpty());
  }

  bool DropWord(size_t line, size_t word) {
    std::vector<std::string> words = Words(line);
    if (word >= words.size() || !absl::StrContains(words[word], '=')) return false;
    words.erase(words.begin() + static_cast<int64_t>(word));
    return TryLine(line, words);
  }

  bool ShrinkWord(size_t line, size_t word) {
    std::vector<std::string> words = Words(line);
    if (word >= words.size()) return false;
    const std::vector<std::string> pair = absl::StrSplit(words[word], absl::MaxSplits('=', 1));
    if (pair.size() < 2 || pair[0] == "seed") return false;
    for (const std::string& value : Smaller(pair[1])) {
      words[word] = absl::StrCat(pair[0], "=", value);
      if (TryLine(line, words)) return true;
    }
    return false;
  }

  bool TryLine(size_t line, const std::vector<std::string>& words) {
    Lines lines = lines_;
    lines[line] = absl::StrJoin(words, " ");
    return Try(std::move(lines));
  }

  const FailureOf failure_of_;
  uint32_t runs_left_;
  Lines lines_;
  const std::string wanted_;
  bool progress_ = false;
};

}  // namespace

Plan Shrink(const Plan& plan, FailureOf failure_of, uint32_t runs_max) {
  return Shrinker(plan, failure_of, runs_max).Run();
}

std::string KindOf(const std::string& violation) {
  std::string kind;
  for (const std::string& word :
       std::vector<std::string>(absl::StrSplit(violation, ' ', absl::SkipEmpty()))) {
    const bool named = std::any_of(word.begin(), word.end(), absl::ascii_isdigit);
    if (named && word[0] != 'K') continue;
    absl::StrAppend(&kind, kind.empty() ? "" : " ", word);
  }
  return kind;
}

}  // namespace baton::sim
