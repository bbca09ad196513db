// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace baton::text {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
  CharClass kind;
};

constexpr Range kRanges[] = {
#include "engine/text/unicode_ranges.inc"
};

CharClass Search(uint32_t code_point) {
  const Range* range =
      std::lower_bound(std::begin(kRanges), std::end(kRanges), code_point,
                       [](const Range& r, uint32_t point) { return r.last < point; });
  return range != std::end(kRanges) && range->first <= code_point ? range->kind : CharClass::kOther;
}

// Everything below U+0800 by table: most text of most alphabets.
constexpr uint32_t kTableSize = 0x800;
std::array<CharClass, kTableSize> MakeTable() {
  std::array<CharClass, kTableSize> table;
  for (uint32_t point = 0; point < kTableSize; ++point) table[point] = Search(point);
  return table;
}

// The legal second bytes after `lead`, which also excludes overlong forms, surrogates and
// what lies above U+10FFFF.
void SecondByteRange(uint8_t lead, uint8_t& low, uint8_t& high) {
  low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
}

}  // namespace

CharClass ClassOf(uint32_t code_point) {
  static const std::array<CharClass, kTableSize> table = MakeTable();
  return code_point < kTableSize ? table[code_point] : Search(code_point);
}

bool IsPythonSpace(uint32_t code_point) {
  return (code_point >= 0x1C && code_point <= 0x1F) || ClassOf(code_point) == CharClass::kSpace;
}

Utf8Step DecodeUtf8(absl::string_view text, size_t at) {
  const uint8_t lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return {Utf8Step::kCharacter, 1, lead};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Step::kBad, 1, 0};
  const uint8_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t point = lead & (0xFF >> (size + 1));
  uint8_t low;
  uint8_t high;
  SecondByteRange(lead, low, high);
  for (uint8_t i = 1; i < size; ++i) {
    if (at + i == text.size()) return {Utf8Step::kIncomplete, i, 0};
    const uint8_t byte = static_cast<uint8_t>(text[at + i]);
    if (byte < low || byte > high) return {Utf8Step::kBad, i, 0};
    point = point << 6 | (byte & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Step::kCharacter, size, point};
}

std::optional<size_t> FirstInvalidUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text, at);
    if (step.kind != Utf8Step::kCharacter) return at;
    at += step.size;
  }
  return std::nullopt;
}

void AppendUtf8(uint32_t code_point, std::string& out) {
  const auto put = [&out](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t CountCharacters(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace baton::text
