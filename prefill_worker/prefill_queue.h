// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Order and chunking of prompts: pure, so that it is tested as a function.
//
// First come, first served.  A step has a budget of tokens; the oldest prompt takes what it
// can use, and what is left goes to the next ones, so that short prompts share a step.
// Chunks end at block borders, except at the prompt's end: every block is completed, and
// pushed, by exactly one chunk.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace baton::prefill {

struct Prompt {
  uint64_t key = 0;
  uint32_t computed = 0;  // a multiple of the block size
  uint32_t tokens = 0;    // > computed
};

// Positions [begin, end) of one prompt.
struct Chunk {
  uint64_t key = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Chunk&) const = default;
};

// The next step's chunks.  REQUIRES: `prompts` oldest first; `chunk_tokens` is a multiple of
// the block size and not 0.  Not empty unless `prompts` is.
std::vector<Chunk> PlanStep(absl::Span<const Prompt> prompts, uint32_t chunk_tokens);

}  // namespace baton::prefill
