// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a client asked, as every process that works on it sees it: ids, never text.
//
// Values; copied and moved between threads.  Text (stop strings, detokenizing) stays
// in the front end.  Only remaining durations travel, never wall-clock times.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"

namespace baton {

// How the next token is drawn.  Order of application (as HF and vLLM): logit_bias,
// penalties, temperature, top_k, top_p, min_p.  temperature 0 is greedy.
struct SamplingParams {
  float temperature = 1.0f;         // [0, 2]
  float top_p = 1.0f;               // (0, 1]
  int32_t top_k = 0;                // 0: off
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0; prompt and outputs; divides positive logits
  float presence_penalty = 0.0f;    // [-2, 2]; outputs only
  float frequency_penalty = 0.0f;   // [-2, 2]; outputs only
  uint64_t seed = 0;                // drawn at admission if the client gave none
  uint32_t choice = 0;              // which of n; part of the random stream
  int32_t logprobs = -1;            // -1: none; else the chosen token's and this many of the best
  std::vector<std::pair<TokenId, float>> logit_bias;
  bool operator==(const SamplingParams&) const = default;
};

// One sequence to run: the prompt, what was already produced, and when to stop.
// Randomness depends on (seed, choice, output index), penalties on `outputs`, so an
// attempt may start anywhere in the answer (resume) and no sampler state travels.
struct Sequence {
  std::vector<TokenId> prompt;    // never empty
  std::vector<TokenId> outputs;   // already sent to the client; a resume starts behind them
  uint32_t remaining_tokens = 0;  // > 0; further output tokens at most
  uint32_t min_tokens = 0;        // stop_ids are not drawn before this output index
  std::vector<TokenId> stop_ids;  // end the answer (EOS and the client's); they are reported
  SamplingParams sampling;
  uint64_t cache_salt = 0;  // prefix cache entries are shared only under equal salts

  uint32_t size() const { return static_cast<uint32_t>(prompt.size() + outputs.size()); }
  TokenId at(uint32_t position) const {
    return position < prompt.size() ? prompt[position] : outputs[position - prompt.size()];
  }
  bool operator==(const Sequence&) const = default;
};

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
  bool operator==(const TokenLogprob&) const = default;
};

// One drawn token.  logprob and top are the raw model's (before temperature and
// penalties) and present only if asked for.
struct OutputToken {
  TokenId id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
  bool operator==(const OutputToken&) const = default;
};

}  // namespace baton
