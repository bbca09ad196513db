// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What the dispatcher knows of every configured worker: health, load, prefixes, room.
//
// Load is the larger of what the worker last said and what this front end has open there:
// the first covers other front ends, the second what happened since the last heartbeat.
// A decode that refused for want of memory is asked again after a pause, one request at a
// time until it takes one, so that a queue does not turn into a storm.  Thread: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "router/admission.h"
#include "router/affinity.h"
#include "router/health.h"
#include "router/placement.h"
#include "router/worker_client.h"

namespace baton::router {

// A worker that failed a request; while others are there it is not asked again.
struct Avoided {
  WorkerIndex worker;
  uint64_t answers = 0;  // that it had given by then
};

class Peers {
 public:
  struct Options {
    Health::Options health;
    absl::Duration full_backoff;
    uint32_t reserving_max = 0;
    uint32_t affinity_entries = 0;
  };
  struct Peer {
    Role role = Role::kDecode;
    Health health;
    uint32_t attempts = 0;   // this front end's
    uint64_t tokens = 0;     // of them, not known to be computed
    uint32_t reserving = 0;  // unanswered Reserves
    bool narrow = false;     // refused lately: one Reserve at a time
    absl::Time full_until = absl::InfinitePast();
  };
  // What of a request matters to where it may go.
  struct Need {
    uint32_t tokens = 0;      // of the sequence
    uint64_t tokens_end = 0;  // once all remaining tokens are drawn
    bool writer_wanted = false;
    uint64_t rotation = 0;
    uint64_t fingerprint = 0;  // of the worker that began the answer; 0: any
    const std::vector<uint64_t>* hashes = nullptr;
    const std::vector<Avoided>* avoided = nullptr;
  };
  // Why there is no placement now.
  enum class Lack : uint8_t {
    kNone,
    kRoom,    // decode workers that could take it are full or busy answering
    kNews,    // the only ones failed this request: wait for their next heartbeat
    kDecode,  // nobody
  };

  Peers(Options options, const std::vector<Role>& roles);

  Peer& at(WorkerIndex worker) { return peers_[worker.value()]; }
  const Peer& at(WorkerIndex worker) const { return peers_[worker.value()]; }
  const std::vector<Peer>& all() const { return peers_; }

  // The front end itself stood still for `gap` up to now.
  void Forgive(absl::Duration gap);
  // Lets time pass; appends workers just declared dead.
  void Advance(absl::Time now, std::vector<WorkerIndex>& lost);
  absl::Time NextChange() const;
  // When a full decode may be asked again; infinite if none is full.
  absl::Time NextRoom(absl::Time now) const;

  // Some usable decode worker may be sent a Reserve now.
  bool AnyRoom(absl::Time now) const;
  std::optional<Placement> Find(const Need& need, absl::Time now, Lack& lack) const;
  // What the known decode worker that holds the longest sequence could hold.
  Capacity capacity() const;
  bool has_prefill() const { return has_prefill_; }

  void ReserveSent(WorkerIndex decode) { ++at(decode).reserving; }
  void ReserveAnswered(WorkerIndex decode, bool taken);
  void RefusedFull(WorkerIndex decode, absl::Time now);
  void Remember(const std::vector<uint64_t>& hashes, const Placement& placement);

 private:
  bool HasRoom(const Peer& peer, absl::Time now) const;
  Candidate MakeCandidate(WorkerIndex worker, const Need& need,
                          const std::vector<std::pair<WorkerIndex, uint32_t>>& cached) const;

  const Options options_;
  std::vector<Peer> peers_;
  PrefixAffinity decode_affinity_, prefill_affinity_;
  bool has_prefill_ = false;
};

}  // namespace baton::router
