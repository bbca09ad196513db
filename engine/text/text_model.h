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
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace baton::text {

// What `file` says about its tokenizer.
absl::StatusOr<TokenizerData> ReadTokenizerData(const engine::Gguf& file);

// A conversation as the model gets it.
struct RenderedChat {
  std::string text;
  std::vector<TokenId> ids;  // only the template's own markers are special
};

class TextModel {
 public:
  static absl::StatusOr<TextModel> Load(const engine::Gguf& file);

  const Tokenizer& tokenizer() const { return tokenizer_; }

  // A prompt that is not a conversation: bos first if the model wants one; markers in the
  // text stay text.
  absl::StatusOr<std::vector<TokenId>> EncodePrompt(absl::string_view prompt) const;

  // OK, or why the model cannot chat: FailedPrecondition, it has no template; InvalidArgument,
  // its template cannot be parsed.
  absl::Status chat_status() const { return template_.status(); }

  // A conversation through the model's template, which adds bos itself if the model wants one.
  // Fails: as chat_status(), or InvalidArgument if the conversation does not suit the template.
  absl::StatusOr<RenderedChat> RenderChat(const ChatInput& chat) const;

 private:
  TextModel(Tokenizer tokenizer, absl::StatusOr<ChatTemplate> chat_template)
      : tokenizer_(std::move(tokenizer)), template_(std::move(chat_template)) {}

  Tokenizer tokenizer_;
  absl::StatusOr<ChatTemplate> template_;
};

}  // namespace baton::text
