// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One role of a process: a front end, a prefill or a decode worker, built from its parts.
//
// Start… returns when the role serves its ports; it may become ready later.  A bad model file
// is INVALID_ARGUMENT or NOT_FOUND (exit 78), a missing port, device or transport UNAVAILABLE
// or FAILED_PRECONDITION (exit 69).
//
// Thread:  the process's main thread makes every call.  Destruction stops all threads.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "config/config.h"

namespace baton::server {

struct RoleOptions {
  config::Config config;
  std::string name;         // of a worker: which of the configured ones
  Incarnation incarnation;  // drawn at the process's start
  uint64_t seed = 0;        // what chance this life needs comes from it
};

class RoleProcess {
 public:
  virtual ~RoleProcess() = default;
  // About ten times a second: keeps the health service true.  An error ends the process.
  virtual absl::Status Poll() = 0;
  virtual bool ready() const = 0;
  virtual void StartDrain() = 0;
  virtual bool drained() const = 0;  // nothing is left to do
  // For the end of the process: ports close, threads end, what others see is over.  Memory and
  // UCX stay as they are: UCX 1.13 may abort in destroying what a silent peer left behind.
  virtual void Stop() = 0;
};

absl::StatusOr<std::unique_ptr<RoleProcess>> StartFrontend(const RoleOptions& options);
absl::StatusOr<std::unique_ptr<RoleProcess>> StartPrefill(const RoleOptions& options);
absl::StatusOr<std::unique_ptr<RoleProcess>> StartDecode(const RoleOptions& options);

}  // namespace baton::server
