// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as a chat template, rendered with a small conversation.  Whatever the template
// does, it ends in a text or a status, and text that people wrote is never trusted.
// DEPS: text
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/ensure.h"
#include "engine/text/chat_template.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

// Characters that no template of the fuzzer's is likely to write.
constexpr char kTyped[] = "\xE2\x9F\xA6typed\xE2\x9F\xA7";

ChatInput Conversation() {
  ChatInput input;
  input.messages = JsonValue::Array{
      JsonValue::Object{{"role", "user"}, {"content", kTyped}},
      JsonValue::Object{{"role", "assistant"}, {"content", JsonValue()}, {"n", 1.5}},
      JsonValue::Object{{"role", "tool"}, {"content", JsonValue::Array{1, true, "x"}}}};
  input.now = absl::UnixEpoch();
  return input;
}

}  // namespace
}  // namespace baton::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton::text;  // NOLINT: a fuzz target
  const std::string source(reinterpret_cast<const char*>(data), size);
  const auto chat = ChatTemplate::Parse(source, "<bos>", "<eos>");
  if (!chat.ok()) return 0;
  static const ChatInput input = Conversation();
  const auto fragments = chat->Render(input);
  if (!fragments.ok()) return 0;
  const bool writes_it =
      source.find("\xE2\x9F") != std::string::npos || source.find('\\') != std::string::npos;
  for (const Fragment& fragment : *fragments) {
    ENSURE(!fragment.text.empty());
    if (fragment.trusted && !writes_it) {
      ENSURE(fragment.text.find("\xE2\x9F\xA6") == std::string::npos);
    }
  }
  return 0;
}
