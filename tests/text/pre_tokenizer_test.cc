// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The pre-tokenizers' pieces, and the character classes behind them against what the
// reference implementation says of every code point.
#include "engine/text/pre_tokenizer.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/text/unicode.h"

namespace baton::text {
namespace {

std::vector<std::string> Pieces(PreTokenizer kind, const std::string& text) {
  std::vector<uint32_t> ends;
  Split(kind, text, ends);
  std::vector<std::string> pieces;
  size_t begin = 0;
  for (const uint32_t end : ends) {
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  REQUIRE(begin == text.size());
  return pieces;
}

using List = std::vector<std::string>;

TEST_CASE("every code point has the class that the reference gives it") {
  std::ifstream file(BATON_SOURCE_DIR "/tests/golden/unicode_classes.json");
  const auto golden = nlohmann::json::parse(file);
  std::map<uint32_t, CharClass> expected;
  const auto fill = [&](const char* key, CharClass kind) {
    for (const auto& range : golden[key]) {
      for (uint32_t point = range[0]; point <= range[1]; ++point) expected.emplace(point, kind);
    }
  };
  fill("L", CharClass::kLetter);
  fill("N", CharClass::kNumber);
  fill("S", CharClass::kSpace);
  fill("digit_split", CharClass::kDigit);  // what of it is no number
  uint32_t wrong = 0;
  for (uint32_t point = 0; point < 0x110000; ++point) {
    const auto found = expected.find(point);
    const CharClass want = found == expected.end() ? CharClass::kOther : found->second;
    if (ClassOf(point) != want) ++wrong;
  }
  CHECK(wrong == 0);
}

TEST_CASE("words take one space in front, and a run of spaces leaves its last to the word") {
  CHECK(Pieces(PreTokenizer::kGpt2, "a bc  d") == List{"a", " bc", " ", " d"});
  CHECK(Pieces(PreTokenizer::kGpt2, "a\n\nb") == List{"a", "\n", "\n", "b"});
  CHECK(Pieces(PreTokenizer::kGpt2, "a \n b \t") == List{"a", " \n", " b", " \t"});
  CHECK(Pieces(PreTokenizer::kGpt2, "\xC2\xA0x") == List{"\xC2\xA0", "x"});
  CHECK(Pieces(PreTokenizer::kGpt2, "") == List{});
}

TEST_CASE("contractions are split only in lower case and behind a plain apostrophe") {
  CHECK(Pieces(PreTokenizer::kGpt2, "it's we'll I'VE") ==
        List{"it", "'s", " we", "'ll", " I", "'", "VE"});
  CHECK(Pieces(PreTokenizer::kGpt2, "'lx 're'") == List{"'", "lx", " '", "re", "'"});
  CHECK(Pieces(PreTokenizer::kGpt2, "'") == List{"'"});
}

TEST_CASE("numbers are one piece for GPT-2 and single digits for SmolLM") {
  CHECK(Pieces(PreTokenizer::kGpt2, "a 12b") == List{"a", " 12", "b"});
  CHECK(Pieces(PreTokenizer::kDigitsThenGpt2, "a 12b") == List{"a", " ", "1", "2", "b"});
  CHECK(Pieces(PreTokenizer::kDigitsThenGpt2, "x  \xC2\xBD") == List{"x", "  ", "\xC2\xBD"});
}

TEST_CASE("Llama 3's pieces are the reference's") {
  std::ifstream file(BATON_SOURCE_DIR "/tests/golden/pre_tokenizer_llama3.jsonl");
  size_t rows = 0;
  for (std::string line; std::getline(file, line); ++rows) {
    const auto row = nlohmann::json::parse(line);
    const std::string text = row[0];
    std::vector<uint32_t> ends;
    Split(PreTokenizer::kLlama3, text, ends);
    std::vector<uint32_t> expected;
    for (const uint32_t size : row[1]) {
      expected.push_back(size + (expected.empty() ? 0 : expected.back()));
    }
    INFO(row[0].dump());
    CHECK(ends == expected);
  }
  CHECK(rows > 1000);
}

TEST_CASE("an unknown pre-tokenizer is an error that names it") {
  const auto unknown = PreTokenizerByName("some-new-one");
  REQUIRE(unknown.status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(unknown.status().message()).find("'some-new-one'") != std::string::npos);
  CHECK(PreTokenizerByName("smollm").ok());
}

TEST_CASE("bytes that are not UTF-8 are found where they start") {
  CHECK(FirstInvalidUtf8("abc\xC3\xA9") == std::nullopt);
  CHECK(FirstInvalidUtf8("a\xC0\xAF") == 1);         // overlong
  CHECK(FirstInvalidUtf8("\xED\xA0\x80") == 0);      // surrogate
  CHECK(FirstInvalidUtf8("\xF4\x90\x80\x80") == 0);  // above U+10FFFF
  CHECK(FirstInvalidUtf8("ab\xE2\x82") == 2);        // cut off
}

}  // namespace
}  // namespace baton::text
