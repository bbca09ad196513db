// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/ensure.h"
#include "base/random.h"
#include "engine/softmax.h"

namespace baton::engine {
namespace {

constexpr float kAbsent = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// The logit without its NaN and infinities.
float Bounded(float logit) {
  const float bounded = logit > kLargest ? kLargest : logit;
  return bounded == bounded ? bounded : kAbsent;
}

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1 || params.presence_penalty != 0 ||
         params.frequency_penalty != 0;
}

bool CutsAnything(const SamplingParams& params) {
  return params.top_k > 0 || params.top_p < 1 || params.min_p > 0;
}

}  // namespace

Sampler::Sampler(uint32_t vocab, std::vector<TokenId> holes)
    : vocab_(vocab), holes_(std::move(holes)), seen_(vocab), seen_output_(vocab) {}

OutputToken Sampler::Draw(absl::Span<const float> logits, const SampleSpec& spec) {
  ENSURE(logits.size() == vocab_ && vocab_ > 0);
  const SamplingParams& params = spec.params;
  OutputToken token;
  if (IsPlainGreedy(spec)) {
    const size_t best = FirstMaxOf(logits);
    if (std::isfinite(logits[best])) {
      token.id = static_cast<TokenId>(best);
      return token;
    }
  }
  Copy(logits);
  double log_sum = 0;
  if (params.logprobs >= 0) {
    log_sum = LogSumExp(scores_, weights_, block_sums_);
    ReportTop(params, token);
    for (TokenLogprob& top : token.top) {
      top.logprob = static_cast<float>(top.logprob - log_sum);
    }
  }
  Bias(params);
  Penalize(spec);
  Ban(spec.banned);
  if (params.temperature <= 0) {
    token.id = Greedy();
  } else {
    const SoftmaxSums sums = SoftmaxWeights(scores_, params.temperature, weights_, block_sums_);
    const double u = UnitInterval(CounterRandom(params.seed, params.choice, spec.output_index));
    if (!(sums.sum > 0)) {
      token.id = Greedy();
    } else if (CutsAnything(params)) {
      token.id = DrawFromBest(params, sums.sum, u);
    } else {
      token.id = DrawFromAll(u * sums.sum);
    }
  }
  if (params.logprobs >= 0) {
    token.logprob = static_cast<float>(Bounded(logits[token.id]) - log_sum);
  }
  return token;
}

// The best logit as it is: nothing to change in the row, and nothing to say about it.
bool Sampler::IsPlainGreedy(const SampleSpec& spec) const {
  const SamplingParams& params = spec.params;
  return params.temperature <= 0 && params.logprobs < 0 && params.logit_bias.empty() &&
         !HasPenalties(params) && spec.banned.empty() && holes_.empty();
}

void Sampler::Copy(absl::Span<const float> logits) {
  scores_.resize(vocab_);
  for (size_t i = 0; i < vocab_; ++i) scores_[i] = Bounded(logits[i]);
  Ban(holes_);
}

void Sampler::Bias(const SamplingParams& params) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (InVocabulary(id)) scores_[id] = std::min(scores_[id] + bias, kLargest);
  }
}

void Sampler::Penalize(const SampleSpec& spec) {
  const SamplingParams& params = spec.params;
  if (!HasPenalties(params)) return;
  for (size_t i = 0; i < spec.history.size(); ++i) {
    const TokenId id = spec.history[i];
    if (!InVocabulary(id)) continue;
    ++seen_[id];
    if (i >= spec.prompt_tokens) ++seen_output_[id];
  }
  for (const TokenId id : spec.history) {
    if (!InVocabulary(id) || seen_[id] == 0) continue;
    float& score = scores_[id];
    score = score > 0 ? score / params.repetition_penalty : score * params.repetition_penalty;
    const uint32_t outputs = seen_output_[id];
    score -= params.frequency_penalty * static_cast<float>(outputs);
    if (outputs > 0) score -= params.presence_penalty;
    score = std::min(score, kLargest);
    seen_[id] = 0;
    seen_output_[id] = 0;
  }
}

void Sampler::Ban(absl::Span<const TokenId> ids) {
  for (const TokenId id : ids) {
    if (InVocabulary(id)) scores_[id] = kAbsent;
  }
}

// The raw scores of the best; the caller turns them into log-probabilities.
void Sampler::ReportTop(const SamplingParams& params, OutputToken& token) {
  KeepBest(static_cast<size_t>(params.logprobs));
  for (const Candidate& candidate : candidates_) {
    token.top.push_back({candidate.id, candidate.score});
  }
}

TokenId Sampler::Greedy() const { return static_cast<TokenId>(FirstMaxOf(scores_)); }

TokenId Sampler::DrawFromAll(double mass) const {
  size_t block = 0;
  double before = 0;
  while (block + 1 < block_sums_.size() && before + block_sums_[block] <= mass) {
    before += block_sums_[block++];
  }
  // Rounding may leave a hair of mass at the end of a block: then its last token gets it.
  TokenId last = -1;
  double sum = before;
  const size_t end = std::min<size_t>(vocab_, (block + 1) * kSumBlock);
  for (size_t id = block * kSumBlock; id < end; ++id) {
    if (weights_[id] == 0) continue;
    last = static_cast<TokenId>(id);
    sum += weights_[id];
    if (sum > mass) return last;
  }
  return last >= 0 ? last : Greedy();
}

TokenId Sampler::DrawFromBest(const SamplingParams& params, double total, double u) {
  if (params.top_k > 0) {
    KeepTopK(params);
  } else if (params.top_p < 1) {
    KeepTopP(params.top_p, total);
  } else {
    CollectAbove(std::max(params.min_p, std::numeric_limits<float>::min()));
  }
  if (params.min_p > 0) {
    std::erase_if(candidates_, [&](const Candidate& c) { return c.weight < params.min_p; });
  }
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double kept = 0;
  for (const Candidate& candidate : candidates_) kept += candidate.weight;
  double sum = 0;
  for (const Candidate& candidate : candidates_) {
    sum += candidate.weight;
    if (sum > u * kept) return candidate.id;
  }
  ENSURE(!candidates_.empty());  // the best token passes every cut
  return candidates_.back().id;
}

void Sampler::KeepTopK(const SamplingParams& params) {
  KeepBest(static_cast<size_t>(params.top_k));
  if (params.top_p >= 1) return;
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  CutAt(params.top_p * total);
}

// Sorts no more than it needs: tokens above a falling bar, until they hold the mass.
void Sampler::KeepTopP(float top_p, double total) {
  const double mass = top_p * total;
  for (const float bar :
       {0x1p-4f, 0x1p-8f, 0x1p-12f, 0x1p-16f, 0x1p-24f, std::numeric_limits<float>::min()}) {
    CollectAbove(bar);
    double above = 0;
    for (const Candidate& candidate : candidates_) above += candidate.weight;
    if (above > mass * (1 + 1e-9)) break;
  }
  std::sort(candidates_.begin(), candidates_.end(), Better);
  CutAt(mass);
}

// Keeps the shortest front part of the sorted candidates that holds `mass`.
void Sampler::CutAt(double mass) {
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    sum += candidates_[i].weight;
    if (sum >= mass) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

// The best `count` of the present tokens, best first.
void Sampler::KeepBest(size_t count) {
  candidates_.clear();
  count = std::min<size_t>(count, vocab_);
  if (count == 0) return;
  float bar = kAbsent;
  for (uint32_t id = 0; id < vocab_; ++id) {
    const float score = scores_[id];
    // Ids rise, so a token equal to the worst one kept never replaces it.
    if (!(score > bar)) continue;
    candidates_.push_back({score, weights_.empty() ? 0 : weights_[id], static_cast<TokenId>(id)});
    if (candidates_.size() < 2 * count) continue;
    std::nth_element(candidates_.begin(), candidates_.begin() + count - 1, candidates_.end(),
                     Better);
    candidates_.resize(count);
    bar = candidates_.back().score;
  }
  std::sort(candidates_.begin(), candidates_.end(), Better);
  candidates_.resize(std::min(candidates_.size(), count));
}

void Sampler::CollectAbove(float weight_min) {
  candidates_.clear();
  for (uint32_t id = 0; id < vocab_; ++id) {
    if (weights_[id] >= weight_min) {
      candidates_.push_back({scores_[id], weights_[id], static_cast<TokenId>(id)});
    }
  }
}

}  // namespace baton::engine
