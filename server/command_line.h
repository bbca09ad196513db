// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The words of `baton COMMAND [--flag value | --flag=value]… [WORD…]`.
//
// A command declares its flags; anything else on the line is a usage error (exit 2)
// that names the word and the nearest flag.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::server {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;  // run-time failure
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnavailable =
    69;                                 // a device, port, peer or required transport is missing
inline constexpr int kExitConfig = 78;  // bad configuration or model file

struct FlagSpec {
  std::string name;        // without the dashes
  std::string value_name;  // empty: a switch that takes no value
  std::string help;
};

class CommandLine {
 public:
  // Parses `words` (behind the command's name).  InvalidArgument names the offending word.
  static absl::StatusOr<CommandLine> Parse(const std::vector<std::string>& words,
                                           const std::vector<FlagSpec>& flags);

  bool Has(absl::string_view name) const;
  std::string Get(absl::string_view name, std::string otherwise = "") const;  // the last one given
  std::vector<std::string> All(absl::string_view name) const;                 // repeatable flags
  absl::StatusOr<int64_t> Integer(absl::string_view name, int64_t otherwise) const;
  absl::StatusOr<double> Number(absl::string_view name, double otherwise) const;
  const std::vector<std::string>& words() const { return words_; }  // what is not a flag

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> words_;
};

// One `baton` command.  Run returns the exit code and has said why on stderr if not 0.
struct Command {
  std::string name;
  std::string words;    // after the flags, for --help; empty: none are taken
  std::string summary;  // one line
  std::vector<FlagSpec> flags;
  int (*run)(const CommandLine& line);
};

// Prints "baton: why" to stderr and returns the code that fits the status:
// InvalidArgument/DataLoss/NotFound 78, Unavailable/FailedPrecondition 69, else 1.
int Fail(const absl::Status& status);

}  // namespace baton::server
