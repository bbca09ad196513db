// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What CONTRIBUTING.md promises about the shape of the code, enforced.
#include <catch2/catch.hpp>
#include <regex>

#include "tests/tidy/sources.h"

namespace baton::tidy {
namespace {

constexpr size_t kLineMax = 100;
constexpr size_t kFunctionLinesMax = 70;
constexpr size_t kFileLinesMax = 600;

// Columns, counting a UTF-8 character as one.
size_t Columns(const std::string& line) {
  size_t columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return columns;
}

TEST_CASE("lines, files and headers keep the limits", "[tidy]") {
  for (const Source& source : Sources()) {
    if (!source.IsCode() || source.EndsIn(".inc")) continue;
    INFO(source.path);
    CHECK(source.lines.size() <= kFileLinesMax);
    for (size_t i = 0; i < source.lines.size(); ++i) {
      if (Columns(source.lines[i]) <= kLineMax) continue;
      FAIL_CHECK(At(source, i, "longer than 100 columns"));
    }
    REQUIRE(source.lines.size() > 3);
    CHECK(source.lines[0].rfind("// SPDX-FileCopyrightText:", 0) == 0);
    CHECK(source.lines[1].rfind("// SPDX-License-Identifier:", 0) == 0);
    if (source.EndsIn(".h")) {
      CHECK(source.lines[3].rfind("//", 0) == 0);  // the file comment
    }
  }
}

// The line of the brace that closes the one at the end of line `open`, by indentation: our
// formatter puts it at the same column.
size_t ClosingLine(const Source& source, size_t open, size_t indent) {
  for (size_t i = open + 1; i < source.lines.size(); ++i) {
    const std::string& line = source.lines[i];
    const size_t first = line.find_first_not_of(' ');
    if (first != std::string::npos && first <= indent && line[first] == '}') return i;
  }
  return open;
}

TEST_CASE("functions are at most 70 lines", "[tidy]") {
  const std::regex other(
      "^\\s*(namespace|class|struct|enum|union|extern|if|for|while|switch|else|do|return|case|\\}"
      ")");
  for (const Source& source : Sources()) {
    if (!source.IsCode() || source.EndsIn(".inc") || source.folder() == "tests") continue;
    for (size_t i = 0; i < source.lines.size(); ++i) {
      const std::string code = Code(source.lines[i]);
      const size_t end = code.find_last_not_of(' ');
      if (end == std::string::npos || code[end] != '{') continue;
      size_t start = i;  // a signature may be several lines long
      while (start > 0 && !source.lines[start - 1].empty() &&
             source.lines[start].find_first_not_of(' ') > 3 &&
             Code(source.lines[start - 1]).find_last_of(";{}") == std::string::npos) {
        --start;
      }
      const size_t indent = source.lines[start].find_first_not_of(' ');
      if (indent > 4 || std::regex_search(source.lines[start], other)) continue;
      if (Code(source.lines[start]).find('(') == std::string::npos) continue;
      const size_t length = ClosingLine(source, i, indent) - start + 1;
      if (length > kFunctionLinesMax) {
        FAIL_CHECK(At(source, start, "a function of " + std::to_string(length) + " lines"));
      }
    }
  }
  SUCCEED();
}

struct Ban {
  const char* pattern;
  const char* instead;
  std::vector<std::string> places;  // where it is allowed
};

TEST_CASE("time, chance, threads and memory are taken only where it says so", "[tidy]") {
  const std::vector<std::string> threads = {"server/",
                                            "engine/cpu_engine",
                                            "engine/cpu/thread_pool",
                                            "kv_transfer/ucx_",
                                            "kv_transfer/socket_",
                                            "tests/",
                                            "bench/"};
  const std::vector<Ban> bans = {
      {"absl::Now\\(", "a moment handed in", {"base/log", "server/", "tests/", "bench/"}},
      {"\\b(usleep|nanosleep|sleep|sleep_for|SleepFor)\\(", "a bell", {"server/", "tests/"}},
      {"std::thread\\b", "the threads of docs/architecture.md", threads},
      {"\\b(std::)?getenv\\(", "config", {"server/", "tests/", "base/failpoint.cc"}},
      {"\\b(std::)?s?rand\\(|random_device", "base/random.h", {"server/"}},
      {"\\bshared_ptr\\b|make_shared", "one owner", {"server/", "tests/", "base/metrics"}},
      {"\\bnew [A-Za-z_:]+[({;<]|\\bdelete [a-z_]", "unique_ptr", {"server/", "tests/"}},
      {"\\bunordered_(map|set)\\b", "btree_map", {"tests/"}},
      {"std::\\w*_distribution\\b", "base/random.h", {}},
      {"\\b(assert|abort)\\(", "ENSURE", {"base/ensure.h"}},
  };
  for (const Ban& ban : bans) {
    const std::regex pattern(ban.pattern);
    for (const Source& source : Sources()) {
      if (!source.IsCode()) continue;
      bool allowed = false;
      for (const std::string& place : ban.places) allowed = allowed || source.In(place);
      if (allowed) continue;
      for (size_t i = 0; i < source.lines.size(); ++i) {
        if (!std::regex_search(Code(source.lines[i]), pattern)) continue;
        FAIL_CHECK(At(source, i, source.lines[i] + "  (instead: " + ban.instead + ")"));
      }
    }
  }
  SUCCEED();
}

TEST_CASE("logic does not depend on the order of a hash table", "[tidy]") {
  const std::vector<std::string> logic = {"router/", "prefill_worker/",   "decode_worker/",
                                          "sim/",    "engine/block_pool", "engine/prefix_cache"};
  for (const Source& source : Sources()) {
    bool is_logic = source.In("kv_transfer/") && !source.In("kv_transfer/ucx_") &&
                    !source.In("kv_transfer/socket_");
    for (const std::string& place : logic) is_logic = is_logic || source.In(place);
    if (!is_logic || !source.IsCode()) continue;
    for (size_t i = 0; i < source.lines.size(); ++i) {
      if (Code(source.lines[i]).find("flat_hash_") == std::string::npos) continue;
      FAIL_CHECK(At(source, i, "a hash container; use absl::btree_map"));
    }
  }
  SUCCEED();
}

TEST_CASE("nothing is called done that is not", "[tidy]") {
  const std::regex unfinished("\\b(todo|fixme|xxx)\\b|not implemented|for now\\b|placeholder",
                              std::regex::icase);
  for (const Source& source : Sources()) {
    if (!source.IsCode() || source.In("tests/tidy/")) continue;
    for (size_t i = 0; i < source.lines.size(); ++i) {
      if (!std::regex_search(source.lines[i], unfinished)) continue;
      FAIL_CHECK(At(source, i, source.lines[i]));
    }
  }
  SUCCEED();
}

TEST_CASE("a Markdown file has exactly one title", "[tidy]") {
  for (const Source& source : Sources()) {
    if (!source.EndsIn(".md")) continue;
    size_t titles = 0;
    bool fenced = false;
    for (const std::string& line : source.lines) {
      if (line.rfind("```", 0) == 0) fenced = !fenced;
      titles += !fenced && line.rfind("# ", 0) == 0;
    }
    INFO(source.path);
    CHECK(titles == 1);
  }
}

TEST_CASE("the scenario that docs/testing.md shows is a test", "[tidy]") {
  std::vector<std::string> shown, real;
  for (const Source& source : Sources()) {
    const bool doc = source.path == "docs/testing.md";
    if (!doc && source.path != "tests/sim/example_test.cc") continue;
    std::vector<std::string>& lines = doc ? shown : real;
    for (const std::string& line : source.lines) {
      const bool first = line.rfind("TEST_CASE(", 0) == 0;
      if (first || !lines.empty()) lines.push_back(line);
      if (!lines.empty() && line == "}") break;
    }
  }
  REQUIRE(real.size() > 5);
  CHECK(shown == real);
}

TEST_CASE("the tree is where it is said to be", "[tidy]") {
  REQUIRE(Sources().size() > 30);  // the tests above read something
}

}  // namespace
}  // namespace baton::tidy
