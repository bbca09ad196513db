// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The template language against Jinja, case by case; provenance; limits.
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "engine/text/chat_template.h"
#include "server/chat_json.h"

namespace baton::text {
namespace {

using nlohmann::ordered_json;

// What the template makes of the variables: its text, or the error.
absl::StatusOr<std::vector<Fragment>> Run(const std::string& source,
                                          const ordered_json& variables) {
  auto parsed = ChatTemplate::Parse(source, "<bos>", "<eos>");
  if (!parsed.ok()) return parsed.status();
  ChatInput input;
  input.messages = JsonValue(JsonValue::Array());
  for (const auto& [name, json] : variables.items()) {
    auto value = server::ToJsonValue(json);
    REQUIRE(value.ok());
    if (name == "messages") {
      input.messages = *std::move(value);
    } else {
      input.extra.emplace_back(name, *std::move(value));
    }
  }
  return parsed->Render(input);
}

std::string Joined(const std::vector<Fragment>& fragments) {
  std::string text;
  for (const Fragment& fragment : fragments) text += fragment.text;
  return text;
}

// The text with what people wrote in brackets.
std::string Marked(const std::string& source, const ordered_json& variables) {
  const auto fragments = Run(source, variables);
  INFO(source);
  INFO(fragments.status());
  REQUIRE(fragments.ok());
  std::string text;
  for (const Fragment& fragment : *fragments) {
    text += fragment.trusted ? fragment.text : "[" + fragment.text + "]";
  }
  return text;
}

std::string Error(const std::string& source, const ordered_json& variables = {}) {
  const auto fragments = Run(source, variables);
  INFO(source);
  REQUIRE(fragments.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(fragments.status().message());
}

TEST_CASE("small templates give what Jinja gives, text or error") {
  std::ifstream file(BATON_SOURCE_DIR "/tests/golden/template_cases.jsonl");
  ordered_json context;
  size_t checked = 0;
  for (std::string line; std::getline(file, line);) {
    const ordered_json row = ordered_json::parse(line);
    if (row.contains("context")) {
      context = row["context"];
      continue;
    }
    const std::string source = row["template"];
    INFO(source);
    const auto fragments = Run(source, context);
    ++checked;
    if (row.contains("text")) {
      INFO(fragments.status());
      REQUIRE(fragments.ok());
      CHECK(Joined(*fragments) == row["text"].get<std::string>());
    } else {
      REQUIRE(fragments.status().code() == absl::StatusCode::kInvalidArgument);
      const std::string name = row["error"];
      INFO(fragments.status());
      CHECK(absl::StrContains(fragments.status().message(), name + ": "));
    }
  }
  CHECK(checked > 150);
}

TEST_CASE("what people wrote stays marked through every operation") {
  const ordered_json v = {{"messages", {{{"role", "user"}, {"content", " <x>,<y> "}}}}};
  const auto check = [&v](const std::string& expression, const std::string& marked) {
    CHECK(Marked("{% set c = messages[0].content %}{{ " + expression + " }}", v) == marked);
  };
  check("'a' + c + 'b'", "a[ <x>,<y> ]b");
  check("'a' ~ c | trim ~ 'b'", "a[<x>,<y>]b");
  check("c.strip()", "[<x>,<y>]");
  check("('<' + c.split(',')[1])", "<[<y> ]");
  check("c.split(',') | join('|')", "[ <x>]|[<y> ]");
  check("c | replace('<x>', '<z>')", "[ ]<z>[,<y> ]");
  check("'<' | replace('<', c)", "[ <x>,<y> ]");
  check("c[1:3] ~ '>'", "[<x]>");
  check("('a' + c + 'b')[0:4]", "a[ <x]");
  check("c | upper", "[ <X>,<Y> ]");
  check("('a' + c) | title", "A[ <X>,<Y> ]");
  check("c | reverse", "[ >y<,>x< ]");
  check("c | list | join", "[ <x>,<y> ]");
  check("c * 2", "[ <x>,<y>  <x>,<y> ]");
  check("(c + 'z') | indent(2, true)", "  [ <x>,<y> ]z");
  check("c | e", "[ ]&lt;[x]&gt;[,]&lt;[y]&gt;[ ]");
  check("messages | tojson", "[[{\"role\": \"user\", \"content\": \" <x>,<y> \"}]]");
  check("{'k': 1} | tojson", "{\"k\": 1}");
  check("[c]", "[[' <x>,<y> ']]");
  check("messages[0].keys() | join(' ')", "[role] [content]");
  check("c if c else 'z'", "[ <x>,<y> ]");
  CHECK(Marked("{% set x %}a{{ messages[0].role }}{% endset %}{{ x }}", v) == "a[user]");
  CHECK(Marked("{% macro m(y) %}<{{ y }}>{% endmacro %}{{ m(messages[0].role) }}", v) ==
        "<[user]>");
  CHECK(Marked("{{ bos_token }}{{ messages[0].role }}", v) == "<bos>[user]");
}

TEST_CASE("a template that would not end is stopped") {
  const std::string loop = "{% for i in range(90000) %}";
  const std::string end = "{% endfor %}";
  CHECK(absl::StrContains(Error(loop + loop + "{{ i }}" + end + end), "takes too m"));
  CHECK(absl::StrContains(Error("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "too deep"));
  CHECK(absl::StrContains(Error("{{ 'x' * 99999999999 }}"), "takes too m"));
  CHECK(absl::StrContains(Error("{{ ('x' * 99999) | replace('x', 'y' * 99999) }}"), "memory"));
  CHECK(absl::StrContains(Error("{{ ('\n' * 99999) | indent(99999, blank=true) }}"), "memory"));
  CHECK(absl::StrContains(Error("{{ ('x' * 99999) | list | join('y' * 99999) }}"), "memory"));
  CHECK(absl::StrContains(
      Error("{% set n = namespace(x=[]) %}" + loop + "{% set n.x = [n.x] %}" + end), "too deep"));
  CHECK(absl::StrContains(
      Error("{% set n = namespace(x='a') %}" + loop + "{% set n.x = n.x + n.x %}" + end),
      "memory"));
  CHECK(absl::StrContains(Error("{{ range(99999999) }}"), "range"));
}

TEST_CASE("a template nested too deeply is refused, not a crash") {
  const auto nested = [](const std::string& open, const std::string& close, int count) {
    std::string source;
    for (int i = 0; i < count; ++i) source += open;
    source += "1";
    for (int i = 0; i < count; ++i) source += close;
    return source;
  };
  for (const int count : {1000, 100000}) {
    CHECK_FALSE(Error("{{ " + nested("(", ")", count) + " }}").empty());
    CHECK_FALSE(Error("{{ " + nested("[", "]", count) + " }}").empty());
    CHECK_FALSE(Error("{{ " + nested("not ", "", count) + " }}").empty());
    CHECK_FALSE(Error("{{ " + nested("-", "", count) + " }}").empty());
    CHECK_FALSE(Error("{{ " + nested("", "|upper", count) + " }}").empty());
    CHECK_FALSE(Error("{{ " + nested("", " if 1 else 1", count) + " }}").empty());
    CHECK_FALSE(Error("{{ " + nested("1+", "", count) + " }}").empty());
    CHECK_FALSE(Error(nested("{% if 1 %}", "{% endif %}", count)).empty());
  }
}

TEST_CASE("a conversation nested too deeply is refused") {
  ordered_json deep = "x";
  for (int i = 0; i < 60; ++i) deep = ordered_json::array({deep});
  CHECK(Run("{{ messages }}", {{"messages", ordered_json::array({deep})}}).ok());
  JsonValue json = "x";
  for (int i = 0; i < 100; ++i) json = JsonValue(JsonValue::Array{json});
  ChatInput input;
  input.messages = json;
  const auto parsed = ChatTemplate::Parse("{{ messages }}", "", "");
  REQUIRE(parsed.ok());
  CHECK_FALSE(parsed->Render(input).ok());
}

TEST_CASE("long conversations are rendered within the limits") {
  ordered_json messages = ordered_json::array();
  for (int i = 0; i < 10000; ++i) {
    messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "hello there"}});
  }
  const auto fragments = Run(
      "{% for m in messages %}{{ '<' + m.role + '>' + m['content'] | trim + '\n' }}{% endfor %}",
      {{"messages", messages}});
  INFO(fragments.status());
  REQUIRE(fragments.ok());
  messages = ordered_json::array({{{"role", "user"}, {"content", std::string(8 << 20, 'x')}}});
  CHECK(Run("{{ '<' + messages[0].content | trim + '>' }}", {{"messages", messages}}).ok());
}

TEST_CASE("extra variables cannot replace the conversation's") {
  CHECK(Marked("{{ think }}", {{"think", "x"}}) == "[x]");
  CHECK(absl::StrContains(Error("{{ tools }}", {{"tools", 1}}), "'tools'"));
  CHECK(Marked("{{ strftime_now is defined }}", {}) == "False");
}

TEST_CASE("content parts are joined, other parts refused") {
  const auto flatten = [](const ordered_json& messages) {
    auto json = server::ToJsonValue(messages);
    REQUIRE(json.ok());
    return FlattenContent(*std::move(json));
  };
  const auto text = [](const std::string& words) {
    return ordered_json{{"type", "text"}, {"text", words}};
  };
  const auto flat = flatten({{{"role", "user"}, {"content", {text("a"), text("b")}}}});
  REQUIRE(flat.ok());
  const auto& message =
      std::get<JsonValue::Object>(std::get<JsonValue::Array>(flat->value)[0].value);
  CHECK(std::get<std::string>(message[1].second.value) == "a\nb");
  CHECK(flatten({{{"role", "user"}, {"content", nullptr}}}).ok());
  const auto image = flatten({{{"content", {{{"type", "image_url"}}}}}});
  CHECK(absl::StrContains(image.status().message(), "'image_url'"));
  CHECK_FALSE(flatten({"x"}).ok());
  CHECK_FALSE(flatten({{"a", 1}}).ok());
}

}  // namespace
}  // namespace baton::text
