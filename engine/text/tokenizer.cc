// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/tokenizer.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

constexpr size_t kTokensMax = size_t{1} << 24;

// Byte-level vocabularies spell each byte as a printable character: those that print as
// they are, the other 68 as U+0100 and up, in order.
bool PrintsItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

std::array<int, 0x144> MakeByteOfCharacter() {
  std::array<int, 0x144> table;
  table.fill(-1);
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) table[PrintsItself(byte) ? byte : next++] = byte;
  return table;
}

// The bytes that a token's spelling stands for.  A character outside the alphabet stands
// for itself.  REQUIRES: legal UTF-8.
std::string BytesOfSpelling(absl::string_view spelling) {
  static const std::array<int, 0x144> byte_of_character = MakeByteOfCharacter();
  std::string bytes;
  for (size_t at = 0; at < spelling.size();) {
    const Utf8Step step = DecodeUtf8(spelling, at);
    const int byte =
        step.code_point < byte_of_character.size() ? byte_of_character[step.code_point] : -1;
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
    } else {
      absl::StrAppend(&bytes, spelling.substr(at, step.size));
    }
    at += step.size;
  }
  return bytes;
}

absl::Status Broken(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: ", what));
}

absl::Status CheckIds(const TokenizerData& data) {
  std::vector<TokenId> named = data.end_ids;
  if (data.bos.has_value()) named.push_back(*data.bos);
  for (const TokenId id : named) {
    if (id < 0 || static_cast<size_t>(id) >= data.tokens.size()) {
      return Broken(absl::StrCat("special token ", id, " is outside the vocabulary"));
    }
  }
  if (data.add_bos && !data.bos.has_value()) return Broken("add_bos_token without a bos token");
  return absl::OkStatus();
}

}  // namespace

struct Tokenizer::Scratch {
  std::vector<uint32_t> ends;
  std::vector<TokenId> symbols;
  BpeMerges::Workspace merge;
};

absl::StatusOr<Tokenizer> Tokenizer::Create(const TokenizerData& data) {
  if (data.model != "gpt2") {
    return Broken(absl::StrCat("model '", data.model, "' is not known (byte-level BPE is 'gpt2')"));
  }
  Tokenizer tokenizer;
  ASSIGN_OR_RETURN(tokenizer.pre_tokenizer_, PreTokenizerByName(data.pre_tokenizer));
  RETURN_IF_ERROR(CheckIds(data));
  RETURN_IF_ERROR(tokenizer.ReadTokens(data));
  RETURN_IF_ERROR(tokenizer.ReadMerges(data));
  tokenizer.ReadWholePieces(data);
  tokenizer.bos_ = data.bos;
  tokenizer.add_bos_ = data.add_bos;
  tokenizer.end_ids_ = data.end_ids;
  std::sort(tokenizer.end_ids_.begin(), tokenizer.end_ids_.end());
  tokenizer.end_ids_.erase(std::unique(tokenizer.end_ids_.begin(), tokenizer.end_ids_.end()),
                           tokenizer.end_ids_.end());
  return tokenizer;
}

absl::Status Tokenizer::ReadTokens(const TokenizerData& data) {
  if (data.tokens.empty() || data.tokens.size() > kTokensMax) {
    return Broken(absl::StrCat(data.tokens.size(), " tokens"));
  }
  if (data.types.size() != data.tokens.size()) {
    return Broken(absl::StrCat(data.tokens.size(), " tokens but ", data.types.size(), " types"));
  }
  byte_ids_.fill(-1);
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const std::string& spelling = data.tokens[i];
    const TokenId id = static_cast<TokenId>(i);
    if (FirstInvalidUtf8(spelling).has_value()) {
      return Broken(absl::StrCat("token ", id, " is not UTF-8"));
    }
    const bool control = data.types[i] == TokenType::kControl;
    const bool marker = control || data.types[i] == TokenType::kUserDefined;
    if (marker && !spelling.empty()) markers_.Add(spelling, id, control);
    control_.push_back(control);
    bytes_.push_back(marker ? spelling : BytesOfSpelling(spelling));
    if (!marker && bytes_.back().size() == 1) {
      TokenId& byte_id = byte_ids_[static_cast<uint8_t>(bytes_.back()[0])];
      if (byte_id < 0) byte_id = id;
    }
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::ReadMerges(const TokenizerData& data) {
  absl::flat_hash_map<absl::string_view, TokenId> ids;
  ids.reserve(data.tokens.size());
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    ids.try_emplace(data.tokens[i], static_cast<TokenId>(i));
  }
  std::string joined;
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const absl::string_view merge = data.merges[rank];
    // Spellings hold no space, so the only one is the separator.
    const size_t space = merge.find(' ');
    if (space == absl::string_view::npos) {
      return Broken(absl::StrCat("merge ", rank, " is not two tokens"));
    }
    const absl::string_view parts[] = {merge.substr(0, space), merge.substr(space + 1)};
    joined = absl::StrCat(parts[0], parts[1]);
    const auto left = ids.find(parts[0]);
    const auto right = ids.find(parts[1]);
    const auto whole = ids.find(joined);
    if (left == ids.end() || right == ids.end() || whole == ids.end()) {
      return Broken(absl::StrCat("merge ", rank, " names a token that the vocabulary lacks"));
    }
    merges_.Add(left->second, right->second, whole->second, static_cast<uint32_t>(rank));
  }
  return absl::OkStatus();
}

void Tokenizer::ReadWholePieces(const TokenizerData& data) {
  if (!TakesWholePieces(pre_tokenizer_)) return;
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    if (data.types[i] == TokenType::kNormal) {
      whole_pieces_.try_emplace(bytes_[i], static_cast<TokenId>(i));
    }
  }
}

void Tokenizer::EncodePlain(absl::string_view text, Scratch& scratch,
                            std::vector<TokenId>& ids) const {
  scratch.ends.clear();
  Split(pre_tokenizer_, text, scratch.ends);
  uint32_t begin = 0;
  for (const uint32_t end : scratch.ends) {
    const auto whole = whole_pieces_.find(text.substr(begin, end - begin));
    if (whole != whole_pieces_.end()) {
      ids.push_back(whole->second);
      begin = end;
      continue;
    }
    scratch.symbols.clear();
    for (uint32_t i = begin; i < end; ++i) {
      const TokenId id = byte_ids_[static_cast<uint8_t>(text[i])];
      if (id >= 0) scratch.symbols.push_back(id);
    }
    merges_.Apply(scratch.symbols, scratch.merge, ids);
    begin = end;
  }
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::EncodeTrusting(absl::string_view text,
                                                               const Ranges& trusted) const {
  if (text.size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("text of ", text.size(), " bytes; ", kTextBytesMax, " are the most"));
  }
  if (const auto bad = FirstInvalidUtf8(text)) {
    return absl::InvalidArgumentError(absl::StrCat("text is not UTF-8 at byte ", *bad));
  }
  Scratch scratch;
  std::vector<TokenId> ids;
  for (size_t at = 0; at < text.size();) {
    const auto marker = markers_.Find(text, at, trusted);
    const size_t end = marker.has_value() ? marker->begin : text.size();
    EncodePlain(text.substr(at, end - at), scratch, ids);
    if (!marker.has_value()) break;
    ids.push_back(marker->id);
    at = marker->end;
  }
  return ids;
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(absl::string_view text,
                                                       bool parse_special) const {
  Ranges trusted;
  if (parse_special) trusted.emplace_back(0, text.size());
  return EncodeTrusting(text, trusted);
}

absl::StatusOr<std::vector<TokenId>> Tokenizer::Encode(absl::Span<const Fragment> fragments) const {
  std::string text;
  Ranges trusted;
  for (const Fragment& fragment : fragments) {
    const size_t begin = text.size();
    text += fragment.text;
    if (!fragment.trusted || fragment.text.empty()) continue;
    if (!trusted.empty() && trusted.back().second == begin) {
      trusted.back().second = text.size();
    } else {
      trusted.emplace_back(begin, text.size());
    }
  }
  return EncodeTrusting(text, trusted);
}

bool Tokenizer::IsEnd(TokenId id) const {
  return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

}  // namespace baton::text
