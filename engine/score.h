// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a model thinks of given tokens: rows of logits at chosen positions, and perplexity.
//
// A Scorer runs one sequence at a time from an empty cache, in chunks, with a KV pool of
// its own.  The rows do not depend on the chunk size (K8).
//
// Thread:    one, which also computes.
// Ownership: the Forward is borrowed.
// Cost:      memory for the KV of the longest sequence so far, and for the logits of the
//            wanted rows of one chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "engine/forward.h"
#include "engine/kv_layout.h"

namespace baton::engine {

class Scorer {
 public:
  // Called with a position and the logits behind it; they live as long as the call.
  using Row = std::function<void(uint32_t, absl::Span<const float>)>;

  // REQUIRES: chunk > 0.
  Scorer(Forward* forward, KvType type, uint32_t chunk);

  // Runs `ids`; `row` is called for each of `positions`, which ascend.  InvalidArgument
  // for no ids, an id outside the vocabulary, more ids than the context holds, or a
  // position that is not in `ids` or not larger than the one before.
  absl::Status Run(absl::Span<const TokenId> ids, absl::Span<const uint32_t> positions,
                   const Row& row);

 private:
  absl::Status Check(absl::Span<const TokenId> ids, absl::Span<const uint32_t> positions) const;
  void Grow(uint32_t blocks);

  Forward* const forward_;
  const KvType type_;
  const uint32_t chunk_;
  std::unique_ptr<uint8_t[]> memory_;
  KvPool pool_;
  std::vector<BlockIndex> blocks_;
  std::vector<float> logits_;
};

// The sum of -log p of the second half of a window's tokens, each predicted from all
// before it: of tokens [size / 2 + 1, size).  This is llama.cpp's measure.
struct WindowScore {
  double nll_sum = 0;
  uint32_t tokens = 0;
};
absl::StatusOr<WindowScore> ScoreWindow(Scorer& scorer, absl::Span<const TokenId> window);

}  // namespace baton::engine
