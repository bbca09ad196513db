// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/openai_format.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace baton::server {
namespace {

using json = nlohmann::ordered_json;

std::string Dump(const json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

std::string Event(const json& value) { return absl::StrCat("data: ", Dump(value), "\n\n"); }

double Finite(float logprob) { return std::isfinite(logprob) ? logprob : -9999.0; }

json Bytes(absl::string_view bytes) {
  json list = json::array();
  for (const char c : bytes) list.push_back(static_cast<uint8_t>(c));
  return list;
}

json ChatLogprobs(const std::vector<AnswerToken>& tokens, const text::Tokenizer& tokenizer) {
  json content = json::array();
  for (const AnswerToken& token : tokens) {
    json top = json::array();
    for (const TokenLogprob& one : token.token.top) {
      const std::string bytes(tokenizer.Bytes(one.id));
      top.push_back({{"token", bytes}, {"logprob", Finite(one.logprob)}, {"bytes", Bytes(bytes)}});
    }
    content.push_back({{"token", token.bytes},
                       {"logprob", Finite(token.token.logprob)},
                       {"bytes", Bytes(token.bytes)},
                       {"top_logprobs", std::move(top)}});
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

json CompletionLogprobs(const std::vector<AnswerToken>& tokens, const text::Tokenizer& tokenizer) {
  json names = json::array(), logprobs = json::array();
  json tops = json::array(), offsets = json::array();
  for (const AnswerToken& token : tokens) {
    json top = json::object();
    for (const TokenLogprob& one : token.token.top) {
      top[std::string(tokenizer.Bytes(one.id))] = Finite(one.logprob);
    }
    top[token.bytes] = Finite(token.token.logprob);
    names.push_back(token.bytes);
    logprobs.push_back(Finite(token.token.logprob));
    tops.push_back(std::move(top));
    offsets.push_back(token.text_offset);
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

json Logprobs(const OpenAiFrame& frame, const std::vector<AnswerToken>& tokens,
              const text::Tokenizer& tokenizer) {
  if (!frame.logprobs) return nullptr;
  return frame.kind == OpenAiKind::kChat ? ChatLogprobs(tokens, tokenizer)
                                         : CompletionLogprobs(tokens, tokenizer);
}

json UsageOf(const OpenAiUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

json Frame(const OpenAiFrame& frame, const char* object) {
  return {{"id", frame.id},
          {"object", object},
          {"created", frame.created},
          {"model", frame.model},
          {"system_fingerprint", nullptr}};
}

json Chunk(const OpenAiFrame& frame, json choices, const OpenAiUsage* usage) {
  json chunk =
      Frame(frame, frame.kind == OpenAiKind::kChat ? "chat.completion.chunk" : "text_completion");
  chunk["choices"] = std::move(choices);
  if (usage != nullptr) {
    chunk["usage"] = UsageOf(*usage);
  } else if (frame.usage_key) {
    chunk["usage"] = nullptr;
  }
  return chunk;
}

}  // namespace

std::string FormatWhole(const OpenAiFrame& frame, const std::vector<OpenAiChoice>& choices,
                        const OpenAiUsage& usage, const text::Tokenizer& tokenizer) {
  const bool chat = frame.kind == OpenAiKind::kChat;
  json whole = Frame(frame, chat ? "chat.completion" : "text_completion");
  json list = json::array();
  for (size_t i = 0; i < choices.size(); ++i) {
    json choice = {{"index", i}};
    if (chat) {
      choice["message"] = {
          {"role", "assistant"}, {"content", choices[i].text}, {"refusal", nullptr}};
    } else {
      choice["text"] = choices[i].text;
    }
    choice["logprobs"] = Logprobs(frame, choices[i].tokens, tokenizer);
    choice["finish_reason"] = choices[i].finish;
    list.push_back(std::move(choice));
  }
  whole["choices"] = std::move(list);
  whole["usage"] = UsageOf(usage);
  return Dump(whole);
}

std::string FormatRoleChunk(const OpenAiFrame& frame, uint32_t choice, const OpenAiUsage* usage) {
  return Event(Chunk(frame,
                     json::array({{{"index", choice},
                                   {"delta", {{"role", "assistant"}, {"content", ""}}},
                                   {"logprobs", nullptr},
                                   {"finish_reason", nullptr}}}),
                     usage));
}

std::string FormatTextChunk(const OpenAiFrame& frame, uint32_t choice, const AnswerDelta& delta,
                            const OpenAiUsage* usage, const text::Tokenizer& tokenizer) {
  json one = {{"index", choice}};
  if (frame.kind == OpenAiKind::kChat) {
    one["delta"] = {{"content", delta.text}};
  } else {
    one["text"] = delta.text;
  }
  one["logprobs"] = Logprobs(frame, delta.tokens, tokenizer);
  one["finish_reason"] = nullptr;
  return Event(Chunk(frame, json::array({std::move(one)}), usage));
}

std::string FormatFinishChunk(const OpenAiFrame& frame, uint32_t choice, const std::string& finish,
                              const OpenAiUsage* usage) {
  json one = {{"index", choice}};
  if (frame.kind == OpenAiKind::kChat) {
    one["delta"] = json::object();
  } else {
    one["text"] = "";
  }
  one["logprobs"] = nullptr;
  one["finish_reason"] = finish;
  return Event(Chunk(frame, json::array({std::move(one)}), usage));
}

std::string FormatUsageChunk(const OpenAiFrame& frame, const OpenAiUsage& usage) {
  return Event(Chunk(frame, json::array(), &usage));
}

std::string FormatErrorEvent(const ApiError& error) {
  return absl::StrCat("data: ", ToHttp(error).body, "\n\n");
}

HttpResponse ToHttp(const ApiError& error) {
  HttpResponse response =
      HttpError(error.status, error.message, error.type, error.param, error.code);
  if (error.retry_after > absl::ZeroDuration()) {
    const int64_t seconds =
        std::max<int64_t>(1, absl::ToInt64Seconds(absl::Ceil(error.retry_after, absl::Seconds(1))));
    response.headers.emplace_back("Retry-After", absl::StrCat(seconds));
  }
  return response;
}

ApiError ToApiError(const absl::Status& status, absl::Duration retry_after) {
  ApiError error;
  error.message = std::string(status.message());
  error.retry_after = retry_after;
  error.type = "server_error";
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
      error.status = 400;
      error.type = "invalid_request_error";
      break;
    case absl::StatusCode::kOutOfRange:
      error.status = 400;
      error.type = "invalid_request_error";
      error.code = "context_length_exceeded";
      break;
    case absl::StatusCode::kNotFound:
      error.status = 404;
      error.type = "invalid_request_error";
      break;
    case absl::StatusCode::kResourceExhausted:
      error.status = 429;
      error.type = "rate_limit_error";
      error.code = "rate_limit_exceeded";
      break;
    case absl::StatusCode::kUnavailable:
      error.status = 503;
      error.code = "server_is_overloaded";
      break;
    case absl::StatusCode::kDeadlineExceeded:
      error.status = 504;
      error.code = "deadline_exceeded";
      break;
    default:
      error.status = 500;
      break;
  }
  return error;
}

}  // namespace baton::server
