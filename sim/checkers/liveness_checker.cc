// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/liveness_checker.h"

namespace baton::sim {

void LivenessChecker::Over(const router::Over& over) {
  const absl::Time now = log_.now();
  if (over.outcome == router::Outcome::kTimeout && now - healed_ >= kAnswerMax + load_) {
    log_.Violation("liveness: client ", over.client.value(), " times out ",
                   absl::FormatDuration(now - healed_), " after the last fault");
  }
  if (!no_faults_ || over.outcome != router::Outcome::kError) return;
  log_.Violation("liveness: nothing fails, but client ", over.client.value(), " is told ",
                 over.status.ToString());
}

void LivenessChecker::Attempts(const std::string& frontend, const router::Snapshot& snapshot) {
  if (!no_faults_) return;
  using router::AttemptResult;
  const auto count = [&](AttemptResult result) {
    return snapshot.attempts[static_cast<size_t>(result)];
  };
  const uint64_t failed =
      count(AttemptResult::kPrefillFailed) + count(AttemptResult::kDecodeFailed);
  if (failed == 0) return;
  log_.Violation("liveness: nothing fails, but ", failed, " attempts of ", frontend, " did");
}

void LivenessChecker::Unanswered(uint64_t client) {
  log_.Violation("liveness: client ", client, " is not answered");
}

void LivenessChecker::Owned(const std::string& what) {
  log_.Violation("liveness: ", what, "though all is over");
}

}  // namespace baton::sim
