// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A byte-level vocabulary small enough to reason about: three markers, every byte but one,
// and a few merges.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/ensure.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode.h"

namespace baton::text {

inline constexpr TokenId kTinyEnd = 0;    // "<|end|>"
inline constexpr TokenId kTinyStart = 1;  // "<|start|>"
inline constexpr TokenId kTinyTool = 2;   // "<tool>", defined by its text, not a control marker
inline constexpr uint8_t kTinyMissingByte = 0x04;

// The spelling of one byte in the vocabulary's alphabet.
inline std::string TinySpelling(uint8_t byte) {
  const auto prints = [](uint32_t b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  uint32_t character = byte;
  if (!prints(byte)) {
    character = 0x100;
    for (uint32_t b = 0; b < byte; ++b) character += prints(b) ? 0 : 1;
  }
  std::string out;
  AppendUtf8(character, out);
  return out;
}

inline std::string TinySpelling(const std::string& bytes) {
  std::string out;
  for (const char byte : bytes) out += TinySpelling(static_cast<uint8_t>(byte));
  return out;
}

inline TokenizerData TinyData() {
  TokenizerData data;
  data.model = "gpt2";
  data.pre_tokenizer = "smollm";
  data.tokens = {"<|end|>", "<|start|>", "<tool>"};
  data.types = {TokenType::kControl, TokenType::kControl, TokenType::kUserDefined};
  for (int byte = 0; byte < 256; ++byte) {
    if (byte == kTinyMissingByte) continue;
    data.tokens.push_back(TinySpelling(static_cast<uint8_t>(byte)));
  }
  const std::pair<std::string, std::string> merges[] = {
      {"h", "e"}, {"t", "he"}, {" ", "the"}, {"a", "a"},   {"aa", "aa"},
      {".", "."}, {"s", "t"},  {"o", "p"},   {"st", "op"}, {" ", " "},
  };
  for (const auto& [left, right] : merges) {
    data.merges.push_back(TinySpelling(left) + " " + TinySpelling(right));
    data.tokens.push_back(TinySpelling(left + right));
  }
  data.types.resize(data.tokens.size(), TokenType::kNormal);
  data.bos = kTinyStart;
  data.end_ids = {kTinyEnd};
  return data;
}

inline Tokenizer TinyTokenizer() {
  auto tokenizer = Tokenizer::Create(TinyData());
  ENSURE(tokenizer.ok());
  return *std::move(tokenizer);
}

// The id of the token with these bytes, which is not a marker.
inline TokenId TinyId(const std::string& bytes) {
  const TokenizerData data = TinyData();
  for (size_t i = 3; i < data.tokens.size(); ++i) {
    if (data.tokens[i] == TinySpelling(bytes)) return static_cast<TokenId>(i);
  }
  ENSURE(false);
  return -1;
}

}  // namespace baton::text
