// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What scenarios ask, and what they demand at their end.
#pragma once

#include <catch2/catch.hpp>
#include <string>

#include "sim/cluster.h"

namespace baton::sim {

inline constexpr Ask kShort{.prompt_tokens = 20, .new_tokens = 10};
inline constexpr Ask kLong{.prompt_tokens = 150, .new_tokens = 10};

inline bool Right(Cluster& cluster, const Reply& reply) {
  return reply.ok() && reply.tokens == cluster.Expected(reply);
}

// Nothing is left anywhere and no checker found anything.
inline void CheckEnd(Cluster& cluster) {
  cluster.Settle();
  if (!cluster.violations().empty()) {
    UNSCOPED_INFO(cluster.log().Tail());
    for (const std::string& violation : cluster.violations()) UNSCOPED_INFO(violation);
  }
  CHECK(cluster.violations().empty());
}

}  // namespace baton::sim
