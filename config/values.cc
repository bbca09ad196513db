// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "config/values.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace baton::config {
namespace {

struct Unit {
  const char* name;
  double factor;
};

constexpr Unit kBytes[] = {
    {"B", 1}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0}};
constexpr Unit kRates[] = {{"B", 1},    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
                           {"KB", 1e3}, {"MB", 1e6},     {"GB", 1e9}};
constexpr Unit kTimes[] = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 6e10}, {"h", 3.6e12}};

// A decimal number and one of the units.  Up to 2^62 after scaling.
template <size_t n>
absl::StatusOr<double> ParseUnit(const std::string& text, const Unit (&units)[n],
                                 const char* example) {
  size_t digits = 0;
  while (digits < text.size() && (absl::ascii_isdigit(text[digits]) || text[digits] == '.')) {
    ++digits;
  }
  double number = 0;
  const std::string unit(absl::StripLeadingAsciiWhitespace(text.substr(digits)));
  if (digits == 0 || !absl::SimpleAtod(text.substr(0, digits), &number)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a number with a unit, such as ", example));
  }
  if (unit.empty() && number == 0) return 0.0;
  for (const Unit& known : units) {
    if (unit != known.name) continue;
    const double value = number * known.factor;
    if (value >= 0x1p62)
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is too large"));
    return value;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' has ",
                                                 unit.empty() ? "no unit" : "an unknown unit",
                                                 "; write for example ", example));
}

std::string PrintUnit(uint64_t value, const Unit* units, size_t count) {
  for (size_t i = count; i-- > 0;) {
    const uint64_t factor = static_cast<uint64_t>(units[i].factor);
    if (value >= factor && value % factor == 0) return absl::StrCat(value / factor, units[i].name);
  }
  return absl::StrCat(value, value == 0 ? "" : units[0].name);
}

}  // namespace

absl::StatusOr<uint64_t> ParseCount(const std::string& text, uint64_t min, uint64_t max) {
  uint64_t value = 0;
  const bool octal = text.size() > 1 && text[0] == '0';
  if (octal || !absl::SimpleAtoi(text, &value) || value < min || value > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not an integer from ", min, " to ", max));
  }
  return value;
}

absl::StatusOr<bool> ParseBool(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is neither true nor false"));
}

absl::StatusOr<uint64_t> ParseBytes(const std::string& text) {
  ASSIGN_OR_RETURN(const double value, ParseUnit(text, kBytes, "512MiB"));
  return static_cast<uint64_t>(value);
}

absl::StatusOr<uint64_t> ParseBytesPerSecond(const std::string& text) {
  if (text == "0") return 0;
  if (!absl::EndsWith(text, "/s")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a rate such as 10GB/s, or 0 for none"));
  }
  ASSIGN_OR_RETURN(const double value,
                   ParseUnit(text.substr(0, text.size() - 2), kRates, "10GB/s"));
  return static_cast<uint64_t>(value);
}

absl::StatusOr<absl::Duration> ParseDuration(const std::string& text) {
  ASSIGN_OR_RETURN(const double value, ParseUnit(text, kTimes, "30s"));
  return absl::Nanoseconds(static_cast<int64_t>(value));
}

absl::StatusOr<Address> ParseAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool v6 = !text.empty() && text[0] == '[';
  const size_t end = v6 ? text.find(']') : colon;
  uint32_t port = 0;
  if (colon == std::string::npos || end == std::string::npos || (v6 && end + 1 != colon) ||
      (!v6 && text.find(':') != colon) || end <= (v6 ? 1u : 0u) ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not an address such as 127.0.0.1:8000 or [::1]:8000"));
  }
  return Address{text.substr(v6 ? 1 : 0, end - (v6 ? 1 : 0)), static_cast<uint16_t>(port)};
}

std::string PrintBytes(uint64_t bytes) { return PrintUnit(bytes, kBytes, std::size(kBytes)); }

std::string PrintBytesPerSecond(uint64_t bytes) {
  return bytes == 0 ? "0" : absl::StrCat(PrintUnit(bytes, kBytes, 4), "/s");
}

std::string PrintDuration(absl::Duration duration) {
  const uint64_t ns = static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration));
  for (size_t i = std::size(kTimes); i-- > 0;) {
    const uint64_t factor = static_cast<uint64_t>(kTimes[i].factor);
    if (ns >= factor && ns % factor == 0) return absl::StrCat(ns / factor, kTimes[i].name);
  }
  return ns == 0 ? "0" : absl::StrCat(ns / 1000, "us");
}

std::string Address::text() const {
  return host.find(':') == std::string::npos ? absl::StrCat(host, ":", port)
                                             : absl::StrCat("[", host, "]:", port);
}

}  // namespace baton::config
