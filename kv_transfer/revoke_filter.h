// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Keeps OwnerTransport's promise across a queue between two threads: after Revoke, the role
// loop sees no CommitArrived and no WriterFailed of that generation, though the reactor may
// have put one on the way before it heard of the Revoke.
//
// Thread:     the role loop's.  Bounds: the generations that are quarantined.
#pragma once

#include <vector>

#include "absl/container/btree_set.h"
#include "base/ensure.h"
#include "base/ids.h"
#include "kv_transfer/transport.h"

namespace baton::kv {

class RevokeFilter {
 public:
  // Call in OwnerTransport::Revoke.
  void Revoked(Generation generation) {
    const bool first = revoked_.insert(generation).second;
    ENSURE(first);
  }
  // Call on every event before the role loop sees it; false: drop it.
  bool Passes(const TransportEvent& event) {
    if (const auto* commit = std::get_if<CommitArrived>(&event)) {
      return !revoked_.contains(commit->commit.key.generation);
    }
    if (const auto* failed = std::get_if<WriterFailed>(&event)) {
      return !revoked_.contains(failed->generation);
    }
    if (const auto* quiet = std::get_if<Quiet>(&event)) {
      const bool known = revoked_.erase(quiet->generation) == 1;
      ENSURE(known);
    }
    return true;
  }

 private:
  absl::btree_set<Generation> revoked_;
};

}  // namespace baton::kv
