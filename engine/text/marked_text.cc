// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/marked_text.h"

#include <algorithm>

namespace baton::text {

void MarkedText::Append(absl::string_view text, bool input) {
  if (text.empty()) return;
  text_.append(text.data(), text.size());
  if (!runs_.empty() && runs_.back().input == input) {
    runs_.back().end = text_.size();
  } else {
    runs_.push_back({text_.size(), input});
  }
}

void MarkedText::Append(const MarkedText& other, size_t begin, size_t end) {
  auto run = std::partition_point(other.runs_.begin(), other.runs_.end(),
                                  [begin](const Run& r) { return r.end <= begin; });
  const absl::string_view text = other.text_;
  for (size_t at = begin; at < end; ++run) {
    const size_t stop = std::min(run->end, end);
    Append(text.substr(at, stop - at), run->input);
    at = stop;
  }
}

MarkedText MarkedText::Slice(size_t begin, size_t end) const {
  MarkedText slice;
  slice.Append(*this, begin, end);
  return slice;
}

bool MarkedText::any_input() const {
  return std::any_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.input; });
}

}  // namespace baton::text
