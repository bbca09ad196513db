// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Everything about text that a model file holds.
//
// Thread: immutable after Load; any number of threads may call, none waits.
// Fails:  Load: InvalidArgument names the file and what is wrong or unknown in it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "engine/gguf.h"
#include "engine/text/tokenizer.h"

namespace baton::text {

// What `file` says about its tokenizer.
absl::StatusOr<TokenizerData> ReadTokenizerData(const engine::Gguf& file);

class TextModel {
 public:
  static absl::StatusOr<TextModel> Load(const engine::Gguf& file);

  const Tokenizer& tokenizer() const { return tokenizer_; }

  // A prompt that is not a conversation: bos first if the model wants one; markers in the
  // text stay text.
  absl::StatusOr<std::vector<TokenId>> EncodePrompt(absl::string_view prompt) const;

 private:
  explicit TextModel(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  Tokenizer tokenizer_;
};

}  // namespace baton::text
