// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Python's string operations, on text that keeps its marks.
//
// Letters are turned to upper or lower case in ASCII only.  Results that can be much larger
// than what goes in take the Heap and fail when its room is gone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/marked_text.h"
#include "engine/text/template_value.h"

namespace baton::text {

// kTitle is str.title, which knows letters; kWords is Jinja's, which knows blanks.
enum class Case : uint8_t { kUpper, kLower, kTitle, kWords, kCapitalize };
MarkedText ChangeCase(const MarkedText& text, Case to);

// Without the characters of `set` (nullopt: white space) at either end.
MarkedText Strip(const MarkedText& text, std::optional<absl::string_view> set, bool begin,
                 bool end);

// As str.split and str.rsplit.  count_max < 0: no limit.  REQUIRES: separator not empty.
std::vector<MarkedText> SplitText(const MarkedText& text, absl::string_view separator,
                                  int64_t count_max, bool from_end);
std::vector<MarkedText> SplitOnSpace(const MarkedText& text, int64_t count_max);
std::vector<MarkedText> SplitLines(const MarkedText& text);

absl::StatusOr<MarkedText> Replace(Heap& heap, const MarkedText& text, const MarkedText& from,
                                   const MarkedText& to, int64_t count_max);
absl::StatusOr<MarkedText> Repeat(Heap& heap, const MarkedText& text, int64_t count);

// The offset of character `index` of legal UTF-8, or its size if there are not so many.
size_t OffsetOfCharacter(absl::string_view text, int64_t index);

}  // namespace baton::text
