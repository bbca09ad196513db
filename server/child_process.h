// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A role as a child process of `baton up`: the same binary, its output read line by line.
//
// The child has a process group of its own, so that a Ctrl-C reaches only `up`, which stops
// roles in order; and it is told to drain if `up` itself dies.
//
// Thread:  the main thread.  Failure: UNAVAILABLE if it cannot be started.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::server {

class ChildProcess {
 public:
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& words);
  ChildProcess() = default;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // Whole lines that came since the last call; never blocks.
  std::vector<std::string> TakeLines();
  // True if it has ended (once: then it is reaped and exit_code() is known).
  bool Reap();
  void Signal(int number) const;

  pid_t pid() const { return pid_; }
  int output() const { return output_; }
  bool running() const { return pid_ > 0 && !ended_; }
  int exit_code() const { return exit_code_; }  // 128 + n if a signal ended it

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  bool ended_ = false;
  int exit_code_ = 0;
  std::string partial_;
};

}  // namespace baton::server
