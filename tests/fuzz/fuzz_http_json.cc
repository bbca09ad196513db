// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as the body of an API request: an error or plain values, nothing else.
// DEPS: openai_request
#include <cstddef>
#include <cstdint>

#include "server/openai_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using baton::server::OpenAiKind;
  const absl::string_view body(reinterpret_cast<const char*>(data), size);
  baton::server::OpenAiRequest chat, completion;
  (void)ParseOpenAi(OpenAiKind::kChat, body, &chat);
  (void)ParseOpenAi(OpenAiKind::kCompletions, body, &completion);
  baton::server::TokenizeBody tokenize;
  (void)ParseTokenize(body, &tokenize);
  baton::server::DetokenizeBody detokenize;
  (void)ParseDetokenize(body, &detokenize);
  return 0;
}
