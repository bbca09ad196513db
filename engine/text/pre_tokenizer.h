// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Cuts text into the pieces that byte-level BPE merges within.
//
// A model file carries only the *name* of its pre-tokenizer; the regular expression behind
// the name is written here by hand as a scanner: linear time, no recursion, no look-behind,
// whatever the text.  An unknown name is an error, because any other scanner would give
// other ids without a sign of it.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::text {

enum class PreTokenizer : uint8_t {
  kGpt2,            // contractions, words, numbers, punctuation, each with one space in front
  kDigitsThenGpt2,  // every digit is a piece, GPT-2's rule in between
  kLlama3,          // words take one other character in front; numbers in threes; newlines bind
};

// InvalidArgument names the name if it is not known.
absl::StatusOr<PreTokenizer> PreTokenizerByName(absl::string_view name);

// Whether a piece that is a token as a whole is taken as it is, whatever merging would give.
bool TakesWholePieces(PreTokenizer kind);

// Appends the end offset of each piece, in order; together the pieces are `text`.
// REQUIRES: legal UTF-8, less than 4 GiB.
void Split(PreTokenizer kind, absl::string_view text, std::vector<uint32_t>& ends);

}  // namespace baton::text
