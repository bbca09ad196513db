// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// OpenAI's request bodies, read and checked: JSON bytes in, plain values or an ApiError out.
//
// An explicit null is an absent field; unknown fields are ignored.  Known fields that would
// change the answer and that Baton does not have (tools, JSON schemas, …) are refused, never
// ignored in silence.  Pure; any thread; any input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/request.h"

namespace baton::server {

// What a client is told when its request fails; OpenAI's four keys and the HTTP status.
struct ApiError {
  int status = 400;
  std::string message;
  std::string type = "invalid_request_error";
  std::string param;           // empty: null
  std::string code;            // empty: null
  absl::Duration retry_after;  // 0: no Retry-After
};

enum class OpenAiKind { kChat, kCompletions };

struct ChatMessage {
  std::string role;
  std::string content;
};

struct OpenAiRequest {
  OpenAiKind kind = OpenAiKind::kChat;
  std::string model;                                                     // empty: the served one
  std::vector<ChatMessage> messages;                                     // chat
  std::vector<std::variant<std::string, std::vector<TokenId>>> prompts;  // completions
  uint32_t n = 1;
  std::optional<uint32_t> max_tokens;
  uint32_t min_tokens = 0;
  SamplingParams sampling;  // its seed is `seed`, if given; ids are not yet checked
  std::optional<uint64_t> seed;
  std::vector<std::string> stops;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;
  bool echo = false;
  bool add_special_tokens = true;  // completions: bos in front of a text prompt
  std::string cache_salt;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
};

std::optional<ApiError> ParseOpenAi(OpenAiKind kind, absl::string_view body, OpenAiRequest* to);

struct TokenizeBody {
  std::string model;
  std::string text;
  std::vector<ChatMessage> messages;  // instead of text
  bool chat = false;
  bool content_form = false;  // llama.cpp's "content" instead of vLLM's "prompt"
  bool add_special = false;
  bool parse_special = false;
  bool with_pieces = false;
};
std::optional<ApiError> ParseTokenize(absl::string_view body, TokenizeBody* to);

struct DetokenizeBody {
  std::string model;
  std::vector<TokenId> tokens;
};
std::optional<ApiError> ParseDetokenize(absl::string_view body, DetokenizeBody* to);

}  // namespace baton::server
