// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Text out of ids: characters, stop strings and log-probability entries across token borders.
#include "engine/text/text_session.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/text/tiny_vocabulary.h"

namespace baton::text {
namespace {

struct Run {
  std::vector<std::string> deltas;
  std::string text;
  std::vector<uint32_t> reported;  // token indices
  std::vector<uint64_t> offsets;
  std::string bytes;  // of the reported tokens
  Finish finish = Finish::kNone;
  uint32_t tokens = 0;

  void Take(TextDelta delta) {
    CHECK(FirstInvalidUtf8(delta.text) == std::nullopt);
    text += delta.text;
    deltas.push_back(std::move(delta.text));
    for (const ReleasedToken& token : delta.tokens) {
      reported.push_back(token.index);
      offsets.push_back(token.text_offset);
      bytes += token.bytes;
    }
    finish = delta.finish;
  }
};

// Pushes each part as the tokens of its bytes, until the session ends.
Run RunParts(const std::vector<std::string>& parts, TextOptions options, bool flush = false) {
  const Tokenizer tokenizer = TinyTokenizer();
  options.stop_ids = {kTinyEnd};
  TextSession session(tokenizer, options);
  Run run;
  for (const std::string& part : parts) {
    const TokenId id = part == "<|end|>"     ? kTinyEnd
                       : part == "<|start|>" ? kTinyStart
                                             : TinyId(part);
    run.Take(session.Push(id));
    if (session.finish() != Finish::kNone) break;
  }
  if (flush && session.finish() == Finish::kNone) run.Take(session.Flush());
  run.tokens = session.completion_tokens();
  return run;
}

using List = std::vector<std::string>;
using Indices = std::vector<uint32_t>;

TEST_CASE("a character in two tokens comes with the second, and both are reported then") {
  const Run run = RunParts({"a", "\xC3", "\xA9", "b"}, {});
  CHECK(run.deltas == List{"a", "", "\xC3\xA9", "b"});
  CHECK(run.reported == Indices{0, 1, 2, 3});
  CHECK(run.offsets == std::vector<uint64_t>{0, 1, 1, 2});
  CHECK(run.finish == Finish::kNone);
}

TEST_CASE("an answer that ends inside a character ends with a replacement") {
  TextOptions options;
  options.tokens_max = 2;
  const Run run = RunParts({"a", "\xC3"}, options);
  CHECK(run.text == std::string("a") + kReplacement);
  CHECK(run.reported == Indices{0, 1});
  CHECK(run.finish == Finish::kLength);
}

TEST_CASE("a stop string inside one token cuts its text") {
  TextOptions options;
  options.stops = {"to"};
  const Run run = RunParts({"a", "stop", "b"}, options);
  CHECK(run.text == "as");
  CHECK(run.finish == Finish::kStop);
  CHECK(run.reported == Indices{0, 1});
  CHECK(run.tokens == 2);
}

TEST_CASE("only what may start a stop string is held back, and no part of it is shown") {
  TextOptions options;
  options.stops = {"stop!"};
  const Run run = RunParts({"s", "s", "t", "op", "!", "x"}, options);
  CHECK(run.deltas == List{"", "s", "", "", ""});
  CHECK(run.reported == Indices{0});
  CHECK(run.tokens == 5);
  CHECK(run.finish == Finish::kStop);
}

TEST_CASE("held text comes out when it turns out not to be a stop string") {
  TextOptions options;
  options.stops = {"stop!"};
  const Run run = RunParts({"stop", " ", "st", "<|end|>"}, options);
  CHECK(run.deltas == List{"", "stop ", "", "st"});
  CHECK(run.reported == Indices{0, 1, 2});
  CHECK(run.finish == Finish::kStop);
  CHECK(run.tokens == 4);
}

TEST_CASE("a stop string may overlap itself and others") {
  TextOptions options;
  options.stops = {"aab", "aaaa!"};
  const Run run = RunParts({"a", "aa", "aa", "a", "b"}, options);
  CHECK(run.text == "aaaa");
  CHECK(run.finish == Finish::kStop);
}

TEST_CASE("of stop strings that end together the longest is cut off") {
  TextOptions options;
  options.stops = {"p", "op"};
  CHECK(RunParts({"st", "op"}, options).text == "st");
}

TEST_CASE("the stop string is sent when asked for") {
  TextOptions options;
  options.stops = {"to"};
  options.include_stop = true;
  CHECK(RunParts({"stop"}, options).text == "sto");
}

TEST_CASE("stop strings are ignored in the first tokens_min tokens") {
  TextOptions options;
  options.stops = {"a"};
  options.tokens_min = 2;
  const Run run = RunParts({"a", "a", "b", "a"}, options);
  CHECK(run.text == "aab");
  CHECK(run.finish == Finish::kStop);
  CHECK(run.tokens == 4);
}

TEST_CASE("markers have no text but are reported in their place") {
  const Run run = RunParts({"a", "<|start|>", "b"}, {});
  CHECK(run.text == "ab");
  CHECK(run.reported == Indices{0, 1, 2});
  TextOptions show;
  show.show_control = true;
  CHECK(RunParts({"a", "<|start|>"}, show).text == "a<|start|>");
}

TEST_CASE("a stop string in the last token wins over the limit") {
  TextOptions options;
  options.stops = {"b"};
  options.tokens_max = 2;
  CHECK(RunParts({"a", "b"}, options).finish == Finish::kStop);
  CHECK(RunParts({"a", "a"}, options).finish == Finish::kLength);
}

TEST_CASE("a flush releases what was held") {
  TextOptions options;
  options.stops = {"stop!"};
  const Run run = RunParts({"a", "st", "\xC3"}, options, true);
  CHECK(run.text == std::string("ast") + kReplacement);
  CHECK(run.reported == Indices{0, 1, 2});
}

TEST_CASE("the bytes of the reported tokens are the text, wherever it is cut") {
  const std::string text = "the stop\xE4\xB8\x80 aaaa the\xF0\x9F\x98\x80.";
  std::vector<std::string> parts;
  for (const char byte : text) parts.emplace_back(1, byte);
  const Run run = RunParts(parts, {});
  CHECK(run.text == text);
  CHECK(run.bytes == text);
}

TEST_CASE("stop strings are checked before use") {
  CHECK(StopMatcher::Check({std::string("x")}).ok());
  CHECK_FALSE(StopMatcher::Check({std::string()}).ok());
  CHECK_FALSE(StopMatcher::Check({std::string("\xFF")}).ok());
  CHECK_FALSE(StopMatcher::Check({std::string(kStopBytesMax + 1, 'x')}).ok());
  CHECK_FALSE(StopMatcher::Check(std::vector<std::string>(kStopsMax + 1, "x")).ok());
}

}  // namespace
}  // namespace baton::text
