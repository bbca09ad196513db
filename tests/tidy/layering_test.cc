// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The one direction of dependencies (docs/architecture.md), and each vendor header's one home.
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <set>

#include "tests/tidy/sources.h"

namespace baton::tidy {
namespace {

// The path between the quotes or brackets of an #include line.
std::optional<std::string> Included(const std::string& line) {
  if (line.rfind("#include ", 0) != 0 || line.size() < 11) return std::nullopt;
  const size_t end = line.find_first_of("\">", 10);
  if (end == std::string::npos) return std::nullopt;
  return line.substr(10, end - 10);
}

TEST_CASE("folders include only what the map allows", "[tidy]") {
  const std::set<std::string> own = {"base",   "engine", "kv_transfer",    "router",
                                     "config", "server", "prefill_worker", "decode_worker",
                                     "sim",    "bench",  "tests",          "proto"};
  const std::map<std::string, std::set<std::string>> allowed = {
      {"base", {}},
      {"engine", {"base"}},
      {"kv_transfer", {"base"}},
      {"router", {"base"}},
      {"prefill_worker", {"base", "engine", "kv_transfer"}},
      {"decode_worker", {"base", "engine", "kv_transfer"}},
      {"config", {"base"}},
  };
  for (const Source& source : Sources()) {
    const auto rule = allowed.find(source.folder());
    if (!source.IsCode() || rule == allowed.end()) continue;
    for (size_t i = 0; i < source.lines.size(); ++i) {
      const auto included = Included(source.lines[i]);
      if (!included || included->find('/') == std::string::npos) continue;
      const std::string target = included->substr(0, included->find('/'));
      if (own.count(target) == 0 || target == source.folder()) continue;
      INFO(At(source, i, source.lines[i]));
      CHECK(rule->second.count(target) == 1);
    }
  }
}

TEST_CASE("each vendor header has one home", "[tidy]") {
  const std::map<std::string, std::vector<std::string>> homes = {
      {"grpcpp/", {"server/", "proto/", "tests/"}},
      {"grpc/", {"server/", "tests/"}},
      {"google/", {"server/", "tests/"}},
      {"proto/", {"server/", "tests/"}},
      {"ucp/", {"kv_transfer/ucx_", "tests/kv_transfer_ucx/"}},
      {"uct/", {"kv_transfer/ucx_", "tests/kv_transfer_ucx/"}},
      {"ucs/", {"kv_transfer/ucx_", "tests/kv_transfer_ucx/"}},
      {"cuda", {"engine/cuda/"}},
      {"cublas", {"engine/cuda/"}},
      {"yaml-cpp/", {"config/"}},
      {"prometheus/", {"base/metrics", "server/", "tests/"}},
      {"boost/", {"server/http_"}},
      {"catch2/", {"tests/"}},
      {"nlohmann/", {"engine/hf_", "server/", "tests/", "bench/"}},
      {"simdjson.h", {"server/", "tests/"}},
  };
  for (const Source& source : Sources()) {
    if (!source.IsCode()) continue;
    for (size_t i = 0; i < source.lines.size(); ++i) {
      const auto included = Included(source.lines[i]);
      if (!included) continue;
      for (const auto& [vendor, places] : homes) {
        if (included->rfind(vendor, 0) != 0) continue;
        bool home = false;
        for (const std::string& place : places) home = home || source.In(place);
        INFO(At(source, i, source.lines[i]));
        CHECK(home);
      }
    }
  }
}

TEST_CASE("every header is included by someone", "[tidy]") {
  std::set<std::string> included;
  for (const Source& source : Sources()) {
    for (const std::string& line : source.lines) {
      if (auto path = Included(line)) included.insert(*path);
    }
  }
  for (const Source& source : Sources()) {
    if (!source.EndsIn(".h")) continue;
    INFO(source.path);
    CHECK(included.count(source.path) == 1);
  }
}

}  // namespace
}  // namespace baton::tidy
