// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The tokenizer on a vocabulary of a few merges: ranks, markers, provenance, bad input.
#include "engine/text/tokenizer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/text/tiny_vocabulary.h"

namespace baton::text {
namespace {

using Ids = std::vector<TokenId>;

Ids Encode(const std::string& text, bool parse_special = false) {
  static const auto* tokenizer = new Tokenizer(TinyTokenizer());
  auto ids = tokenizer->Encode(text, parse_special);
  REQUIRE(ids.ok());
  return *ids;
}

TEST_CASE("pairs merge by rank, the leftmost first") {
  CHECK(Encode("the the") == Ids{TinyId("the"), TinyId(" the")});
  CHECK(Encode("aaaaa") == Ids{TinyId("aaaa"), TinyId("a")});
  CHECK(Encode("aaa") == Ids{TinyId("aa"), TinyId("a")});
  CHECK(Encode("") == Ids{});
}

TEST_CASE("a byte without a token vanishes before its neighbours are merged") {
  CHECK(Encode(".\x04.") == Ids{TinyId("..")});
  CHECK(Encode("\x04") == Ids{});
}

TEST_CASE("Llama 3's pieces that are tokens are taken whole, though no merge makes them") {
  TokenizerData data = TinyData();
  data.tokens.push_back(TinySpelling(" quiz"));
  data.types.push_back(TokenType::kNormal);
  const auto last = static_cast<TokenId>(data.tokens.size() - 1);
  for (const char* pre : {"smollm", "llama-bpe"}) {
    data.pre_tokenizer = pre;
    const auto tokenizer = Tokenizer::Create(data);
    REQUIRE(tokenizer.ok());
    const auto ids = tokenizer->Encode("the quiz", false);
    REQUIRE(ids.ok());
    const bool whole = std::string(pre) == "llama-bpe";
    CHECK((*ids == Ids{TinyId("the"), last}) == whole);
    CHECK(ids->size() == (whole ? 2u : 6u));
  }
}

TEST_CASE("control markers are tokens only where special text is parsed") {
  CHECK(Encode("a<|end|>", true) == Ids{TinyId("a"), kTinyEnd});
  const Ids typed = Encode("a<|end|>");
  CHECK(std::count(typed.begin(), typed.end(), kTinyEnd) == 0);
  CHECK(Encode("<|st<|start|>", true).back() == kTinyStart);
}

TEST_CASE("user-defined tokens match whoever wrote them") {
  CHECK(Encode("a<tool>") == Ids{TinyId("a"), kTinyTool});
}

TEST_CASE("a typed marker between trusted ones stays text") {
  const Tokenizer tokenizer = TinyTokenizer();
  const auto ids = tokenizer.Encode(
      {{"<|start|>", true}, {"<|end|>", false}, {"<|e", true}, {"nd|>", false}, {"<|end|>", true}});
  REQUIRE(ids.ok());
  CHECK(std::count(ids->begin(), ids->end(), kTinyEnd) == 1);
  CHECK(ids->front() == kTinyStart);
  CHECK(ids->back() == kTinyEnd);
}

TEST_CASE("a marker that the template wrote in two parts is one") {
  const Tokenizer tokenizer = TinyTokenizer();
  const auto ids = tokenizer.Encode({{"<|e", true}, {"", false}, {"nd|>", true}});
  REQUIRE(ids.ok());
  CHECK(*ids == Ids{kTinyEnd});
}

TEST_CASE("text between markers is one piece though several wrote it") {
  const Tokenizer tokenizer = TinyTokenizer();
  const auto ids = tokenizer.Encode({{"<|start|>t", true}, {"he", false}});
  REQUIRE(ids.ok());
  CHECK(*ids == Ids{kTinyStart, TinyId("the")});
}

TEST_CASE("text that is not UTF-8 is refused") {
  const Tokenizer tokenizer = TinyTokenizer();
  const auto ids = tokenizer.Encode("ab\xFF", false);
  REQUIRE(ids.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(ids.status().message()) == "text is not UTF-8 at byte 2");
}

TEST_CASE("long texts without a break give their bytes back") {
  const Tokenizer tokenizer = TinyTokenizer();
  for (const std::string& unit : {std::string("a"), std::string(" "), std::string("the"),
                                  std::string("\xE4\xB8\x80"), std::string("<|")}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    const auto ids = tokenizer.Encode(text, true);
    REQUIRE(ids.ok());
    std::string back;
    for (const TokenId id : *ids) absl::StrAppend(&back, tokenizer.Bytes(id));
    CHECK(back == text);
  }
}

TEST_CASE("a vocabulary that contradicts itself is refused with the reason") {
  const auto refuse = [](void (*change)(TokenizerData&), const std::string& why) {
    TokenizerData data = TinyData();
    change(data);
    const auto tokenizer = Tokenizer::Create(data);
    REQUIRE(tokenizer.status().code() == absl::StatusCode::kInvalidArgument);
    INFO(tokenizer.status());
    CHECK(std::string(tokenizer.status().message()).find(why) != std::string::npos);
  };
  refuse([](TokenizerData& d) { d.model = "wordpiece"; }, "wordpiece");
  refuse([](TokenizerData& d) { d.pre_tokenizer = "odd"; }, "odd");
  refuse([](TokenizerData& d) { d.merges.push_back("x y"); }, "vocabulary lacks");
  refuse([](TokenizerData& d) { d.merges.push_back("xy"); }, "not two tokens");
  refuse([](TokenizerData& d) { d.types.pop_back(); }, "types");
  refuse([](TokenizerData& d) { d.end_ids.push_back(100000); }, "outside the vocabulary");
  refuse([](TokenizerData& d) { d.tokens[5] = std::string(1, 0xFF); }, "not UTF-8");
  refuse(
      [](TokenizerData& d) {
        d.tokens.clear();
        d.types.clear();
        d.merges.clear();
      },
      "");
}

}  // namespace
}  // namespace baton::text
