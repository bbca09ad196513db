// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The text of one answer: ids go in one by one, text that may be sent comes out.
//
// Text is never cut inside a character and never shows a part of a stop string.  The
// session decides when the answer ends: an end id, a stop string, the token limit.  Every
// token is reported once, together with the text that it completes, so that log-probability
// entries line up with what was sent; tokens that lie wholly in or behind a stop string are
// counted but not reported.
//
// Pure state; belongs to one thread at a time.  The tokenizer outlives it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "engine/text/stop_matcher.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8_stream.h"

namespace baton::text {

enum class Finish : uint8_t { kNone, kStop, kLength };

struct TextOptions {
  std::vector<std::string> stops;    // REQUIRES: StopMatcher::Check is OK
  std::vector<TokenId> stop_ids;     // end the answer; have no text (end ids, the client's)
  uint32_t tokens_max = UINT32_MAX;  // > 0
  uint32_t tokens_min = 0;           // stop strings count only in tokens behind these
  bool include_stop = false;         // the stop string itself is sent too
  bool show_control = false;         // markers have their spelling as text, not none
};

// A token all of whose text has been released.
struct ReleasedToken {
  uint32_t index = 0;  // in the answer, from 0
  TokenId id = 0;
  std::string bytes;         // its own; perhaps part of a character
  uint64_t text_offset = 0;  // where it starts in the answer, in characters
};

struct TextDelta {
  std::string text;                   // legal UTF-8, follows all earlier deltas
  std::vector<ReleasedToken> tokens;  // in order
  Finish finish = Finish::kNone;      // set in the last delta
};

class TextSession {
 public:
  TextSession(const Tokenizer& tokenizer, TextOptions options);

  // The next output token.  REQUIRES: finish() is kNone.
  TextDelta Push(TokenId id);

  // Releases what is held, for an answer that ended for another reason (an error, a
  // cancel).  The delta's finish stays kNone.  REQUIRES: finish() is kNone; nothing follows.
  TextDelta Flush();

  Finish finish() const { return finish_; }
  uint32_t completion_tokens() const { return count_; }  // with the one that stopped it

 private:
  static constexpr uint64_t kUnknown = UINT64_MAX;
  struct Waiting {
    ReleasedToken token;
    uint64_t raw_end = 0;          // of its bytes among all tokens' bytes
    uint64_t text_begin = 0;       // in the decoded text, in bytes
    uint64_t text_end = kUnknown;  // until all its bytes are decoded
  };
  bool IsStopId(TokenId id) const;
  uint64_t decoded() const { return released_ + held_.size(); }
  // Takes in decoded text and resolves text_end of the tokens it completes.  True if a stop
  // string ends in it: the text is then cut.
  bool Decoded(absl::string_view text);
  // Decodes what is held of a character, for no more bytes will come.
  bool DecodeRest();
  // Moves the text before `end` (an offset in the decoded text) into `delta`, and the tokens.
  void Release(uint64_t end, TextDelta& delta);
  // Releases all text, and the tokens that are part of it.
  void ReleaseAll(TextDelta& delta);

  const Tokenizer& tokenizer_;
  const TextOptions options_;
  Utf8Stream utf8_;
  StopMatcher stops_;
  std::string held_;             // decoded, not released
  uint64_t released_ = 0;        // bytes of text released
  uint64_t raw_ = 0;             // bytes of all tokens
  uint64_t characters_ = 0;      // of all decoded text
  std::deque<Waiting> waiting_;  // not reported, in order
  uint32_t count_ = 0;
  Finish finish_ = Finish::kNone;
};

}  // namespace baton::text
