// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// First come, first served, with one budget of tokens a step.
#include "prefill_worker/prefill_queue.h"

#include <algorithm>

#include "base/ensure.h"
#include "base/ids.h"

namespace baton::prefill {

std::vector<Chunk> PlanStep(absl::Span<const Prompt> prompts, uint32_t chunk_tokens) {
  ENSURE(chunk_tokens > 0 && chunk_tokens % kBlockTokens == 0);
  std::vector<Chunk> chunks;
  uint32_t budget = chunk_tokens;
  for (const Prompt& prompt : prompts) {
    ENSURE(prompt.computed < prompt.tokens && prompt.computed % kBlockTokens == 0);
    const uint32_t left = prompt.tokens - prompt.computed;
    uint32_t taken = std::min(left, budget);
    if (taken < left) taken -= taken % kBlockTokens;
    if (taken == 0) continue;
    chunks.push_back({prompt.key, prompt.computed, prompt.computed + taken});
    budget -= taken;
    if (budget == 0) break;
  }
  ENSURE(prompts.empty() || !chunks.empty());
  return chunks;
}

}  // namespace baton::prefill
