// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/score.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/status_macros.h"
#include "engine/softmax.h"

namespace baton::engine {

Scorer::Scorer(Forward* forward, KvType type, uint32_t chunk)
    : forward_(forward), type_(type), chunk_(chunk) {
  ENSURE(chunk > 0);
}

absl::Status Scorer::Check(absl::Span<const TokenId> ids,
                           absl::Span<const uint32_t> positions) const {
  const ModelSpec& spec = forward_->spec();
  if (ids.empty()) return absl::InvalidArgumentError("no ids");
  if (ids.size() > spec.context) {
    return absl::InvalidArgumentError(
        absl::StrCat(ids.size(), " ids; the model's context is ", spec.context));
  }
  for (const TokenId id : ids) {
    if (id < 0 || static_cast<uint32_t>(id) >= spec.vocab) {
      return absl::InvalidArgumentError(
          absl::StrCat("id ", id, " is not in the vocabulary of ", spec.vocab));
    }
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] >= ids.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("position ", positions[i], " of ", ids.size(), " ids"));
    }
    if (i > 0 && positions[i] <= positions[i - 1]) {
      return absl::InvalidArgumentError("positions do not ascend");
    }
  }
  return absl::OkStatus();
}

void Scorer::Grow(uint32_t blocks) {
  if (blocks <= blocks_.size()) return;
  const ModelSpec& spec = forward_->spec();
  pool_.layout = {spec.layers, spec.kv_heads, spec.head_dim, blocks, type_};
  memory_ = std::make_unique<uint8_t[]>(pool_.layout.pool_bytes());
  pool_.base = memory_.get();
  blocks_.resize(blocks);
  for (uint32_t i = 0; i < blocks; ++i) blocks_[i] = i;
}

absl::Status Scorer::Run(absl::Span<const TokenId> ids, absl::Span<const uint32_t> positions,
                         const Row& row) {
  RETURN_IF_ERROR(Check(ids, positions));
  Grow(BlocksFor(ids.size()));
  const size_t vocab = forward_->spec().vocab;
  size_t next = 0;  // of positions
  for (size_t start = 0; start < ids.size(); start += chunk_) {
    const size_t end = std::min<size_t>(ids.size(), start + chunk_);
    const bool any = next < positions.size() && positions[next] < end;
    const bool last_only = any && positions[next] == end - 1;
    ForwardSlice slice;
    slice.tokens = ids.subspan(start, end - start);
    slice.position = static_cast<uint32_t>(start);
    slice.block_table = absl::MakeConstSpan(blocks_).subspan(0, BlocksFor(end));
    slice.logits = !any        ? ForwardSlice::Logits::kNone
                   : last_only ? ForwardSlice::Logits::kLast
                               : ForwardSlice::Logits::kAll;
    forward_->Run({&slice, 1}, pool_, {}, logits_);
    for (; next < positions.size() && positions[next] < end; ++next) {
      const size_t index = last_only ? 0 : positions[next] - start;
      row(positions[next], absl::MakeConstSpan(logits_).subspan(index * vocab, vocab));
    }
    if (next == positions.size()) break;  // nobody wants the rest
  }
  return absl::OkStatus();
}

absl::StatusOr<WindowScore> ScoreWindow(Scorer& scorer, absl::Span<const TokenId> window) {
  std::vector<uint32_t> positions;
  for (size_t p = window.size() / 2; p + 1 < window.size(); ++p) {
    positions.push_back(static_cast<uint32_t>(p));
  }
  WindowScore score;
  std::vector<float> weights;
  std::vector<double> block_sums;
  RETURN_IF_ERROR(
      scorer.Run(window, positions, [&](uint32_t position, absl::Span<const float> logits) {
        const double log_sum = LogSumExp(logits, weights, block_sums);
        score.nll_sum += log_sum - logits[window[position + 1]];
        ++score.tokens;
      }));
  return score;
}

}  // namespace baton::engine
