// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// tokenizer.json and its companions under GGUF's keys.
//
// Only byte-level BPE whose pieces one of our scanners cuts; whatever else a tokenizer may do
// is refused, because other ids would come out without a sign of it.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/hf_folder.h"
#include "engine/hf_json.h"
#include "engine/model_loader.h"

namespace baton::engine {
namespace {

using nlohmann::json;

constexpr uint64_t kVocabMax = 1 << 22;
constexpr uint64_t kGapMax = 1024;
// The numbers are GGUF's tokenizer.ggml.token_type.
constexpr int32_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

absl::Status Refused(absl::string_view what) { return absl::InvalidArgumentError(what); }

std::string Shown(absl::string_view text) { return absl::CHexEscape(text.substr(0, 80)); }

absl::StatusOr<std::string> TypeOf(const json& part) {
  if (!part.is_object()) return Refused("a part without a type");
  ASSIGN_OR_RETURN(auto type, JsonString(part, "type"));
  if (!type.has_value()) return Refused("a part without a type");
  return *std::move(type);
}

// A part, or the parts of a sequence; none if it is null.
absl::StatusOr<std::vector<const json*>> Parts(const json& tokenizer, const char* key,
                                               const char* members) {
  ASSIGN_OR_RETURN(const json* part, JsonObject(tokenizer, key));
  std::vector<const json*> parts;
  if (part == nullptr) return parts;
  ASSIGN_OR_RETURN(const std::string type, TypeOf(*part));
  if (type != "Sequence") return std::vector<const json*>{part};
  ASSIGN_OR_RETURN(const json* list, JsonArray(*part, members));
  if (list == nullptr) return Refused(absl::StrCat(key, ": an empty sequence"));
  for (const json& one : *list) parts.push_back(&one);
  return parts;
}

// Whether a Split is Llama 3's: its pattern, whose matches and what is between become pieces.
bool IsLlama3Split(const json& part) {
  constexpr const char* kPattern =
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
      " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  const auto pattern = JsonObject(part, "pattern");
  if (!pattern.ok() || *pattern == nullptr) return false;
  const auto regex = JsonString(**pattern, "Regex");
  const auto behavior = JsonString(part, "behavior");
  const auto invert = JsonBool(part, "invert");
  return regex.ok() && *regex == kPattern && behavior.ok() && *behavior == "Isolated" &&
         invert.ok() && !invert->value_or(false);
}

// GGUF's name of the pre-tokenizer.
absl::StatusOr<std::string> PreTokenizerName(const json& tokenizer) {
  ASSIGN_OR_RETURN(const auto parts, Parts(tokenizer, "pre_tokenizer", "pretokenizers"));
  std::string found;
  for (const json* part : parts) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*part));
    absl::StrAppend(&found, found.empty() ? "" : ", ", Shown(type));
    if (type == "Digits") {
      ASSIGN_OR_RETURN(const auto individual, JsonBool(*part, "individual_digits"));
      if (!individual.value_or(false)) absl::StrAppend(&found, " (groups)");
    } else if (type == "Split") {
      absl::StrAppend(&found, IsLlama3Split(*part) ? " (Llama 3)" : " (unknown pattern)");
    } else if (type == "ByteLevel") {
      ASSIGN_OR_RETURN(const auto prefix, JsonBool(*part, "add_prefix_space"));
      ASSIGN_OR_RETURN(const auto regex, JsonBool(*part, "use_regex"));
      if (prefix.value_or(true)) absl::StrAppend(&found, " (prefix space)");
      if (!regex.value_or(true)) absl::StrAppend(&found, " (no regex)");
    }
  }
  if (found == "ByteLevel") return std::string("gpt-2");
  if (found == "Digits, ByteLevel") return std::string("smollm");
  if (found == "Split (Llama 3), ByteLevel (no regex)") return std::string("llama-bpe");
  return Refused(absl::StrCat("pre_tokenizer [", found, "]; Baton knows [ByteLevel], ",
                              "[Digits, ByteLevel] and Llama 3's"));
}

absl::Status CheckModel(const json& model) {
  ASSIGN_OR_RETURN(const auto type, JsonString(model, "type"));
  if (type.value_or("BPE") != "BPE") {
    return Refused(absl::StrCat("model type '", Shown(*type), "'; Baton runs byte-level BPE"));
  }
  ASSIGN_OR_RETURN(const auto byte_fallback, JsonBool(model, "byte_fallback"));
  if (byte_fallback.value_or(false)) return Refused("model: \"byte_fallback\" is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    ASSIGN_OR_RETURN(const auto text, JsonString(model, key));
    if (!text.value_or("").empty()) {
      return Refused(absl::StrCat("model: \"", key, "\" is not supported"));
    }
  }
  ASSIGN_OR_RETURN(const auto dropout, JsonNumber(model, "dropout"));
  if (dropout.value_or(0) != 0) return Refused("model: \"dropout\" is not supported");
  return absl::OkStatus();
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<bool> known;
  uint64_t end = 0;  // ids are below

  absl::Status Set(uint64_t id, std::string text, int32_t type) {
    if (id >= end) return Refused(absl::StrCat("token id ", id, " of a vocabulary of ", end));
    if (id >= tokens.size()) {
      tokens.resize(id + 1);
      types.resize(id + 1, kUnused);
      known.resize(id + 1, false);
    }
    // An added token may be in the vocabulary too; its kind is the one that counts.
    if (known[id] && tokens[id] != text) {
      return Refused(absl::StrCat("token id ", id, " is there twice"));
    }
    tokens[id] = std::move(text);
    types[id] = type;
    known[id] = true;
    return absl::OkStatus();
  }
  std::optional<uint64_t> Find(absl::string_view text) const {
    const auto found = std::find(tokens.begin(), tokens.end(), text);
    if (found == tokens.end()) return std::nullopt;
    return static_cast<uint64_t>(found - tokens.begin());
  }
};

absl::Status ReadAdded(const json& tokenizer, Vocabulary& vocabulary) {
  ASSIGN_OR_RETURN(const json* added, JsonArray(tokenizer, "added_tokens"));
  if (added == nullptr) return absl::OkStatus();
  for (const json& token : *added) {
    if (!token.is_object()) return Refused("added_tokens: not an object");
    ASSIGN_OR_RETURN(const auto id, JsonUnsigned(token, "id"));
    ASSIGN_OR_RETURN(auto content, JsonString(token, "content"));
    ASSIGN_OR_RETURN(const auto special, JsonBool(token, "special"));
    if (!id.has_value() || !content.has_value()) return Refused("added_tokens: no id or content");
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      ASSIGN_OR_RETURN(const auto on, JsonBool(token, key));
      if (on.value_or(false)) {
        return Refused(absl::StrCat("added token ", *id, ": \"", key, "\" is not supported"));
      }
    }
    RETURN_IF_ERROR(vocabulary.Set(*id, *std::move(content),
                                   special.value_or(false) ? kControl : kUserDefined));
  }
  return absl::OkStatus();
}

absl::StatusOr<Vocabulary> ReadVocabulary(const json& tokenizer, const json& model) {
  ASSIGN_OR_RETURN(const json* vocab, JsonObject(model, "vocab"));
  if (vocab == nullptr) return Refused("model: \"vocab\" is missing");
  ASSIGN_OR_RETURN(const json* added, JsonArray(tokenizer, "added_tokens"));
  // Ids may have gaps, but no more than make sense.
  Vocabulary vocabulary;
  const uint64_t count = vocab->size() + (added == nullptr ? 0 : added->size());
  vocabulary.end = std::min(kVocabMax, 2 * count + kGapMax);
  for (const auto& [text, id] : vocab->items()) {
    if (!id.is_number_unsigned()) return Refused("model: an id that is not a number");
    RETURN_IF_ERROR(vocabulary.Set(id.get<uint64_t>(), text, kNormal));
  }
  RETURN_IF_ERROR(ReadAdded(tokenizer, vocabulary));
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (!vocabulary.known[i]) vocabulary.tokens[i] = absl::StrCat("[PAD", i, "]");
  }
  return vocabulary;
}

// "LEFT RIGHT" or ["LEFT", "RIGHT"].
absl::StatusOr<std::vector<std::string>> ReadMerges(const json& model) {
  ASSIGN_OR_RETURN(const json* list, JsonArray(model, "merges"));
  std::vector<std::string> merges;
  if (list == nullptr) return merges;
  for (const json& merge : *list) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
      continue;
    }
    const bool pair =
        merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string();
    if (!pair) return Refused(absl::StrCat("merge ", merges.size(), " is not two tokens"));
    const auto left = merge[0].get<std::string>();
    const auto right = merge[1].get<std::string>();
    if (absl::StrCat(left, right).find(' ') != std::string::npos) {
      return Refused(absl::StrCat("merge ", merges.size(), " has a space: not byte-level"));
    }
    merges.push_back(absl::StrCat(left, " ", right));
  }
  return merges;
}

// The token that a post-processor puts in front of a text; none if it puts nothing.
absl::StatusOr<std::optional<std::string>> LeadingToken(const json& tokenizer) {
  ASSIGN_OR_RETURN(const auto parts, Parts(tokenizer, "post_processor", "processors"));
  std::optional<std::string> leading;
  for (const json* part : parts) {
    ASSIGN_OR_RETURN(const std::string type, TypeOf(*part));
    if (type == "ByteLevel") continue;
    if (type != "TemplateProcessing") {
      return Refused(absl::StrCat("post_processor '", Shown(type), "' is not supported"));
    }
    ASSIGN_OR_RETURN(const json* single, JsonArray(*part, "single"));
    const auto is = [&](size_t i, const char* key) {
      return (*single)[i].is_object() && (*single)[i].contains(key);
    };
    if (single != nullptr && single->size() == 1 && is(0, "Sequence")) continue;
    if (single == nullptr || single->size() != 2 || !is(0, "SpecialToken") || !is(1, "Sequence") ||
        !(*single)[0]["SpecialToken"].is_object()) {
      return Refused("post_processor: only a token in front of the text is supported");
    }
    ASSIGN_OR_RETURN(leading, JsonString((*single)[0]["SpecialToken"], "id"));
  }
  return leading;
}

// A special token of tokenizer_config.json: its text, or an object with its content.
absl::StatusOr<std::optional<uint64_t>> NamedToken(const json& config, const char* key,
                                                   const Vocabulary& vocabulary) {
  std::optional<std::string> text;
  const auto found = config.find(key);
  if (found != config.end() && found->is_object()) {
    ASSIGN_OR_RETURN(text, JsonString(*found, "content"));
  } else {
    ASSIGN_OR_RETURN(text, JsonString(config, key));
  }
  if (!text.has_value()) return std::optional<uint64_t>();
  const auto id = vocabulary.Find(*text);
  if (!id.has_value()) {
    return Refused(absl::StrCat("\"", key, "\": '", Shown(*text), "' is not in the vocabulary"));
  }
  return id;
}

// Adds an id or a list of ids.
absl::Status AddIds(const json& config, const char* key, std::vector<int32_t>& ids) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return absl::OkStatus();
  const json list = found->is_array() ? *found : json::array({*found});
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= kVocabMax) {
      return Refused(absl::StrCat("\"", key, "\" is not an id or a list of them"));
    }
    ids.push_back(id.get<int32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadSpecial(const TokenizerTexts& texts, const Vocabulary& vocabulary,
                         MetadataWriter& out) {
  std::vector<int32_t> ends;
  ASSIGN_OR_RETURN(const auto eos, NamedToken(texts.tokenizer_config, "eos_token", vocabulary));
  if (eos.has_value()) ends.push_back(static_cast<int32_t>(*eos));
  RETURN_IF_ERROR(AddIds(texts.config, "eos_token_id", ends));
  RETURN_IF_ERROR(AddIds(texts.generation_config, "eos_token_id", ends));
  if (!ends.empty()) out.Unsigned("tokenizer.ggml.eos_token_id", static_cast<uint64_t>(ends[0]));
  out.Integers(kEndTokensKey, ends);

  ASSIGN_OR_RETURN(auto bos, NamedToken(texts.tokenizer_config, "bos_token", vocabulary));
  ASSIGN_OR_RETURN(const auto leading, LeadingToken(texts.tokenizer));
  ASSIGN_OR_RETURN(const auto add, JsonBool(texts.tokenizer_config, "add_bos_token"));
  if (leading.has_value()) {
    bos = vocabulary.Find(*leading);
    if (!bos.has_value()) return Refused("post_processor: its token is not in the vocabulary");
  }
  if (bos.has_value()) out.Unsigned("tokenizer.ggml.bos_token_id", *bos);
  const bool add_bos = leading.has_value() || (bos.has_value() && add.value_or(false));
  out.Bool("tokenizer.ggml.add_bos_token", add_bos);
  return absl::OkStatus();
}

// tokenizer_config.json's template: one text, or several of which one is the default.
absl::StatusOr<std::string> TemplateOf(const json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end() || !found->is_array()) {
    ASSIGN_OR_RETURN(const auto text, JsonString(config, "chat_template"));
    return text.value_or("");
  }
  for (const json& one : *found) {
    if (!one.is_object()) return Refused("\"chat_template\": not an object");
    ASSIGN_OR_RETURN(const auto name, JsonString(one, "name"));
    ASSIGN_OR_RETURN(const auto text, JsonString(one, "template"));
    if (name == "default" && text.has_value()) return *text;
  }
  return std::string();
}

}  // namespace

absl::Status ReadTokenizer(const TokenizerTexts& texts, MetadataWriter& out) {
  const json& tokenizer = texts.tokenizer;
  if (tokenizer.contains("normalizer") && !tokenizer["normalizer"].is_null()) {
    return Refused("a \"normalizer\"; Baton has none");
  }
  ASSIGN_OR_RETURN(const json* model, JsonObject(tokenizer, "model"));
  if (model == nullptr) return Refused("\"model\" is missing");
  RETURN_IF_ERROR(CheckModel(*model));
  ASSIGN_OR_RETURN(const std::string pre, PreTokenizerName(tokenizer));
  // GGUF says this only by the pre-tokenizer's name.
  ASSIGN_OR_RETURN(const auto whole, JsonBool(*model, "ignore_merges"));
  if (whole.value_or(false) != (pre == "llama-bpe")) {
    return Refused(absl::StrCat("model: \"ignore_merges\" with the pre_tokenizer '", pre, "'"));
  }
  ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(tokenizer, *model));
  ASSIGN_OR_RETURN(const std::vector<std::string> merges, ReadMerges(*model));
  out.String("tokenizer.ggml.model", "gpt2");
  out.String("tokenizer.ggml.pre", pre);
  out.Strings("tokenizer.ggml.tokens", vocabulary.tokens);
  out.Integers("tokenizer.ggml.token_type", vocabulary.types);
  out.Strings("tokenizer.ggml.merges", merges);
  RETURN_IF_ERROR(ReadSpecial(texts, vocabulary, out));
  std::string chat_template = texts.chat_template;
  if (chat_template.empty()) {
    ASSIGN_OR_RETURN(chat_template, TemplateOf(texts.tokenizer_config));
  }
  if (!chat_template.empty()) out.String("tokenizer.chat_template", chat_template);
  return absl::OkStatus();
}

}  // namespace baton::engine
