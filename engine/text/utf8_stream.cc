// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/utf8_stream.h"

#include "engine/text/unicode.h"

namespace baton::text {

void Utf8Stream::Push(absl::string_view bytes, std::string& out) {
  held_.append(bytes.data(), bytes.size());
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Step step = DecodeUtf8(held_, at);
    if (step.kind == Utf8Step::kIncomplete) break;
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
  if (!held_.empty()) out.append(kReplacement);
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
