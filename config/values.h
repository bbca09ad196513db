// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Scalars with units, each way: "512MiB", "30s", "2GB/s", "127.0.0.1:8000".
//
// Parsers are exact: no bare numbers where a unit is due (0 needs none), no octal, no "yes".
// Errors say what would be right; the caller adds place and key.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "config/config.h"

namespace baton::config {

absl::StatusOr<uint64_t> ParseCount(const std::string& text, uint64_t min, uint64_t max);
absl::StatusOr<bool> ParseBool(const std::string& text);
absl::StatusOr<uint64_t> ParseBytes(const std::string& text);           // B KiB MiB GiB TiB
absl::StatusOr<uint64_t> ParseBytesPerSecond(const std::string& text);  // those, and KB MB GB; "/s"
absl::StatusOr<absl::Duration> ParseDuration(const std::string& text);  // us ms s m h
absl::StatusOr<Address> ParseAddress(const std::string& text);          // host:port, [v6]:port

std::string PrintBytes(uint64_t bytes);
std::string PrintBytesPerSecond(uint64_t bytes);
std::string PrintDuration(absl::Duration duration);

}  // namespace baton::config
