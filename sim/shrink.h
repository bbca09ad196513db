// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Makes a failing plan smaller while it still fails in the same way.
//
// Works on the plan's text: leaves out lines (faults, requests), then words (back to their
// defaults), then halves numbers, as long as anything can be dropped.  Greedy: the result is
// minimal in the sense that no single step of these makes it smaller.
//
// Thread: one.  Cost: some hundred runs of the plan; `runs_max` bounds them.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "sim/plan.h"

namespace baton::sim {

// Runs a plan and says how it fails, so that equal words mean the same fault; empty: it does
// not fail.
using FailureOf = absl::FunctionRef<std::string(const Plan&)>;

Plan Shrink(const Plan& plan, FailureOf failure_of, uint32_t runs_max = 2000);

// The kind of a violation: its words without names and numbers.
std::string KindOf(const std::string& violation);

}  // namespace baton::sim
