// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which sequences run in the next step: pure, so that it is tested as a function.
//
// Every sequence that only lacks its last token gets it (one row each): tokens that clients
// wait for come first.  What is left of the budget goes to prompts, oldest first, in chunks;
// when rows alone use the budget up, the oldest prompt still gets one block's worth.  Beside
// such rows prompts get `beside_max` tokens at most (step_pace.h).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace baton::decode {

struct Row {
  uint64_t key = 0;
  uint32_t computed = 0;  // positions whose KV is in the sequence's blocks
  uint32_t tokens = 0;    // known so far; > computed
};

// Positions [begin, end) of one sequence.
struct Piece {
  uint64_t key = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Piece&) const = default;
};

// REQUIRES: `rows` oldest first; batch_tokens and beside_max > 0.  Not empty unless `rows` is.
std::vector<Piece> PlanBatch(absl::Span<const Row> rows, uint32_t batch_tokens,
                             uint32_t beside_max);

}  // namespace baton::decode
