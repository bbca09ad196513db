// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// ENSURE: an assertion for programmer errors, on in every build.
//
// A failed ENSURE means that our own code is wrong; it prints the condition and
// place and aborts.  What the world can cause (peers, files, requests) is an
// absl::Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace baton {

[[noreturn]] inline void EnsureFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: ENSURE failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace baton

#define ENSURE(condition)                                    \
  (__builtin_expect(!!(condition), 1) ? static_cast<void>(0) \
                                      : ::baton::EnsureFailed(#condition, __FILE__, __LINE__))
