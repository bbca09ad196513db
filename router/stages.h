// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Where a request's time went: consecutive intervals on the front end's clock that add up.
//
// Workers report durations (PromptStats); they are cut out of the interval between Reserved
// and the first token, never added to it.  Time in failed attempts before the first token is
// `retry`; everything after the first token is `decode`.  A request that ends without a token
// spent its last interval in the stage that it was in.  Pure.
#pragma once

#include "absl/time/time.h"
#include "base/messages.h"
#include "router/client.h"

namespace baton::router {

class StageClock {
 public:
  StageClock() = default;
  explicit StageClock(absl::Time received) : mark_(received) {}

  void Opened(absl::Time now);   // Reserve was sent
  void Refused(absl::Time now);  // decode was full: the attempt counts as waiting
  void Reserved(absl::Time now);
  void Failed(absl::Time now);
  void FirstToken(absl::Time now, const PromptStats& stats);
  Stages Over(absl::Time now);

 private:
  enum class State : uint8_t { kWaiting, kReserving, kRunning, kBegun };
  void Spend(absl::Duration& stage, absl::Time now);
  absl::Duration& WaitStage() { return retrying_ ? stages_.retry : stages_.queue; }

  absl::Time mark_;  // everything before it is accounted for
  State state_ = State::kWaiting;
  absl::Duration reserve_;  // of the current attempt
  bool retrying_ = false;
  Stages stages_;
};

}  // namespace baton::router
