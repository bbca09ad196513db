// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <chrono>

#include "absl/strings/str_format.h"
#include "base/utf8.h"

namespace baton {
namespace {

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::atomic<LogFormat> g_format{LogFormat::kText};

struct Source {
  std::string role, name;
};
Source& ProcessSource() {
  static Source source;
  return source;
}

constexpr absl::string_view kLevelNames[] = {"DEBUG", "INFO", "WARN", "ERROR"};

// Quotes only what would be ambiguous without.
std::string TextValue(absl::string_view text) {
  const bool plain = !text.empty() && text.find_first_of(" \"=\\") == absl::string_view::npos &&
                     Utf8Valid(text) == text.size();
  for (const char c : text) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) return JsonQuote(text);
  }
  return plain ? std::string(text) : JsonQuote(text);
}

std::string FormatText(absl::Time time, LogLevel level, absl::string_view role,
                       absl::string_view name, absl::string_view message,
                       std::initializer_list<LogField> fields) {
  std::string line =
      absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone()), " ",
                   kLevelNames[static_cast<int>(level)], " ", message);
  if (!name.empty()) {
    absl::StrAppend(&line, " role=", TextValue(name));
  } else if (!role.empty()) {
    absl::StrAppend(&line, " role=", TextValue(role));
  }
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key(), "=", TextValue(field.value()));
  }
  return line;
}

std::string FormatJson(absl::Time time, LogLevel level, absl::string_view role,
                       absl::string_view name, absl::string_view message,
                       std::initializer_list<LogField> fields) {
  std::string line = absl::StrCat(
      "{\"time\":\"", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone()),
      "\",\"level\":\"", kLevelNames[static_cast<int>(level)],
      "\",\"message\":", JsonQuote(message));
  if (!role.empty()) absl::StrAppend(&line, ",\"role\":", JsonQuote(role));
  if (!name.empty()) absl::StrAppend(&line, ",\"name\":", JsonQuote(name));
  for (const LogField& field : fields) {
    absl::StrAppend(&line, ",", JsonQuote(field.key()), ":",
                    field.bare() ? field.value() : JsonQuote(field.value()));
  }
  line += '}';
  return line;
}

}  // namespace

absl::StatusOr<LogLevel> ParseLogLevel(absl::string_view text) {
  if (text == "debug") return LogLevel::kDebug;
  if (text == "info") return LogLevel::kInfo;
  if (text == "warn") return LogLevel::kWarn;
  if (text == "error") return LogLevel::kError;
  return absl::InvalidArgumentError(
      absl::StrCat("log level '", text, "' is none of debug, info, warn, error"));
}

absl::StatusOr<LogFormat> ParseLogFormat(absl::string_view text) {
  if (text == "text") return LogFormat::kText;
  if (text == "json") return LogFormat::kJson;
  return absl::InvalidArgumentError(
      absl::StrCat("log format '", text, "' is neither text nor json"));
}

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
void SetLogFormat(LogFormat format) { g_format.store(format, std::memory_order_relaxed); }
void SetLogSource(absl::string_view role, absl::string_view name) {
  ProcessSource() = {std::string(role), std::string(name)};
}

bool LogEnabled(LogLevel level) { return level >= g_level.load(std::memory_order_relaxed); }

void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields) {
  if (!LogEnabled(level)) return;
  const Source& source = ProcessSource();
  const absl::Time time = absl::FromChrono(std::chrono::system_clock::now());
  std::string line = FormatLogRecord(g_format.load(std::memory_order_relaxed), time, level,
                                     source.role, source.name, message, fields);
  line += '\n';
  // One write per record keeps records of several threads whole.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

std::string FormatLogRecord(LogFormat format, absl::Time time, LogLevel level,
                            absl::string_view role, absl::string_view name,
                            absl::string_view message, std::initializer_list<LogField> fields) {
  return format == LogFormat::kText ? FormatText(time, level, role, name, message, fields)
                                    : FormatJson(time, level, role, name, message, fields);
}

std::string JsonQuote(absl::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    const char c = text[0];
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint8_t>(c));
    } else {
      out.append(text.data(), length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
  return out;
}

}  // namespace baton
