// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/frontend_model.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "engine/gguf.h"
#include "engine/model_loader.h"
#include "server/convert.h"

namespace baton::server {
namespace {

ApiError Bad(absl::string_view param, absl::string_view message, absl::string_view code = "") {
  ApiError error;
  error.message = std::string(message);
  error.param = std::string(param);
  error.code = std::string(code.empty() ? "invalid_value" : code);
  return error;
}

// Equal salts share prefix cache entries; FNV-1a, mixed.
uint64_t SaltOf(absl::string_view text) {
  if (text.empty()) return 0;
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return SplitMix64(hash) | 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FrontendModel>> FrontendModel::Load(const std::string& path,
                                                                   const std::string& name,
                                                                   uint32_t context_max) {
  ASSIGN_OR_RETURN(const engine::Gguf file, engine::OpenModel(path));
  ASSIGN_OR_RETURN(const engine::ModelWeights weights, engine::LoadModel(file));
  ASSIGN_OR_RETURN(text::TextModel text, text::TextModel::Load(file));
  return std::unique_ptr<FrontendModel>(
      new FrontendModel(name, std::min(context_max, weights.spec.context), std::move(text)));
}

std::optional<ApiError> FrontendModel::CheckName(const std::string& asked) const {
  if (asked.empty() || asked == name_) return std::nullopt;
  ApiError error =
      Bad("model",
          absl::StrCat("The model '", asked, "' does not exist; '", name_, "' is served here."),
          "model_not_found");
  error.status = 404;
  return error;
}

std::optional<ApiError> FrontendModel::EncodeText(const std::string& text, bool add_special,
                                                  std::vector<TokenId>* ids) const {
  absl::StatusOr<std::vector<TokenId>> encoded =
      add_special ? text_.EncodePrompt(text)
                  : text_.tokenizer().Encode(text, /*parse_special=*/false);
  if (!encoded.ok()) return Bad("prompt", encoded.status().message());
  *ids = *std::move(encoded);
  return std::nullopt;
}

std::optional<ApiError> FrontendModel::EncodeChat(const std::vector<ChatMessage>& messages,
                                                  std::vector<TokenId>* ids) const {
  if (const absl::Status can = text_.chat_status(); !can.ok()) {
    return Bad("messages", can.message(), "chat_template_missing");
  }
  text::ChatInput chat;
  text::JsonValue::Array list;
  for (const ChatMessage& message : messages) {
    list.emplace_back(
        text::JsonValue::Object{{"role", message.role}, {"content", message.content}});
  }
  chat.messages = std::move(list);
  chat.now = absl::FromChrono(std::chrono::system_clock::now());
  absl::StatusOr<text::RenderedChat> rendered = text_.RenderChat(chat);
  if (!rendered.ok()) return Bad("messages", rendered.status().message());
  *ids = std::move(rendered->ids);
  return std::nullopt;
}

std::optional<ApiError> FrontendModel::CheckIds(const std::vector<TokenId>& ids,
                                                const char* param) const {
  for (const TokenId id : ids) {
    if (tokenizer().Has(id)) continue;
    return Bad(param, absl::StrCat("token id ", id, " is not in the vocabulary"));
  }
  return std::nullopt;
}

std::optional<ApiError> FrontendModel::Complete(const Rules& rules, AnswerRequest* request) const {
  const size_t prompt = request->sequence.prompt.size();
  const uint32_t wanted = rules.max_tokens.value_or(1);
  if (prompt == 0) return Bad(rules.prompt_param, "The prompt is empty.");
  if (prompt + std::max(wanted, 1u) > context_max_) {
    std::string message = absl::StrCat("This model's maximum context length is ", context_max_,
                                       " tokens; the prompt has ", prompt, " tokens");
    if (rules.max_tokens) absl::StrAppend(&message, " and ", wanted, " more are asked for");
    return Bad(rules.prompt_param, message + ".", "context_length_exceeded");
  }
  if (auto error = CheckIds(request->sequence.prompt, rules.prompt_param)) return error;
  if (auto error = CheckIds(rules.stop_ids, "stop_token_ids")) return error;
  if (const absl::Status stops = text::StopMatcher::Check(rules.stops); !stops.ok()) {
    return Bad("stop", stops.message());
  }
  if (const absl::Status sampling = CheckSampling(rules.sampling, tokenizer().size());
      !sampling.ok()) {
    const absl::string_view message = sampling.message();
    return Bad(message.substr(0, message.find_first_of(" :")), message);
  }
  Sequence& sequence = request->sequence;
  sequence.remaining_tokens =
      rules.max_tokens.value_or(context_max_ - static_cast<uint32_t>(prompt));
  sequence.min_tokens = rules.min_tokens;
  sequence.stop_ids = rules.stop_ids;
  if (!rules.ignore_eos) {
    const std::vector<TokenId>& ends = tokenizer().end_ids();
    sequence.stop_ids.insert(sequence.stop_ids.end(), ends.begin(), ends.end());
  }
  sequence.sampling = rules.sampling;
  sequence.cache_salt = SaltOf(rules.cache_salt);
  request->draw_seed = !rules.seeded;
  request->text.stops = rules.stops;
  request->text.stop_ids = sequence.stop_ids;
  request->text.tokens_max = std::max(sequence.remaining_tokens, 1u);
  request->text.tokens_min = rules.min_tokens;
  request->text.include_stop = rules.include_stop;
  return std::nullopt;
}

}  // namespace baton::server
