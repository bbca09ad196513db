// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/stages.h"

#include <algorithm>
#include <utility>

namespace baton::router {
namespace {

// A foreign duration can claim anything; it gets at most what is there.
absl::Duration Within(absl::Duration claimed, absl::Duration available) {
  return std::clamp(claimed, absl::ZeroDuration(), available);
}

}  // namespace

void StageClock::Spend(absl::Duration& stage, absl::Time now) {
  stage += now - mark_;
  mark_ = now;
}

void StageClock::Opened(absl::Time now) {
  if (state_ == State::kBegun) return;
  Spend(WaitStage(), now);
  state_ = State::kReserving;
}

void StageClock::Refused(absl::Time now) {
  if (state_ == State::kBegun) return;
  Spend(WaitStage(), now);
  state_ = State::kWaiting;
}

void StageClock::Reserved(absl::Time now) {
  if (state_ == State::kBegun) return;
  Spend(reserve_, now);
  state_ = State::kRunning;
}

void StageClock::Failed(absl::Time now) {
  if (state_ == State::kBegun) return;
  stages_.retry += std::exchange(reserve_, absl::ZeroDuration());
  Spend(stages_.retry, now);
  retrying_ = true;
  state_ = State::kWaiting;
}

void StageClock::FirstToken(absl::Time now, const PromptStats& stats) {
  if (state_ == State::kBegun) return;
  const absl::Duration span = now - mark_;
  stages_.reserve = reserve_;
  stages_.kv_exposed = Within(stats.exposed, span);
  stages_.prefill = Within(stats.queued + stats.compute, span - stages_.kv_exposed);
  stages_.first_token = span - stages_.kv_exposed - stages_.prefill;
  mark_ = now;
  state_ = State::kBegun;
}

Stages StageClock::Over(absl::Time now) {
  switch (state_) {
    case State::kWaiting:
      Spend(WaitStage(), now);
      break;
    case State::kReserving:
      Spend(stages_.reserve, now);
      break;
    case State::kRunning:
      stages_.reserve = reserve_;
      Spend(stages_.prefill, now);
      break;
    case State::kBegun:
      Spend(stages_.decode, now);
      break;
  }
  return stages_;
}

}  // namespace baton::router
