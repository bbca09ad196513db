// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/health.h"

#include <algorithm>

namespace baton::router {

Health::Change Health::Answered(const WorkerStatus& status, absl::Time now) {
  const bool first = answers_ == 0;
  const bool reborn = !first && status.self.incarnation != status_.self.incarnation;
  if (first || reborn || status.ticks != status_.ticks) {
    ticked_at_ = now;
    wedged_ = false;
  }
  const bool was_away = state_ == PeerState::kGone || state_ == PeerState::kDead;
  status_ = status;
  answered_at_ = now;
  ++answers_;
  // A wedged worker goes on answering; only a tick brings it back.
  state_ = wedged_ ? PeerState::kDead : PeerState::kAlive;
  if (reborn || (was_away && !wedged_)) ++returns_;
  return reborn ? Change::kLost : Change::kNone;
}

void Health::Gone() {
  if (state_ != PeerState::kUnknown && state_ != PeerState::kDead) state_ = PeerState::kGone;
}

void Health::Forgive(absl::Duration gap) {
  answered_at_ += gap;
  ticked_at_ += gap;
}

Health::Change Health::Advance(absl::Time now) {
  if (state_ == PeerState::kUnknown || state_ == PeerState::kDead) return Change::kNone;
  wedged_ = now - ticked_at_ >= options_.wedged_after;
  if (wedged_ || now - answered_at_ >= options_.dead_after) {
    state_ = PeerState::kDead;
    return Change::kLost;
  }
  if (state_ == PeerState::kAlive && now - answered_at_ >= options_.suspect_after) {
    state_ = PeerState::kSuspect;
  }
  return Change::kNone;
}

absl::Time Health::NextChange() const {
  if (state_ == PeerState::kUnknown || state_ == PeerState::kDead) return absl::InfiniteFuture();
  const absl::Time dead =
      std::min(answered_at_ + options_.dead_after, ticked_at_ + options_.wedged_after);
  return state_ == PeerState::kAlive ? std::min(dead, answered_at_ + options_.suspect_after) : dead;
}

}  // namespace baton::router
