// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/utf8_stream.h"

#include "engine/text/unicode.h"

namespace baton::text {
namespace {

// Half a surrogate at the end of the bytes.  It can become no character, but the reference's
// decoder waits for the byte behind it, so that text comes at the same token here and there.
bool IsHalfSurrogate(absl::string_view rest) {
  return rest.size() == 2 && rest[0] == '\xED' && (rest[1] & 0xE0) == 0xA0;
}

}  // namespace

void Utf8Stream::Push(absl::string_view bytes, std::string& out) {
  held_.append(bytes.data(), bytes.size());
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Step step = DecodeUtf8(held_, at);
    const absl::string_view rest = absl::string_view(held_).substr(at);
    if (step.kind == Utf8Step::kIncomplete || IsHalfSurrogate(rest)) break;
    if (step.kind == Utf8Step::kBad) {
      out.append(kReplacement);
    } else {
      out.append(held_, at, step.size);
    }
    at += step.size;
  }
  held_.erase(0, at);
}

void Utf8Stream::Flush(std::string& out) {
  for (size_t at = 0; at < held_.size(); at += DecodeUtf8(held_, at).size) {
    out.append(kReplacement);
  }
  held_.clear();
}

std::string LossyText(absl::string_view bytes) {
  Utf8Stream stream;
  std::string text;
  stream.Push(bytes, text);
  stream.Flush(text);
  return text;
}

}  // namespace baton::text
