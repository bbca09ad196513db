// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Clusters to draw from: each entry sets a few options, and a seed takes one of each group.
//
// Thread: any; pure.
#pragma once

#include "base/random.h"
#include "sim/cluster.h"

namespace baton::sim {

// Shapes, ways, memory, engines and limits, drawn independently of each other.
ClusterOptions DrawCluster(uint64_t seed, Random& random);

}  // namespace baton::sim
