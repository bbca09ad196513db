// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// UTF-8, and the character classes that pre-tokenizers ask for.
//
// The classes come from a checked-in table (unicode_ranges.inc), never from the C library,
// so that ids do not depend on the machine.  Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace baton::text {

// kNumber is \p{N}; kDigit is what only the digit splitter counts as a digit besides.
enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace, kDigit };

CharClass ClassOf(uint32_t code_point);

// What Python's str.strip() removes: white space and U+001C..U+001F.
bool IsPythonSpace(uint32_t code_point);

// One step through bytes that need not be UTF-8.
struct Utf8Step {
  enum Kind : uint8_t {
    kCharacter,   // a whole, legal character
    kBad,         // a maximal subpart that no bytes behind it could complete
    kIncomplete,  // the text ends inside a character that is legal so far
  };
  Kind kind = kCharacter;
  uint8_t size = 1;  // bytes taken
  uint32_t code_point = 0;
};

// REQUIRES: at < text.size().
Utf8Step DecodeUtf8(absl::string_view text, size_t at);

// The offset of the first byte that is not part of a legal character; nullopt: all legal.
std::optional<size_t> FirstInvalidUtf8(absl::string_view text);

void AppendUtf8(uint32_t code_point, std::string& out);

// Characters of `text`, which is legal UTF-8.
size_t CountCharacters(absl::string_view text);

// U+FFFD, which stands for what is not UTF-8.
inline constexpr char kReplacement[] = "\xEF\xBF\xBD";

}  // namespace baton::text
