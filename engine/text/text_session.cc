// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/text_session.h"

#include <algorithm>
#include <utility>

#include "base/ensure.h"
#include "engine/text/unicode.h"

namespace baton::text {

TextSession::TextSession(const Tokenizer& tokenizer, TextOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), stops_(options_.stops) {
  ENSURE(options_.tokens_max > 0);
}

bool TextSession::IsStopId(TokenId id) const {
  return std::find(options_.stop_ids.begin(), options_.stop_ids.end(), id) !=
         options_.stop_ids.end();
}

bool TextSession::Decoded(absl::string_view text) {
  characters_ += CountCharacters(text);
  const uint64_t before = held_.size();
  held_.append(text.data(), text.size());
  const uint64_t raw_decoded = raw_ - utf8_.held();
  for (Waiting& waiting : waiting_) {
    if (waiting.text_end == kUnknown && waiting.raw_end <= raw_decoded) {
      waiting.text_end = decoded();
    }
  }
  if (count_ <= options_.tokens_min) return false;
  const auto match = stops_.Push(text);
  if (!match.has_value()) return false;
  held_.resize(before + match->end - (options_.include_stop ? 0 : match->size));
  return true;
}

bool TextSession::DecodeRest() {
  std::string text;
  utf8_.Flush(text);
  return Decoded(text);
}

void TextSession::Release(uint64_t end, TextDelta& delta) {
  const uint64_t size = end - released_;
  delta.text.append(held_, 0, size);
  held_.erase(0, size);
  released_ = end;
  while (!waiting_.empty() && waiting_.front().text_end <= released_) {
    delta.tokens.push_back(std::move(waiting_.front().token));
    waiting_.pop_front();
  }
}

void TextSession::ReleaseAll(TextDelta& delta) {
  const uint64_t end = decoded();
  // A token that a stop string cut in two is reported, one that it cut off is not.
  while (!waiting_.empty() && waiting_.back().text_begin >= end && waiting_.back().text_end > end) {
    waiting_.pop_back();
  }
  for (Waiting& waiting : waiting_) waiting.text_end = std::min(waiting.text_end, end);
  Release(end, delta);
}

TextDelta TextSession::Push(TokenId id) {
  ENSURE(finish_ == Finish::kNone);
  const uint32_t index = count_++;
  bool stopped = false;
  if (IsStopId(id)) {
    DecodeRest();
    stopped = true;
  } else {
    const bool silent = tokenizer_.IsControl(id) && !options_.show_control;
    const absl::string_view bytes = silent ? absl::string_view() : tokenizer_.Bytes(id);
    raw_ += bytes.size();
    waiting_.push_back({{index, id, std::string(bytes), characters_}, raw_, decoded()});
    std::string text;
    utf8_.Push(bytes, text);
    stopped = Decoded(text);
  }
  if (!stopped && count_ >= options_.tokens_max) {
    stopped = DecodeRest();
    finish_ = Finish::kLength;
  }
  if (stopped) finish_ = Finish::kStop;

  TextDelta delta;
  delta.finish = finish_;
  if (finish_ == Finish::kNone) {
    Release(decoded() - stops_.held(), delta);
  } else {
    ReleaseAll(delta);
  }
  return delta;
}

TextDelta TextSession::Flush() {
  ENSURE(finish_ == Finish::kNone);
  TextDelta delta;
  DecodeRest();
  ReleaseAll(delta);
  return delta;
}

}  // namespace baton::text
