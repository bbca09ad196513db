// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/text_model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model_loader.h"

namespace baton::text {
namespace {

// An id that may be absent, but not malformed.
absl::StatusOr<std::optional<TokenId>> OptionalId(const engine::Gguf& file, absl::string_view key) {
  if (!file.Has(key)) return std::optional<TokenId>();
  ASSIGN_OR_RETURN(const uint64_t id, file.Unsigned(key, INT32_MAX));
  return std::optional<TokenId>(static_cast<TokenId>(id));
}

absl::StatusOr<std::vector<std::string>> Strings(const engine::Gguf& file, absl::string_view key) {
  ASSIGN_OR_RETURN(const std::vector<absl::string_view> views, file.Strings(key));
  return std::vector<std::string>(views.begin(), views.end());
}

}  // namespace

absl::StatusOr<TokenizerData> ReadTokenizerData(const engine::Gguf& file) {
  TokenizerData data;
  ASSIGN_OR_RETURN(const absl::string_view model, file.String("tokenizer.ggml.model"));
  data.model = std::string(model);
  ASSIGN_OR_RETURN(const absl::string_view pre, file.String("tokenizer.ggml.pre"));
  data.pre_tokenizer = std::string(pre);
  ASSIGN_OR_RETURN(data.tokens, Strings(file, "tokenizer.ggml.tokens"));
  ASSIGN_OR_RETURN(data.merges, Strings(file, "tokenizer.ggml.merges"));
  ASSIGN_OR_RETURN(const std::vector<int64_t> types, file.Integers("tokenizer.ggml.token_type"));
  for (const int64_t type : types) {
    if (type < 1 || type > 6) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.token_type: ", type, " is no type of token"));
    }
    data.types.push_back(static_cast<TokenType>(type));
  }
  ASSIGN_OR_RETURN(data.bos, OptionalId(file, "tokenizer.ggml.bos_token_id"));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    ASSIGN_OR_RETURN(const std::optional<TokenId> id, OptionalId(file, key));
    if (id.has_value()) data.end_ids.push_back(*id);
  }
  if (file.Has(engine::kEndTokensKey)) {
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, file.Integers(engine::kEndTokensKey));
    for (const int64_t id : ids) {
      if (id < 0 || id > INT32_MAX) {
        return absl::InvalidArgumentError(absl::StrCat(engine::kEndTokensKey, ": ", id));
      }
      data.end_ids.push_back(static_cast<TokenId>(id));
    }
  }
  if (file.Has("tokenizer.ggml.add_bos_token")) {
    ASSIGN_OR_RETURN(data.add_bos, file.Bool("tokenizer.ggml.add_bos_token"));
  }
  return data;
}

namespace {

// The template of the file, or why it cannot be used.
absl::StatusOr<ChatTemplate> ReadTemplate(const engine::Gguf& file, const Tokenizer& tokenizer) {
  if (!file.Has("tokenizer.chat_template")) {
    return absl::FailedPreconditionError("the model has no chat template");
  }
  ASSIGN_OR_RETURN(const absl::string_view source, file.String("tokenizer.chat_template"));
  std::string bos;
  std::string eos;
  if (tokenizer.bos().has_value()) bos = std::string(tokenizer.Bytes(*tokenizer.bos()));
  ASSIGN_OR_RETURN(const std::optional<TokenId> eos_id,
                   OptionalId(file, "tokenizer.ggml.eos_token_id"));
  if (eos_id.has_value()) eos = std::string(tokenizer.Bytes(*eos_id));
  return ChatTemplate::Parse(source, std::move(bos), std::move(eos));
}

}  // namespace

absl::StatusOr<TextModel> TextModel::Load(const engine::Gguf& file) {
  auto data = ReadTokenizerData(file);
  if (!data.ok()) return data.status();
  auto tokenizer = Tokenizer::Create(*data);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), file.name());
  absl::StatusOr<ChatTemplate> chat_template = ReadTemplate(file, *tokenizer);
  return TextModel(*std::move(tokenizer), std::move(chat_template));
}

absl::StatusOr<std::vector<TokenId>> TextModel::EncodePrompt(absl::string_view prompt) const {
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer_.Encode(prompt, false));
  if (tokenizer_.add_bos()) ids.insert(ids.begin(), *tokenizer_.bos());
  return ids;
}

absl::StatusOr<RenderedChat> TextModel::RenderChat(const ChatInput& chat) const {
  if (!template_.ok()) return template_.status();
  ASSIGN_OR_RETURN(const std::vector<Fragment> fragments, template_->Render(chat));
  RenderedChat rendered;
  for (const Fragment& fragment : fragments) rendered.text += fragment.text;
  ASSIGN_OR_RETURN(rendered.ids, tokenizer_.Encode(fragments));
  return rendered;
}

}  // namespace baton::text
