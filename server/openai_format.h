// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// OpenAI's answers as JSON: whole ones, and chunks as server-sent events.
//
// Pure.  Strings that are not UTF-8 (parts of characters in log-probabilities) get U+FFFD;
// log-probabilities that JSON cannot say become -9999.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "server/answer.h"
#include "server/http_server.h"
#include "server/openai_request.h"

namespace baton::server {

struct OpenAiUsage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
};

// What is the same in everything one request is answered with.
struct OpenAiFrame {
  OpenAiKind kind = OpenAiKind::kChat;
  std::string id;       // "chatcmpl-…" or "cmpl-…"
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool logprobs = false;
  bool usage_key = false;  // every chunk has the key usage
};

struct OpenAiChoice {
  std::string text;
  std::vector<AnswerToken> tokens;
  std::string finish;
};

std::string FormatWhole(const OpenAiFrame& frame, const std::vector<OpenAiChoice>& choices,
                        const OpenAiUsage& usage, const text::Tokenizer& tokenizer);

// One event each, with its blank line.  `usage` may be null.
std::string FormatRoleChunk(const OpenAiFrame& frame, uint32_t choice, const OpenAiUsage* usage);
std::string FormatTextChunk(const OpenAiFrame& frame, uint32_t choice, const AnswerDelta& delta,
                            const OpenAiUsage* usage, const text::Tokenizer& tokenizer);
std::string FormatFinishChunk(const OpenAiFrame& frame, uint32_t choice, const std::string& finish,
                              const OpenAiUsage* usage);
std::string FormatUsageChunk(const OpenAiFrame& frame, const OpenAiUsage& usage);
std::string FormatErrorEvent(const ApiError& error);

HttpResponse ToHttp(const ApiError& error);
// What an API client is told about a request that failed.
ApiError ToApiError(const absl::Status& status, absl::Duration retry_after);

}  // namespace baton::server
