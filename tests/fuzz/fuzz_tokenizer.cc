// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as text, as ids and as a vocabulary.  What is refused must be refused with a
// status; what is encoded must come back; text out of ids must be legal UTF-8.
// DEPS: text
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "engine/text/text_session.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unicode.h"
#include "tests/text/tiny_vocabulary.h"

namespace baton::text {
namespace {

void FuzzText(const Tokenizer& tokenizer, const std::string& text) {
  for (const bool parse_special : {false, true}) {
    const auto ids = tokenizer.Encode(text, parse_special);
    ENSURE(ids.ok() == !FirstInvalidUtf8(text).has_value());
    if (!ids.ok()) continue;
    std::string back;
    for (const TokenId id : *ids) absl::StrAppend(&back, tokenizer.Bytes(id));
    std::string expected;
    for (const char c : text) {
      if (static_cast<uint8_t>(c) != kTinyMissingByte) expected.push_back(c);
    }
    ENSURE(back == expected);
  }
}

void FuzzIds(const Tokenizer& tokenizer, const std::string& bytes) {
  TextOptions options;
  const std::string stop = bytes.substr(0, bytes.size() % 5);
  if (!stop.empty() && StopMatcher::Check({stop}).ok()) options.stops = {stop};
  options.stop_ids = {kTinyEnd};
  TextSession session(tokenizer, options);
  std::string text;
  for (size_t i = 0; i < bytes.size() && session.finish() == Finish::kNone; ++i) {
    const TokenId id = (static_cast<uint8_t>(bytes[i]) * 31 + static_cast<TokenId>(i)) %
                       static_cast<TokenId>(tokenizer.size() + 2);
    text += session.Push(id).text;
  }
  if (session.finish() == Finish::kNone) text += session.Flush().text;
  ENSURE(!FirstInvalidUtf8(text).has_value());
  for (const std::string& part : options.stops) ENSURE(text.find(part) == std::string::npos);
}

// Lines: tokens, then behind an empty line merges.
void FuzzVocabulary(const std::string& bytes) {
  TokenizerData data;
  data.model = "gpt2";
  data.pre_tokenizer = bytes.size() % 2 == 0 ? "gpt-2" : "smollm";
  bool merges = false;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string line = bytes.substr(at, end - at);
    at = end + 1;
    if (line.empty()) {
      merges = true;
    } else if (merges) {
      data.merges.push_back(line);
    } else {
      data.tokens.push_back(line);
      data.types.push_back(static_cast<TokenType>(1 + line.size() % 6));
    }
  }
  const auto tokenizer = Tokenizer::Create(data);
  if (!tokenizer.ok()) return;
  const auto ids = tokenizer->Encode("a bb\nccc 12", true);
  ENSURE(ids.ok());
  for (const TokenId id : *ids) ENSURE(tokenizer->Has(id));
}

}  // namespace
}  // namespace baton::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizer = baton::text::TinyTokenizer();
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  baton::text::FuzzText(tokenizer, bytes);
  baton::text::FuzzIds(tokenizer, bytes);
  baton::text::FuzzVocabulary(bytes);
  return 0;
}
