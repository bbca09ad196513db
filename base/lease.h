// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which front ends are alive, by their heartbeats: a worker leases its attempts from them.
//
// A heartbeat every 200 ms; a front end silent for 2 s is gone, and so is an incarnation
// that was never heard of for that long after its first attempt.  Pure: `now` is handed in.
#pragma once

#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "base/ids.h"

namespace baton {

inline constexpr absl::Duration kHeartbeatInterval = absl::Milliseconds(200);
inline constexpr absl::Duration kDeadAfter = absl::Seconds(2);

class LeaseTable {
 public:
  explicit LeaseTable(absl::Duration dead_after = kDeadAfter) : dead_after_(dead_after) {}

  // A heartbeat, or a message that shows life.
  void Alive(Incarnation frontend, absl::Time now) { seen_[frontend] = now; }

  // Front ends whose lease ended by `now`; each is reported once and forgotten.
  std::vector<Incarnation> Expire(absl::Time now) {
    std::vector<Incarnation> gone;
    for (auto it = seen_.begin(); it != seen_.end();) {
      if (now - it->second >= dead_after_) {
        gone.push_back(it->first);
        it = seen_.erase(it);
      } else {
        ++it;
      }
    }
    return gone;
  }

  // The earliest moment at which Expire may have something to say.
  absl::Time NextExpiry() const {
    absl::Time next = absl::InfiniteFuture();
    for (const auto& [frontend, seen] : seen_) next = std::min(next, seen + dead_after_);
    return next;
  }

 private:
  const absl::Duration dead_after_;
  absl::btree_map<Incarnation, absl::Time> seen_;
};

}  // namespace baton
