// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The tokenizer and the incremental decoder against the reference implementations, on the
// default model's vocabulary: ids, bytes and pieces exactly.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/text_session.h"
#include "engine/text/utf8_stream.h"
#include "tests/text/golden.h"

namespace baton::text {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

std::string Join(const Tokenizer& tokenizer, const Ids& ids, bool control) {
  std::string bytes;
  for (const TokenId id : ids) {
    if (control || !tokenizer.IsControl(id)) absl::StrAppend(&bytes, tokenizer.Bytes(id));
  }
  return bytes;
}

void CheckEncode(const Tokenizer& tokenizer, const json& row) {
  const std::string text = row["text"];
  const Ids ids = row["ids"];
  const auto plain = tokenizer.Encode(text, false);
  REQUIRE(plain.ok());
  CHECK(*plain == ids);
  const auto special = tokenizer.Encode(text, true);
  REQUIRE(special.ok());
  CHECK(*special == (row.contains("ids_special") ? row["ids_special"].get<Ids>() : ids));
  const std::string back = row.contains("lossy_hex") ? FromHex(row["lossy_hex"]) : text;
  CHECK(Join(tokenizer, ids, true) == back);
}

void CheckDecode(const Tokenizer& tokenizer, const json& row) {
  const Ids ids = row["ids"];
  const std::string bytes = Join(tokenizer, ids, true);
  CHECK(bytes == FromHex(row["hex"]));
  CHECK(LossyText(bytes) == row["text"]);
  CHECK(Join(tokenizer, ids, false) == FromHex(row["hex_skip_special"]));
}

void CheckStream(const Tokenizer& tokenizer, const json& row) {
  const Ids ids = row["ids"];
  Utf8Stream stream;
  TextOptions options;
  options.show_control = true;
  TextSession session(tokenizer, options);
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string piece;
    stream.Push(tokenizer.Bytes(ids[i]), piece);
    CHECK(piece == row["pieces"][i]);
    CHECK(session.Push(ids[i]).text == row["pieces"][i]);
  }
  std::string flush;
  stream.Flush(flush);
  CHECK(flush == row["flush"]);
  CHECK(session.Flush().text == row["flush"]);
}

void CheckInvalid(const Tokenizer& tokenizer, const json& row) {
  const std::string bytes = FromHex(row["hex"]);
  const std::string replaced = LossyText(bytes);
  CHECK(replaced == row["replaced"]);
  const auto refused = tokenizer.Encode(bytes, false);
  CHECK(refused.ok() == (replaced == bytes));
  const auto ids = tokenizer.Encode(replaced, false);
  REQUIRE(ids.ok());
  CHECK(*ids == row["ids_of_replaced"].get<Ids>());
}

TEST_CASE("the tokenizer agrees with every golden row") {
  const TextModel* model = DefaultModel();
  if (model == nullptr) return;
  const Tokenizer& tokenizer = model->tokenizer();
  size_t checked = 0;
  for (const json& row : ReadRows(BATON_SOURCE_DIR "/tests/golden/tokenizer_smollm2.jsonl")) {
    INFO(row["id"]);
    const std::string kind = row["kind"];
    if (kind == "encode") CheckEncode(tokenizer, row);
    if (kind == "decode") CheckDecode(tokenizer, row);
    if (kind == "stream") CheckStream(tokenizer, row);
    if (kind == "invalid") CheckInvalid(tokenizer, row);
    ++checked;
  }
  CHECK(checked == 3832);
}

TEST_CASE("the default model has no bos and ends at its end markers") {
  const TextModel* model = DefaultModel();
  if (model == nullptr) return;
  const Tokenizer& tokenizer = model->tokenizer();
  CHECK(tokenizer.size() == 49152);
  CHECK_FALSE(tokenizer.add_bos());
  const auto end = tokenizer.MarkerId("<|im_end|>");
  REQUIRE(end.has_value());
  CHECK(tokenizer.IsEnd(*end));
  CHECK(model->EncodePrompt("Hello")->size() == 1);
}

}  // namespace
}  // namespace baton::text
