// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Checks of a foreign Sequence, and what an engine is told about its next token.
#include "engine/sequence.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ensure.h"
#include "base/status_macros.h"

namespace baton::engine {
namespace {

constexpr int32_t kLogprobsMax = 64;

absl::Status CheckIds(absl::Span<const TokenId> ids, uint32_t vocab_size, absl::string_view what) {
  for (const TokenId id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, " id ", id, " is outside the vocabulary of ", vocab_size));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSampling(const SamplingParams& params, uint32_t vocab_size) {
  const auto between = [](float value, float low, float high) {
    return value >= low && value <= high;  // false for NaN
  };
  if (!between(params.temperature, 0, 2)) return absl::InvalidArgumentError("bad temperature");
  if (!between(params.top_p, 0, 1)) return absl::InvalidArgumentError("bad top_p");
  if (params.top_k < 0) return absl::InvalidArgumentError("bad top_k");
  if (!between(params.min_p, 0, 1)) return absl::InvalidArgumentError("bad min_p");
  if (!(params.repetition_penalty > 0) || !std::isfinite(params.repetition_penalty)) {
    return absl::InvalidArgumentError("bad repetition_penalty");
  }
  if (!between(params.presence_penalty, -2, 2) || !between(params.frequency_penalty, -2, 2)) {
    return absl::InvalidArgumentError("bad presence or frequency penalty");
  }
  if (params.logprobs < -1 || params.logprobs > kLogprobsMax) {
    return absl::InvalidArgumentError("bad logprobs");
  }
  for (const auto& [id, bias] : params.logit_bias) {
    RETURN_IF_ERROR(CheckIds({id}, vocab_size, "logit_bias"));
    if (std::isnan(bias)) return absl::InvalidArgumentError("bad logit_bias");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSequence(const Sequence& sequence, uint32_t vocab_size, uint32_t context_max) {
  if (sequence.prompt.empty()) return absl::InvalidArgumentError("the prompt is empty");
  if (sequence.remaining_tokens == 0) return absl::InvalidArgumentError("no tokens to draw");
  const uint64_t size = uint64_t{sequence.prompt.size()} + sequence.outputs.size();
  if (size >= context_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(size, " tokens do not fit the context of ", context_max));
  }
  RETURN_IF_ERROR(CheckIds(sequence.prompt, vocab_size, "prompt"));
  RETURN_IF_ERROR(CheckIds(sequence.outputs, vocab_size, "output"));
  RETURN_IF_ERROR(CheckIds(sequence.stop_ids, vocab_size, "stop"));
  if (sequence.stop_ids.size() >= vocab_size) {
    return absl::InvalidArgumentError("every token is a stop id");
  }
  return CheckSampling(sequence.sampling, vocab_size);
}

SampleSpec NextSample(const Sequence& sequence) {
  const SamplingParams& params = sequence.sampling;
  SampleSpec spec;
  spec.params = params;
  spec.output_index = static_cast<uint32_t>(sequence.outputs.size());
  spec.prompt_tokens = static_cast<uint32_t>(sequence.prompt.size());
  const bool penalties = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                         params.frequency_penalty != 0.0f;
  if (penalties) spec.history = TokensOf(sequence, 0, sequence.size());
  if (spec.output_index < sequence.min_tokens) spec.banned = sequence.stop_ids;
  return spec;
}

std::vector<TokenId> TokensOf(const Sequence& sequence, uint32_t begin, uint32_t end) {
  ENSURE(begin <= end && end <= sequence.size());
  std::vector<TokenId> tokens;
  tokens.reserve(end - begin);
  for (uint32_t position = begin; position < end; ++position) {
    tokens.push_back(sequence.at(position));
  }
  return tokens;
}

}  // namespace baton::engine
