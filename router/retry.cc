// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/retry.h"

#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace baton::router {
namespace {

// Codes by which a worker says that the same request may succeed elsewhere or later.
bool Transient(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kCancelled:  // the front end did not cancel: a lost lease
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kNotFound:
      return true;
    default:
      return false;
  }
}

}  // namespace

Failure ClassifyDecodeEnded(const absl::Status& why, const EndedContext& context) {
  if (context.preempted) return {Blame::kNobody, why};
  if (!Transient(why.code())) return {Blame::kRequest, why};
  if (context.reserving && why.code() == absl::StatusCode::kResourceExhausted) {
    return {Blame::kFull, why};
  }
  // Decode speaks, so it lives; what it waited for did not come.
  if (context.pushing) return {Blame::kPrefill, why};
  return {Blame::kDecode, why};
}

Failure ClassifyPrefillEnded(const absl::Status& why, bool preempted) {
  const bool full = why.code() == absl::StatusCode::kResourceExhausted;
  if (preempted || full) return {Blame::kWriterBack, why};
  const bool request = why.code() == absl::StatusCode::kInvalidArgument ||
                       why.code() == absl::StatusCode::kDeadlineExceeded;
  return {request ? Blame::kRequest : Blame::kPrefill, why};
}

bool Counts(Blame blame) {
  return blame == Blame::kPrefill || blame == Blame::kDecode || blame == Blame::kRequest;
}

absl::Status MayRetry(const Failure& failure, const Tried& tried, const RetryPolicy& policy) {
  if (failure.blame == Blame::kRequest) return failure.why;
  if (tried.tokens_sent && !policy.resume) {
    return Annotate(failure.why.ok() ? absl::UnavailableError("the worker stopped") : failure.why,
                    "the answer had begun and resume is off");
  }
  if (!Counts(failure.blame)) return absl::OkStatus();
  if (tried.attempts < policy.attempts_max) return absl::OkStatus();
  // Whatever the last worker called it, for the client it means: gone, ask again.
  return absl::UnavailableError(absl::StrFormat("%d attempts failed; the last: %s", tried.attempts,
                                                std::string(failure.why.message())));
}

bool WriterAllowed(const Tried& tried, const RetryPolicy& policy) {
  if (tried.prefill_failures == 0) return true;
  // The last attempt after a lost writer depends on decode alone.
  return tried.prefill_failures == 1 && tried.attempts + 1 < policy.attempts_max;
}

}  // namespace baton::router
