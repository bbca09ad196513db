// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A model's chat template: a conversation in, the prompt's text out, with a mark on every
// part that says whether the template or a person wrote it.
//
// The language is Jinja as chat templates use it: for, if, set, macros, filters, tests,
// namespaces, with blocks trimmed.  No file, no clock, no attribute of anything but JSON
// can be reached from a template, and steps, memory and depth are bounded.
//
// Thread: immutable after Parse; any number of threads may render.
// Fails:  InvalidArgument "chat template: line N: EXCEPTION: what", with Python's name of
//         the exception; the conversation does not suit the template, or it is malformed.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/text/json_value.h"
#include "engine/text/template_ast.h"
#include "engine/text/tokenizer.h"

namespace baton::text {

inline constexpr size_t kTemplateBytesMax = 1u << 20;

// A conversation.  Everything in it was written by people.
struct ChatInput {
  JsonValue messages;  // an array of {"role": …, "content": …, …}
  bool add_generation_prompt = true;
  std::optional<JsonValue> tools;
  JsonValue::Object extra;        // further variables, e.g. {"enable_thinking", false}
  std::optional<absl::Time> now;  // what strftime_now tells; without it there is none
};

class ChatTemplate {
 public:
  // `bos_token` and `eos_token` are the texts that the template's variables of that name have.
  static absl::StatusOr<ChatTemplate> Parse(absl::string_view source, std::string bos_token,
                                            std::string eos_token);

  absl::StatusOr<std::vector<Fragment>> Render(const ChatInput& input) const;

 private:
  ChatTemplate(Block block, std::string bos_token, std::string eos_token)
      : block_(std::move(block)),
        bos_token_(std::move(bos_token)),
        eos_token_(std::move(eos_token)) {}

  Block block_;
  std::string bos_token_;
  std::string eos_token_;
};

// Messages whose "content" is a list of text parts, as the OpenAI API allows, with the parts
// joined by newlines.  InvalidArgument: not an array of objects, or a part that is not text.
absl::StatusOr<JsonValue> FlattenContent(JsonValue messages);

}  // namespace baton::text
