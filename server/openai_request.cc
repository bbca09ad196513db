// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/openai_request.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/json_fields.h"

namespace baton::server {
namespace {

using nlohmann::json;

constexpr uint32_t kChoicesMax = 128;
constexpr size_t kStopsMax = 4;
constexpr size_t kStopIdsMax = 128;
constexpr size_t kLogitBiasMax = 1024;
constexpr size_t kPromptsMax = 1024;
constexpr size_t kPromptIdsMax = 16u << 20;
constexpr int64_t kTokensMax = INT32_MAX;

// Text of a message: a string, null, or an array of text parts, which are joined.
void GetContent(const json& message, JsonFields* fields, std::string* to) {
  const auto found = message.find("content");
  if (found == message.end() || found->is_null()) {
    if (message.value("role", json()) != "assistant") {
      fields->Fail("content", "is missing", "missing_required_parameter");
    }
    return;
  }
  if (found->is_string()) {
    *to = found->get<std::string>();
    return;
  }
  if (!found->is_array()) {
    return fields->Fail("content", "must be a string or an array of parts", "invalid_type");
  }
  for (const json& part : *found) {
    const bool text = part.is_object() && part.value("type", json()) == "text" &&
                      part.contains("text") && part["text"].is_string();
    if (!text) return fields->Fail("content", "may hold parts of type 'text' only");
    *to += part["text"].get<std::string>();
  }
}

void GetMessages(JsonFields* fields, std::vector<ChatMessage>* to) {
  const json* list = fields->Find("messages");
  if (list == nullptr) {
    return fields->Fail("messages", "is missing", "missing_required_parameter");
  }
  if (!list->is_array()) return fields->Fail("messages", "must be an array", "invalid_type");
  if (list->empty()) return fields->Fail("messages", "must not be empty");
  for (size_t i = 0; i < list->size() && fields->ok(); ++i) {
    const json& one = (*list)[i];
    const std::string prefix = absl::StrCat("messages[", i, "].");
    if (!one.is_object()) {
      return fields->Fail(absl::StrCat("messages[", i, "]"), "must be an object", "invalid_type");
    }
    JsonFields message(one, prefix);
    ChatMessage& into = to->emplace_back();
    message.Get("role", &into.role);
    static constexpr absl::string_view kRoles[] = {"system",    "developer", "user",
                                                   "assistant", "tool",      "function"};
    if (std::find(std::begin(kRoles), std::end(kRoles), into.role) == std::end(kRoles)) {
      message.Fail("role", "must be one of system, developer, user, assistant, tool");
    }
    if (into.role == "developer") into.role = "system";  // templates know that name
    message.Refuse("tool_calls", json::array());
    message.Refuse("function_call", nullptr);
    GetContent(one, &message, &into.content);
    fields->Take(message.error());
  }
}

void GetPrompts(JsonFields* fields, OpenAiRequest* to) {
  const json* prompt = fields->Find("prompt");
  if (prompt == nullptr) {
    return fields->Fail("prompt", "is missing", "missing_required_parameter");
  }
  if (prompt->is_string()) {
    to->prompts.emplace_back(prompt->get<std::string>());
    return;
  }
  if (!prompt->is_array()) {
    return fields->Fail("prompt", "must be a string, token ids, or an array of either",
                        "invalid_type");
  }
  if (prompt->empty()) return fields->Fail("prompt", "must not be empty");
  if (prompt->front().is_number()) {
    to->prompts.emplace_back(std::vector<TokenId>());
    fields->GetIds("prompt", &std::get<1>(to->prompts.back()), kPromptIdsMax);
    return;
  }
  if (prompt->size() > kPromptsMax) {
    return fields->Fail("prompt", absl::StrCat("has more than ", kPromptsMax, " prompts"));
  }
  for (const json& one : *prompt) {
    if (one.is_string()) {
      to->prompts.emplace_back(one.get<std::string>());
    } else {
      const json object = {{"prompt", one}};
      JsonFields ids(object);
      to->prompts.emplace_back(std::vector<TokenId>());
      ids.GetIds("prompt", &std::get<1>(to->prompts.back()), kPromptIdsMax);
      fields->Take(ids.error());
    }
  }
}

void GetLogitBias(JsonFields* fields, SamplingParams* to) {
  const json* bias = fields->Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return fields->Fail("logit_bias", "must be an object", "invalid_type");
  if (bias->size() > kLogitBiasMax) {
    return fields->Fail("logit_bias", absl::StrCat("has more than ", kLogitBiasMax, " entries"));
  }
  for (const auto& [key, value] : bias->items()) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(key, &id) || id < 0) {
      return fields->Fail("logit_bias", "must have token ids as its keys");
    }
    if (!value.is_number() || !(value.get<double>() >= -100 && value.get<double>() <= 100)) {
      return fields->Fail("logit_bias", "must have values from -100 to 100");
    }
    to->logit_bias.emplace_back(id, value.get<float>());
  }
  std::sort(to->logit_bias.begin(), to->logit_bias.end());
}

void GetSampling(JsonFields* fields, OpenAiRequest* to) {
  SamplingParams& s = to->sampling;
  fields->Get("temperature", &s.temperature, 0, 2);
  if (const json* top_p = fields->Find("top_p"); top_p != nullptr && *top_p == 0) {
    s.top_p = 1e-9f;  // the most likely token, as 0 asks for
  } else {
    fields->Get("top_p", &s.top_p, 0, 1);
  }
  fields->GetInteger("top_k", &s.top_k, -1, INT32_MAX);
  if (s.top_k < 0) s.top_k = 0;  // vLLM's spelling of off
  fields->Get("min_p", &s.min_p, 0, 1);
  fields->Get("repetition_penalty", &s.repetition_penalty, 0.01, 100);
  fields->Get("presence_penalty", &s.presence_penalty, -2, 2);
  fields->Get("frequency_penalty", &s.frequency_penalty, -2, 2);
  GetLogitBias(fields, &s);
  if (const auto seed = fields->Integral("seed", INT64_MIN, INT64_MAX)) {
    to->seed = static_cast<uint64_t>(*seed);
    s.seed = *to->seed;
  }
}

void GetLogprobs(JsonFields* fields, OpenAiRequest* to) {
  if (to->kind == OpenAiKind::kCompletions) {
    fields->GetInteger("logprobs", &to->sampling.logprobs, 0, 20);
    return;
  }
  bool wanted = false;
  fields->Get("logprobs", &wanted);
  if (wanted) to->sampling.logprobs = 0;
  if (fields->Has("top_logprobs")) {
    int32_t top = 0;
    fields->GetInteger("top_logprobs", &top, 0, 20);
    if (wanted) {
      to->sampling.logprobs = top;
    } else if (top > 0) {
      fields->Fail("top_logprobs", "needs 'logprobs' to be true");
    }
  }
}

void GetStream(JsonFields* fields, OpenAiRequest* to) {
  fields->Get("stream", &to->stream);
  const json* options = fields->Find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) {
    return fields->Fail("stream_options", "must be an object", "invalid_type");
  }
  if (!to->stream) return fields->Fail("stream_options", "needs 'stream' to be true");
  JsonFields inner(*options, "stream_options.");
  inner.Get("include_usage", &to->include_usage);
  inner.Get("continuous_usage_stats", &to->continuous_usage);
  fields->Take(inner.error());
}

// Fields that would change the answer and that nothing here acts on.
void RefuseUnsupported(JsonFields* fields, OpenAiKind kind) {
  if (const json* format = fields->Find("response_format")) {
    const bool text = format->is_object() && format->value("type", json()) == "text";
    if (!text) fields->Fail("response_format", "may only be of type 'text' on this server");
  }
  if (const json* choice = fields->Find("tool_choice"); choice != nullptr && *choice != "none") {
    if (*choice != "auto") fields->Refuse("tool_choice", "none");
  }
  const json* tool_choice = fields->Find("tool_choice");
  if (tool_choice == nullptr || *tool_choice != "none") fields->Refuse("tools", json::array());
  fields->Refuse("functions", json::array());
  for (const char* name :
       {"structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
        "grammar", "json_schema", "prompt_logprobs", "truncate_prompt_tokens", "bad_words",
        "chat_template", "kv_transfer_params", "prediction", "audio", "logits_processors"}) {
    fields->Refuse(name, nullptr);
  }
  fields->Refuse("modalities", json::array({"text"}));
  fields->Refuse("use_beam_search", false);
  fields->Refuse("continue_final_message", false);
  fields->Refuse("add_generation_prompt", true);
  if (kind == OpenAiKind::kChat) fields->Refuse("echo", false);
  fields->Refuse("suffix", "");
}

void GetLimits(JsonFields* fields, OpenAiRequest* to) {
  fields->GetInteger("n", &to->n, 1, kChoicesMax);
  const int64_t low = to->kind == OpenAiKind::kChat ? 1 : 0;
  std::optional<int64_t> tokens = fields->Integral("max_tokens", low, kTokensMax);
  if (to->kind == OpenAiKind::kChat) {
    if (const auto newer = fields->Integral("max_completion_tokens", low, kTokensMax)) {
      tokens = newer;
    }
  }
  if (tokens) to->max_tokens = static_cast<uint32_t>(*tokens);
  fields->GetInteger("min_tokens", &to->min_tokens, 0, kTokensMax);
  if (to->max_tokens && to->min_tokens > *to->max_tokens) {
    fields->Fail("min_tokens", "is larger than the number of tokens asked for");
  }
  fields->GetStrings("stop", &to->stops, kStopsMax);
  for (const std::string& stop : to->stops) {
    if (stop.empty()) fields->Fail("stop", "must not hold an empty string");
    if (stop.size() > 1024) fields->Fail("stop", "must not hold strings of over 1024 bytes");
  }
  fields->GetIds("stop_token_ids", &to->stop_token_ids, kStopIdsMax);
  fields->Get("ignore_eos", &to->ignore_eos);
  fields->Get("include_stop_str_in_output", &to->include_stop);
}

}  // namespace

std::optional<ApiError> ParseOpenAi(OpenAiKind kind, absl::string_view body, OpenAiRequest* to) {
  json object;
  if (auto error = ParseJson(body, &object)) return error;
  JsonFields fields(object);
  to->kind = kind;
  fields.Get("model", &to->model, 1024);
  if (kind == OpenAiKind::kChat) {
    GetMessages(&fields, &to->messages);
  } else {
    GetPrompts(&fields, to);
    to->max_tokens = 16;
    fields.Get("echo", &to->echo);
    fields.Get("add_special_tokens", &to->add_special_tokens);
  }
  GetLimits(&fields, to);
  GetSampling(&fields, to);
  GetLogprobs(&fields, to);
  GetStream(&fields, to);
  RefuseUnsupported(&fields, kind);
  fields.Get("cache_salt", &to->cache_salt, 1024);
  if (const auto best_of = fields.Integral("best_of", 1, 20); best_of && *best_of != to->n) {
    fields.Fail("best_of", "must equal 'n': answers are not ranked", "unsupported_parameter");
  }
  if (to->echo && to->sampling.logprobs >= 0) {
    fields.Fail("echo", "cannot be combined with 'logprobs'", "unsupported_parameter");
  }
  return fields.error();
}

std::optional<ApiError> ParseTokenize(absl::string_view body, TokenizeBody* to) {
  json object;
  if (auto error = ParseJson(body, &object)) return error;
  JsonFields fields(object);
  fields.Get("model", &to->model, 1024);
  to->content_form = fields.Has("content");
  to->chat = fields.Has("messages");
  constexpr size_t kTextMax = 64u << 20;
  if (to->chat) {
    GetMessages(&fields, &to->messages);
  } else if (to->content_form) {
    fields.Get("content", &to->text, kTextMax);
    fields.Get("add_special", &to->add_special);
    fields.Get("parse_special", &to->parse_special);
    fields.Get("with_pieces", &to->with_pieces);
  } else if (fields.Has("prompt")) {
    to->add_special = true;
    fields.Get("prompt", &to->text, kTextMax);
    fields.Get("add_special_tokens", &to->add_special);
    fields.Get("return_token_strs", &to->with_pieces);
  } else {
    fields.Fail("prompt", "is missing", "missing_required_parameter");
  }
  return fields.error();
}

std::optional<ApiError> ParseDetokenize(absl::string_view body, DetokenizeBody* to) {
  json object;
  if (auto error = ParseJson(body, &object)) return error;
  JsonFields fields(object);
  fields.Get("model", &to->model, 1024);
  if (!fields.Has("tokens")) fields.Fail("tokens", "is missing", "missing_required_parameter");
  fields.GetIds("tokens", &to->tokens, kPromptIdsMax);
  return fields.error();
}

}  // namespace baton::server
