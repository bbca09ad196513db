// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Turns the bytes of tokens, which may end inside a character, into text that may be shown.
//
// Bytes that can still become a character are held back; what cannot becomes one U+FFFD per
// maximal subpart at once (half a surrogate: with the byte behind it).  All text together
// equals the decoding of all bytes together.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace baton::text {

class Utf8Stream {
 public:
  // Appends what `bytes` make certain to `out`, which is always legal UTF-8.
  void Push(absl::string_view bytes, std::string& out);
  // Appends U+FFFD for what is held; nothing follows.
  void Flush(std::string& out);
  size_t held() const { return held_.size(); }  // bytes, at most 3

 private:
  std::string held_;
};

// `bytes` as text, with U+FFFD for what is not UTF-8.
std::string LossyText(absl::string_view bytes);

}  // namespace baton::text
