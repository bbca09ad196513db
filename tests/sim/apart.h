// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Runs in a process of its own, so that one that aborts ends nothing else and can be told about.
//
// Thread: one; forks.  Cost: a fork and the run.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "sim/plan.h"

namespace baton::sim {

struct ChildEnd {
  std::string said;  // what it wrote to `out`
  int status = 0;    // waitpid's
};
ChildEnd RunApart(absl::FunctionRef<void(int out)> body);

// How a plan fails (sim/shrink.h): the kind of its first violation, or the assertion that failed.
std::string FailureApart(const Plan& plan);

}  // namespace baton::sim
