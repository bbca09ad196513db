// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/pre_tokenizer.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

struct Name {
  absl::string_view name;
  PreTokenizer kind;
};
constexpr Name kNames[] = {
    {"gpt-2", PreTokenizer::kGpt2},
    {"smollm", PreTokenizer::kDigitsThenGpt2},
    {"starcoder", PreTokenizer::kDigitsThenGpt2},
    {"refact", PreTokenizer::kDigitsThenGpt2},
    {"llama-bpe", PreTokenizer::kLlama3},
    {"llama3", PreTokenizer::kLlama3},
    {"llama-v3", PreTokenizer::kLlama3},
};

struct Char {
  CharClass kind;
  uint32_t size;
};

Char At(absl::string_view text, size_t at) {
  const Utf8Step step = DecodeUtf8(text, at);
  return {ClassOf(step.code_point), step.size};
}

// GPT-2's classes: what only the digit splitter calls a digit is punctuation here.
CharClass WordClass(CharClass kind) { return kind == CharClass::kDigit ? CharClass::kOther : kind; }

// The end of the run of `kind` that starts at `at`.
size_t RunEnd(absl::string_view text, size_t at, CharClass kind) {
  while (at < text.size()) {
    const Char next = At(text, at);
    if (WordClass(next.kind) != kind) break;
    at += next.size;
  }
  return at;
}

// Bytes of a contraction ('s 't 're 've 'm 'll 'd, lower case) at `at`; 0: none.
size_t Contraction(absl::string_view text, size_t at) {
  if (text[at] != '\'' || at + 1 == text.size()) return 0;
  const char first = text[at + 1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (at + 2 == text.size()) return 0;
  const char second = text[at + 2];
  const bool two =
      ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

// The end of the piece of white space at `at`.  A run gives its last character to the word
// behind it, unless it is that character or nothing is behind it.
size_t SpaceEnd(absl::string_view text, size_t at) {
  size_t last = at;
  size_t end = at;
  while (end < text.size()) {
    const Char next = At(text, end);
    if (next.kind != CharClass::kSpace) return last > at ? last : end;
    last = end;
    end += next.size;
  }
  return end;
}

// ('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+) at `at`.
size_t Gpt2End(absl::string_view text, size_t at) {
  if (const size_t size = Contraction(text, at)) return at + size;
  const size_t word = at + (text[at] == ' ' ? 1 : 0);
  if (word < text.size()) {
    const CharClass kind = WordClass(At(text, word).kind);
    if (kind != CharClass::kSpace) return RunEnd(text, word, kind);
  }
  return SpaceEnd(text, at);
}

void SplitGpt2(absl::string_view text, size_t base, std::vector<uint32_t>& ends) {
  for (size_t at = 0; at < text.size();) {
    at = Gpt2End(text, at);
    ends.push_back(static_cast<uint32_t>(base + at));
  }
}

// Bytes of a contraction in any case at `at`; 0: none.  The long s is an s in another case.
size_t AnyCaseContraction(absl::string_view text, size_t at) {
  if (text[at] != '\'') return 0;
  std::string folded = "'";
  size_t size = 1;
  for (size_t i = at + 1; i < text.size() && folded.size() < 3;) {
    const Utf8Step step = DecodeUtf8(text, i);
    const uint32_t point = step.code_point == 0x17F ? 's' : step.code_point;
    const bool upper = point >= 'A' && point <= 'Z';
    folded.push_back(point < 0x80 ? static_cast<char>(upper ? point + 32 : point) : '?');
    size += step.size;
    if (folded.size() == 2 && Contraction(folded, 0) == 2) return size;
    i += step.size;
  }
  return Contraction(folded, 0) == 3 ? size : 0;
}

bool IsNewline(char c) { return c == '\r' || c == '\n'; }

size_t NewlinesEnd(absl::string_view text, size_t at) {
  while (at < text.size() && IsNewline(text[at])) ++at;
  return at;
}

// [^\r\n\p{L}\p{N}]?\p{L}+ at `at`; `at` itself if there is no such word.
size_t Llama3WordEnd(absl::string_view text, size_t at) {
  const Char first = At(text, at);
  size_t word = at;
  if (first.kind == CharClass::kNumber || IsNewline(text[at])) return at;
  if (first.kind != CharClass::kLetter) word += first.size;
  const size_t end = RunEnd(text, word, CharClass::kLetter);
  return end == word ? at : end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at `at`: up to the last newline of the white space, if it has one.
size_t Llama3SpaceEnd(absl::string_view text, size_t at) {
  const size_t end = RunEnd(text, at, CharClass::kSpace);
  for (size_t i = end; i > at; --i) {
    if (IsNewline(text[i - 1])) return i;
  }
  return SpaceEnd(text, at);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
// \s*[\r\n]+|\s+(?!\S)|\s+ at `at`.
size_t Llama3End(absl::string_view text, size_t at) {
  if (const size_t size = AnyCaseContraction(text, at)) return at + size;
  if (const size_t end = Llama3WordEnd(text, at); end > at) return end;
  size_t end = at;
  for (int i = 0; i < 3 && end < text.size(); ++i) {
    const Char next = At(text, end);
    if (next.kind != CharClass::kNumber) break;
    end += next.size;
  }
  if (end > at) return end;
  const size_t other = at + (text[at] == ' ' ? 1 : 0);
  end = RunEnd(text, other, CharClass::kOther);
  if (end > other) return NewlinesEnd(text, end);
  return Llama3SpaceEnd(text, at);
}

void SplitLlama3(absl::string_view text, std::vector<uint32_t>& ends) {
  for (size_t at = 0; at < text.size();) {
    at = Llama3End(text, at);
    ends.push_back(static_cast<uint32_t>(at));
  }
}

void SplitDigitsThenGpt2(absl::string_view text, std::vector<uint32_t>& ends) {
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const Char next = At(text, at);
    if (next.kind == CharClass::kNumber || next.kind == CharClass::kDigit) {
      SplitGpt2(text.substr(start, at - start), start, ends);
      start = at + next.size;
      ends.push_back(static_cast<uint32_t>(start));
    }
    at += next.size;
  }
  SplitGpt2(text.substr(start), start, ends);
}

}  // namespace

absl::StatusOr<PreTokenizer> PreTokenizerByName(absl::string_view name) {
  for (const Name& known : kNames) {
    if (known.name == name) return known.kind;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown pre-tokenizer '", name, "' (tokenizer.ggml.pre); another one would give wrong ids"));
}

void Split(PreTokenizer kind, absl::string_view text, std::vector<uint32_t>& ends) {
  switch (kind) {
    case PreTokenizer::kGpt2:
      return SplitGpt2(text, 0, ends);
    case PreTokenizer::kDigitsThenGpt2:
      return SplitDigitsThenGpt2(text, ends);
    case PreTokenizer::kLlama3:
      return SplitLlama3(text, ends);
  }
}

bool TakesWholePieces(PreTokenizer kind) { return kind == PreTokenizer::kLlama3; }

}  // namespace baton::text
