// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which workers can be trusted with work: a fault detector over answered heartbeats.
//
// Pure: every call is handed `now`.  A worker that answers is alive; silent for a few
// heartbeats it is suspect (used only if nothing better is there); silent for 2 s it is dead.
// A worker whose answers carry the same tick count for 2 s is alive as a process but its loop
// is wedged: dead as well.  A broken connection makes it `gone` at once: nothing is sent to it
// until it answers again.  An answer under another incarnation is another process: whatever
// was open on the earlier one is lost, which the caller learns as a Change.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/lease.h"
#include "base/messages.h"

namespace baton::router {

enum class PeerState : uint8_t {
  kUnknown = 0,  // never answered
  kAlive = 1,
  kSuspect = 2,  // late
  kGone = 3,     // its connection broke
  kDead = 4,     // silent or wedged for too long
};

class Health {
 public:
  struct Options {
    absl::Duration suspect_after = 4 * kHeartbeatInterval;
    absl::Duration dead_after = kDeadAfter;
    absl::Duration wedged_after = kDeadAfter;
  };
  // What a caller with open attempts on the worker has to act on.
  enum class Change : uint8_t { kNone, kLost };

  explicit Health(Options options) : options_(options) {}

  // An answered heartbeat.  kLost: the process is another one than before.
  Change Answered(const WorkerStatus& status, absl::Time now);
  // The connection broke or was refused.
  void Gone();
  // The caller stood still for `gap` up to now and heard nobody: that was not their silence.
  void Forgive(absl::Duration gap);
  // Lets time pass.  kLost, once per silence: the worker was just declared dead.
  Change Advance(absl::Time now);
  // The earliest moment at which Advance may have something to say.
  absl::Time NextChange() const;

  PeerState state() const { return state_; }
  // The last answer; empty until the first.
  const WorkerStatus& status() const { return status_; }
  // Answers so far: tells whether news came since some event.
  uint64_t answers() const { return answers_; }
  // Times it came back: after gone or dead, or as another process.
  uint64_t returns() const { return returns_; }
  // May be given new attempts.
  bool usable() const {
    return (state_ == PeerState::kAlive || state_ == PeerState::kSuspect) && status_.ready &&
           !status_.draining;
  }

 private:
  const Options options_;
  PeerState state_ = PeerState::kUnknown;
  WorkerStatus status_;
  absl::Time answered_at_;
  absl::Time ticked_at_;  // when `status_.ticks` last differed
  bool wedged_ = false;
  uint64_t answers_ = 0;
  uint64_t returns_ = 0;
};

}  // namespace baton::router
