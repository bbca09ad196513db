// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What to do after an attempt failed.
//
// Pure policy.  The remedies in order: another prefill, the prompt on decode itself (the
// fallback path), another decode, a typed error.  Whoever is to blame is avoided by placement;
// this file says whether to go on and whether a writer may still be asked.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace baton::router {

enum class Blame : uint8_t {
  kNobody = 0,      // decode handed it back: memory pressure or drain
  kWriterBack = 1,  // the writer handed it back: drain, or no room for it
  kFull = 2,        // decode had no memory for it
  kPrefill = 3,     // the writer, or the way from it
  kDecode = 4,
  kRequest = 5,  // would fail everywhere
};

struct Failure {
  Blame blame = Blame::kNobody;
  absl::Status why;
};

// Whose fault it is that decode ended the attempt.
struct EndedContext {
  bool reserving = false;  // Reserve was not answered yet
  bool pushing = false;    // a ticket is out and no token came
  bool preempted = false;
};
Failure ClassifyDecodeEnded(const absl::Status& why, const EndedContext& context);
// Likewise for the prefill stream of an attempt.
Failure ClassifyPrefillEnded(const absl::Status& why, bool preempted);
// Whether the attempt had its fair chance, and counts.
bool Counts(Blame blame);

struct Tried {
  uint32_t attempts = 0;          // that were given a fair chance, this one included
  uint32_t prefill_failures = 0;  // this one included
  bool tokens_sent = false;
};
struct RetryPolicy {
  uint32_t attempts_max = 3;
  bool resume = true;
};

// OK: try again.  Else the request's error.
absl::Status MayRetry(const Failure& failure, const Tried& tried, const RetryPolicy& policy);
// Whether the next attempt may ask a prefill worker.
bool WriterAllowed(const Tried& tried, const RetryPolicy& policy);

}  // namespace baton::router
