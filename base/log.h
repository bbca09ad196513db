// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One-line log records on stderr: key=value for people, or JSON for machines.
//
// A record says what happened and names the request; it never holds a prompt, an answer or
// a key.  An error is logged once, where a request's fate is decided.
//
// Thread:  any.  Level and format belong to the process and may change while it runs.
// Cost:    a suppressed record costs one atomic load; a written one a write(2).
// Failure: what cannot be written is lost; logging never fails its caller.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace baton {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3 };
enum class LogFormat : uint8_t { kText = 0, kJson = 1 };

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text);
absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text);

// A key with a unit in its name (`_ms`, `_bytes`) and its value.
class LogField {
 public:
  LogField(absl::string_view key, absl::string_view value) : key_(key), value_(value) {}
  LogField(absl::string_view key, const char* value) : key_(key), value_(value) {}
  LogField(absl::string_view key, const std::string& value) : key_(key), value_(value) {}
  LogField(absl::string_view key, const absl::Status& status)
      : key_(key), value_(status.ToString()) {}
  LogField(absl::string_view key, bool value)
      : key_(key), value_(value ? "true" : "false"), bare_(true) {}
  template <typename Number, typename = std::enable_if_t<std::is_arithmetic_v<Number>>>
  LogField(absl::string_view key, Number value)
      : key_(key), value_(absl::StrCat(value)), bare_(true) {}

  absl::string_view key() const { return key_; }
  const std::string& value() const { return value_; }
  bool bare() const { return bare_; }  // a number or truth value: no quotes in JSON

 private:
  std::string key_;
  std::string value_;
  bool bare_ = false;
};

void SetLogLevel(LogLevel level);
void SetLogFormat(LogFormat format);
// What every record of this process says about its source.  Call before other threads start.
void SetLogSource(absl::string_view role, absl::string_view name);

bool LogEnabled(LogLevel level);
void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields = {});

inline void LogDebug(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, message, fields);
}
inline void LogInfo(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarn(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarn, message, fields);
}
inline void LogError(absl::string_view message, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, message, fields);
}

// One record without its newline.  Control characters of values are escaped, so that a
// client cannot forge a record.
std::string FormatLogRecord(LogFormat format, absl::Time time, LogLevel level,
                            absl::string_view role, absl::string_view name,
                            absl::string_view message, std::initializer_list<LogField> fields);

// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
std::string JsonQuote(absl::string_view text);

}  // namespace baton
