// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Decoding rows first, then chunks of prompts as the budget allows.
#include "decode_worker/batch.h"

#include <algorithm>

#include "base/ensure.h"
#include "base/ids.h"

namespace baton::decode {

std::vector<Piece> PlanBatch(absl::Span<const Row> rows, uint32_t batch_tokens,
                             uint32_t beside_max) {
  ENSURE(batch_tokens > 0 && beside_max > 0);
  std::vector<Piece> pieces;
  for (const Row& row : rows) {
    ENSURE(row.computed < row.tokens);
    if (row.tokens - row.computed == 1) pieces.push_back({row.key, row.computed, row.tokens});
  }
  const auto decoding = static_cast<uint32_t>(pieces.size());
  uint32_t budget = batch_tokens > decoding ? batch_tokens - decoding : 0;
  budget = std::max(budget, std::min(batch_tokens, kBlockTokens));
  if (decoding > 0) budget = std::min(budget, beside_max);
  for (const Row& row : rows) {
    const uint32_t left = row.tokens - row.computed;
    if (left == 1) continue;
    if (budget == 0) break;
    const uint32_t taken = std::min(left, budget);
    pieces.push_back({row.key, row.computed, row.computed + taken});
    budget -= taken;
  }
  ENSURE(rows.empty() || !pieces.empty());
  return pieces;
}

}  // namespace baton::decode
