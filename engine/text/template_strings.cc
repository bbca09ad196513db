// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/template_strings.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "base/status_macros.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

// Where the last character of text[0, end) begins.  REQUIRES: end > 0.
size_t LastCharacter(absl::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

bool InSet(absl::string_view text, size_t at, std::optional<absl::string_view> set) {
  const Utf8Step step = DecodeUtf8(text, at);
  if (!set.has_value()) return IsPythonSpace(step.code_point);
  return set->find(text.substr(at, step.size)) != absl::string_view::npos;
}

}  // namespace

MarkedText ChangeCase(const MarkedText& text, Case to) {
  std::string changed = text.text();
  bool starts_word = true;
  for (char& c : changed) {
    const bool upper = to == Case::kUpper || (to != Case::kLower && starts_word);
    c = upper ? absl::ascii_toupper(c) : absl::ascii_tolower(c);
    starts_word = (to == Case::kTitle && !absl::ascii_isalpha(c) && (c & 0x80) == 0) ||
                  (to == Case::kWords &&
                   absl::string_view("- \t\n\v\f\r({[<").find(c) != absl::string_view::npos);
  }
  MarkedText out;
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    out.Append(absl::string_view(changed).substr(begin, run.end - begin), run.input);
    begin = run.end;
  }
  return out;
}

MarkedText Strip(const MarkedText& text, std::optional<absl::string_view> set, bool begin,
                 bool end) {
  const absl::string_view s = text.text();
  size_t from = 0;
  size_t to = s.size();
  while (begin && from < to && InSet(s, from, set)) from += DecodeUtf8(s, from).size;
  while (end && to > from && InSet(s, LastCharacter(s, to), set)) to = LastCharacter(s, to);
  return text.Slice(from, to);
}

std::vector<MarkedText> SplitText(const MarkedText& text, absl::string_view separator,
                                  int64_t count_max, bool from_end) {
  const absl::string_view s = text.text();
  std::vector<MarkedText> parts;
  if (!from_end) {
    size_t from = 0;
    for (int64_t cut = 0; count_max < 0 || cut < count_max; ++cut) {
      const size_t at = s.find(separator, from);
      if (at == absl::string_view::npos) break;
      parts.push_back(text.Slice(from, at));
      from = at + separator.size();
    }
    parts.push_back(text.Slice(from, s.size()));
    return parts;
  }
  size_t to = s.size();
  for (int64_t cut = 0; count_max < 0 || cut < count_max; ++cut) {
    const size_t at = s.substr(0, to).rfind(separator);
    if (at == absl::string_view::npos) break;
    parts.push_back(text.Slice(at + separator.size(), to));
    to = at;
  }
  parts.push_back(text.Slice(0, to));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<MarkedText> SplitOnSpace(const MarkedText& text, int64_t count_max) {
  const absl::string_view s = text.text();
  std::vector<MarkedText> parts;
  size_t at = 0;
  while (true) {
    while (at < s.size() && InSet(s, at, std::nullopt)) at += DecodeUtf8(s, at).size;
    if (at == s.size()) return parts;
    if (count_max >= 0 && static_cast<int64_t>(parts.size()) == count_max) break;
    const size_t from = at;
    while (at < s.size() && !InSet(s, at, std::nullopt)) at += DecodeUtf8(s, at).size;
    parts.push_back(text.Slice(from, at));
  }
  parts.push_back(text.Slice(at, s.size()));
  return parts;
}

std::vector<MarkedText> SplitLines(const MarkedText& text) {
  const absl::string_view s = text.text();
  std::vector<MarkedText> lines;
  for (size_t from = 0; from < s.size();) {
    size_t end = s.find_first_of("\r\n", from);
    if (end == absl::string_view::npos) end = s.size();
    lines.push_back(text.Slice(from, end));
    from = end + (s.substr(end, 2) == "\r\n" ? 2 : 1);
  }
  return lines;
}

absl::StatusOr<MarkedText> Replace(Heap& heap, const MarkedText& text, const MarkedText& from,
                                   const MarkedText& to, int64_t count_max) {
  const absl::string_view s = text.text();
  MarkedText out;
  size_t at = 0;
  for (int64_t done = 0; count_max < 0 || done < count_max; ++done) {
    heap.Spend(1 + to.size() / 64);
    RETURN_IF_ERROR(heap.CheckRoom(out.size() + to.size()));
    // An empty string is found in front of every character and at the end.
    const size_t found = from.size() == 0 ? at : s.find(from.text(), at);
    if (found == absl::string_view::npos) break;
    out.Append(text, at, found);
    out.Append(to);
    at = found + from.size();
    if (from.size() > 0) continue;
    if (at == s.size()) return out;
    const size_t size = DecodeUtf8(s, at).size;
    out.Append(text, at, at + size);
    at += size;
  }
  out.Append(text, at, s.size());
  return out;
}

absl::StatusOr<MarkedText> Repeat(Heap& heap, const MarkedText& text, int64_t count) {
  MarkedText out;
  for (int64_t i = 0; i < count && text.size() > 0; ++i) {
    heap.Spend(1 + text.size() / 64);
    RETURN_IF_ERROR(heap.CheckRoom(out.size() + text.size()));
    out.Append(text);
  }
  return out;
}

size_t OffsetOfCharacter(absl::string_view text, int64_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += DecodeUtf8(text, at).size;
  return at;
}

}  // namespace baton::text
