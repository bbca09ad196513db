// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/admission.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/ensure.h"

namespace baton::router {
namespace {

uint64_t TokensMax(const Capacity& capacity) {
  return std::min<uint64_t>(capacity.context_tokens, capacity.pool_tokens);
}

}  // namespace

absl::Status CheckAdmission(const Sequence& sequence, const Capacity& capacity,
                            const Waiting& waiting, const AdmissionLimits& limits) {
  const uint64_t prompt = sequence.prompt.size();
  if (prompt == 0) return absl::InvalidArgumentError("the prompt is empty");
  if (sequence.remaining_tokens == 0) {
    return absl::InvalidArgumentError("no tokens were asked for");
  }
  if (capacity.context_tokens > 0 && prompt >= capacity.context_tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the prompt has %d tokens; prompt and answer must fit the context of %d",
                        prompt, capacity.context_tokens));
  }
  if (capacity.pool_tokens > 0 && prompt >= capacity.pool_tokens) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the prompt has %d tokens; the largest decode pool holds %d", prompt,
                        capacity.pool_tokens));
  }
  if (prompt > limits.queue_tokens) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "the prompt has %d tokens; the queue admits %d", prompt, limits.queue_tokens));
  }
  if (capacity.draining) return absl::UnavailableError("this front end is shutting down");
  if (!capacity.any_usable || TokensMax(capacity) == 0) {
    return absl::UnavailableError("no decode worker is ready");
  }
  if (waiting.requests >= limits.queue_requests) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d requests are waiting already", waiting.requests));
  }
  if (waiting.tokens + prompt > limits.queue_tokens) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%d prompt tokens are waiting already", waiting.tokens));
  }
  return absl::OkStatus();
}

uint32_t RemainingWithin(const Sequence& sequence, const Capacity& capacity) {
  const uint64_t tokens_max = TokensMax(capacity);
  ENSURE(sequence.prompt.size() < tokens_max);
  return static_cast<uint32_t>(
      std::min<uint64_t>(sequence.remaining_tokens, tokens_max - sequence.prompt.size()));
}

}  // namespace baton::router
