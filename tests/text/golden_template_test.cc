// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Chat templates against Jinja itself: the default model's, text and ids, and eight other
// families' where their rows are at hand beside the tree.
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/civil_time.h"
#include "server/chat_json.h"
#include "tests/text/golden.h"

namespace baton::text {
namespace {

using nlohmann::ordered_json;

std::vector<ordered_json> OrderedRows(const std::string& path) {
  std::ifstream file(path);
  std::vector<ordered_json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(ordered_json::parse(line));
  return rows;
}

ChatInput InputOf(const ordered_json& row) {
  auto input = server::ToChatInput(row);
  REQUIRE(input.ok());
  input->now = absl::FromCivil(absl::CivilDay(2026, 1, 2), absl::UTCTimeZone());
  return *std::move(input);
}

TEST_CASE("the default model's template gives every golden row's text, ids and error") {
  const TextModel* model = DefaultModel();
  if (model == nullptr) return;
  size_t checked = 0;
  for (const ordered_json& row :
       OrderedRows(BATON_SOURCE_DIR "/tests/golden/chat_template_smollm2.jsonl")) {
    INFO(row["id"]);
    const auto rendered = model->RenderChat(InputOf(row));
    ++checked;
    if (row.contains("error")) {
      REQUIRE(rendered.status().code() == absl::StatusCode::kInvalidArgument);
      INFO(rendered.status());
      CHECK(absl::StrContains(rendered.status().message(), row["error"].get<std::string>()));
      continue;
    }
    REQUIRE(rendered.ok());
    CHECK(rendered->text == row["text"]);
    const bool differs = row.contains("ids_injection_safe");
    CHECK(rendered->ids == row[differs ? "ids_injection_safe" : "ids"].get<std::vector<TokenId>>());
    const auto parsed = model->tokenizer().Encode(rendered->text, true);
    REQUIRE(parsed.ok());
    CHECK(*parsed == row["ids"].get<std::vector<TokenId>>());
  }
  CHECK(checked == 95);
}

TEST_CASE("eight other families' templates give Jinja's text") {
  const auto rows = OrderedRows(BATON_SOURCE_DIR "/../shared/golden/chat_template_families.jsonl");
  if (rows.empty()) {
    std::fprintf(stderr, "SKIPPED: no chat_template_families.jsonl beside the source tree\n");
    return;
  }
  std::map<std::string, ChatTemplate> templates;
  size_t checked = 0;
  for (const ordered_json& row : rows) {
    const std::string family = row["family"];
    if (row["kind"] == "template") {
      auto parsed = ChatTemplate::Parse(row["template"].get<std::string>(), row["bos_token"],
                                        row["eos_token"]);
      INFO(parsed.status());
      REQUIRE(parsed.ok());
      templates.emplace(family, *std::move(parsed));
      continue;
    }
    INFO(family << " " << row["id"]);
    const auto fragments = templates.at(family).Render(InputOf(row));
    ++checked;
    if (row.contains("error")) {
      REQUIRE_FALSE(fragments.ok());
      INFO(fragments.status());
      CHECK(absl::StrContains(fragments.status().message(), row["error"].get<std::string>()));
      continue;
    }
    INFO(fragments.status());
    REQUIRE(fragments.ok());
    std::string text;
    for (const Fragment& fragment : *fragments) text += fragment.text;
    CHECK(text == row["text"]);
  }
  CHECK(checked == 176);
}

}  // namespace
}  // namespace baton::text
