// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The plan of a seed: a random cluster under random load and random faults.
//
// A swarm in the sense of Groce et al.: each seed first draws which kinds of clients and of
// faults exist at all, then how many of those happen.  So some seeds see nothing but broken
// links, others everything at once, and a tenth no fault.
//
// Thread: any; pure: the same seed, the same plan.
#pragma once

#include <cstdint>

#include "sim/plan.h"

namespace baton::sim {

Plan DrawPlan(uint64_t seed);

}  // namespace baton::sim
