// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Text that remembers which of its bytes came from input, that is from people, and which a
// template wrote.  A piece of it keeps its marks, so that no operation of a template can
// turn what somebody typed into a marker.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::text {

class MarkedText {
 public:
  struct Run {
    size_t end;  // offset; it begins where the one before ends
    bool input;
    bool operator==(const Run&) const = default;
  };

  MarkedText() = default;
  MarkedText(absl::string_view text, bool input) { Append(text, input); }

  void Append(absl::string_view text, bool input);
  void Append(const MarkedText& other) { Append(other, 0, other.size()); }
  // The bytes [begin, end) of `other`.  REQUIRES: begin <= end <= other.size().
  void Append(const MarkedText& other, size_t begin, size_t end);
  MarkedText Slice(size_t begin, size_t end) const;

  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }
  bool any_input() const;
  const std::vector<Run>& runs() const { return runs_; }  // not empty ones; neighbours differ

 private:
  std::string text_;
  std::vector<Run> runs_;
};

}  // namespace baton::text
