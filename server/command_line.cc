// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/command_line.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/nearest.h"

namespace baton::server {
namespace {

absl::Status Unknown(const std::string& name, const std::vector<FlagSpec>& flags) {
  std::vector<std::string> names;
  for (const FlagSpec& flag : flags) names.push_back(flag.name);
  const std::string nearest = Nearest(name, names);
  return absl::InvalidArgumentError(
      nearest.empty() ? absl::StrCat("unknown flag --", name)
                      : absl::StrCat("unknown flag --", name, "; did you mean --", nearest, "?"));
}

}  // namespace

absl::StatusOr<CommandLine> CommandLine::Parse(const std::vector<std::string>& words,
                                               const std::vector<FlagSpec>& flags) {
  CommandLine line;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      line.words_.insert(line.words_.end(), words.begin() + i + 1, words.end());
      break;
    }
    if (!absl::StartsWith(word, "--")) {
      line.words_.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto flag = std::find_if(flags.begin(), flags.end(),
                                   [&](const FlagSpec& spec) { return spec.name == name; });
    if (flag == flags.end()) return Unknown(name, flags);
    const bool takes_value = !flag->value_name.empty();
    if (!takes_value && equals != std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " takes no value"));
    }
    std::string value = "true";
    if (equals != std::string::npos) {
      value = word.substr(equals + 1);
    } else if (takes_value) {
      if (i + 1 == words.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " needs a value (", flag->value_name, ")"));
      }
      value = words[++i];
    }
    line.values_[name].push_back(value);
  }
  return line;
}

bool CommandLine::Has(absl::string_view name) const { return values_.find(name) != values_.end(); }

std::string CommandLine::Get(absl::string_view name, std::string otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::move(otherwise) : found->second.back();
}

std::vector<std::string> CommandLine::All(absl::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

absl::StatusOr<int64_t> CommandLine::Integer(absl::string_view name, int64_t otherwise) const {
  if (!Has(name)) return otherwise;
  int64_t value = 0;
  if (!absl::SimpleAtoi(Get(name), &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": '", Get(name), "' is not an integer"));
  }
  return value;
}

absl::StatusOr<double> CommandLine::Number(absl::string_view name, double otherwise) const {
  if (!Has(name)) return otherwise;
  double value = 0;
  if (!absl::SimpleAtod(Get(name), &value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": '", Get(name), "' is not a number"));
  }
  return value;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
      return kExitConfig;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
      return kExitUnavailable;
    default:
      return kExitFailure;
  }
}

}  // namespace baton::server
