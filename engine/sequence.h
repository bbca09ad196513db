// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What both workers need to know about a Sequence before and while an engine runs it.
//
// Pure functions.  CheckSequence is given what a peer sent; after it the engine may trust
// every id.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/request.h"
#include "engine/engine.h"

namespace baton::engine {

// INVALID_ARGUMENT unless the sequence can be run: ids inside the vocabulary, at least one
// token to draw, shorter than `context_max`, sampling parameters in their ranges.
absl::Status CheckSequence(const Sequence& sequence, uint32_t vocab_size, uint32_t context_max);

// How the token behind sequence.outputs is drawn.
SampleSpec NextSample(const Sequence& sequence);

// The tokens of positions [begin, end).
std::vector<TokenId> TokensOf(const Sequence& sequence, uint32_t begin, uint32_t end);

}  // namespace baton::engine
