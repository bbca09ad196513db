// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Runs a plan in a process of its own, so that one that aborts can be told about, and shrunk.
//
// Thread: one; forks.  Cost: a fork and the run.
#pragma once

#include <string>

#include "sim/plan.h"

namespace baton::sim {

// How it fails (sim/shrink.h): the kind of its first violation, or the assertion that failed.
std::string FailureApart(const Plan& plan);

}  // namespace baton::sim
