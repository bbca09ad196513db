// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The configuration: every kind of mistake is refused with its place, its key and a hint.
#include "config/config.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "config/values.h"

namespace baton::config {
namespace {

std::string ErrorOf(const std::string& text, const Overrides& overrides = {}) {
  const auto config = Parse(text, "f.yaml", overrides);
  return config.ok() ? "" : std::string(config.status().message());
}

using Catch::Matchers::Contains;

TEST_CASE("the example files are valid, and local.yaml states every default", "[config]") {
  const std::string folder = BATON_SOURCE_DIR "/config/";
  const auto local = Load(folder + "local.yaml");
  REQUIRE(local.ok());
  REQUIRE(Load(folder + "cluster.yaml").ok());
  const auto defaults = Parse("version: 1\n", "none");
  REQUIRE(defaults.ok());
  Config stripped = *local;
  stripped.origins.clear();
  CHECK(Print(stripped) == Print(*defaults));
  CHECK(local->workers.decode[0].transfer.port == 8203);
}

TEST_CASE("what print-config prints is read back to the same values", "[config]") {
  const auto first = Load(BATON_SOURCE_DIR "/config/cluster.yaml");
  REQUIRE(first.ok());
  auto second = Parse(Print(*first), "printed");
  REQUIRE(second.ok());
  Config a = *first, b = *second;
  a.origins.clear();
  b.origins.clear();
  CHECK(Print(a) == Print(b));
}

TEST_CASE("a cluster without prefill workers prints as one", "[config]") {
  const auto none = Parse("version: 1\nworkers: {prefill: []}\n", "f");
  REQUIRE(none.ok());
  CHECK(none->workers.prefill.empty());
  const auto again = Parse(Print(*none), "printed");
  REQUIRE(again.ok());
  CHECK(again->workers.prefill.empty());
}

TEST_CASE("a mistyped key is refused with its place and the nearest name", "[config]") {
  CHECK(ErrorOf("version: 1\nlimits:\n  queue_reqests: 4\n") ==
        "f.yaml:3:3: unknown key 'queue_reqests' under limits; did you mean 'queue_requests'?");
  CHECK_THAT(ErrorOf("version: 1\nworkers:\n  prefill: [{nme: x}]\n"),
             Contains("f.yaml:3:14") && Contains("did you mean 'name'"));
  CHECK_THAT(ErrorOf("version: 1\nzzzzz: 1\n"), Contains("known: ") && Contains("kv_transfer"));
}

TEST_CASE("a duplicate key is refused with both places, also inside lists", "[config]") {
  CHECK(ErrorOf("version: 1\nlimits:\n  drain: 1s\n  drain: 2s\n") ==
        "f.yaml:4:3: duplicate key 'drain', first given at f.yaml:3:3");
  CHECK_THAT(ErrorOf("version: 1\nworkers:\n  decode:\n    - name: a\n      name: b\n"),
             Contains("f.yaml:5:7: duplicate key 'name'"));
}

TEST_CASE("units are part of a value; a bare number, an octal or a word is refused", "[config]") {
  CHECK_THAT(ErrorOf("version: 1\nlimits: {drain: 30}\n"), Contains("no unit"));
  CHECK_THAT(ErrorOf("version: 1\nlimits: {drain: 30 parsecs}\n"), Contains("unknown unit"));
  CHECK_THAT(ErrorOf("version: 1\nlimits: {queue_requests: 010}\n"), Contains("not an integer"));
  CHECK_THAT(ErrorOf("version: 1\nrouter: {resume: yes}\n"), Contains("neither true nor false"));
  CHECK_THAT(ErrorOf("version: 1\nrouter: {attempts_max: 17}\n"), Contains("from 1 to 16"));
  CHECK_THAT(ErrorOf("version: 1\nlimits: {drain: -1s}\n"), Contains("not a number"));
  CHECK_THAT(ErrorOf("version: 1\nfrontend: {http: 8000}\n"), Contains("not an address"));
  CHECK_THAT(ErrorOf("version: 1\nkv_transfer: {transport: rdma}\n"), Contains("auto, shm, tcp"));
}

TEST_CASE("zero, empty and absent are three things", "[config]") {
  const auto zero = Parse("version: 1\nlimits: {drain: 0}\n", "f");
  REQUIRE(zero.ok());
  CHECK(zero->limits.drain == absl::ZeroDuration());
  CHECK_THAT(ErrorOf("version: 1\nlimits: {drain: }\n"), Contains("has no value"));
  CHECK_THAT(ErrorOf("version: 1\nmodel: {path: \"\"}\n"), Contains("must not be empty"));
  const auto absent = Parse("version: 1\nlimits: {}\n", "f");
  REQUIRE(absent.ok());
  CHECK(absent->limits.drain == absl::Seconds(30));
}

TEST_CASE("a flag wins over the environment, which wins over the file", "[config]") {
  const std::string file = "version: 1\nlimits: {drain: 1s}\nrouter: {attempts_max: 2}\n";
  Overrides overrides;
  overrides.environment = {
      {"BATON_LIMITS_DRAIN", "2s"}, {"BATON_ROUTER_ATTEMPTS_MAX", "4"}, {"BATON_UNRELATED", "x"}};
  overrides.set = {"limits.drain=3s", "workers.decode.0.threads=2", "kv_transfer.devices=[a, b]"};
  const auto config = Parse(file, "f", overrides);
  REQUIRE(config.ok());
  CHECK(config->limits.drain == absl::Seconds(3));
  CHECK(config->router.attempts_max == 4);
  CHECK(config->origins.at("router.attempts_max") == "environment BATON_ROUTER_ATTEMPTS_MAX");
  CHECK(config->kv_transfer.devices == std::vector<std::string>{"a", "b"});
  CHECK(config->workers.decode[0].threads == 2);
}

TEST_CASE("a worker may have elements of its own in its pool", "[config]") {
  const auto plain = Parse("version: 1\nengine: {kv_type: f16}\n", "f");
  REQUIRE(plain.ok());
  CHECK(!plain->workers.decode[0].kv_type.has_value());
  CHECK(!plain->kv_transfer.allow_conversion);
  CHECK(Print(*plain).find("    kv_type") == std::string::npos);
  Overrides overrides;
  overrides.set = {"kv_transfer.allow_conversion=true"};
  const auto mixed = Parse("version: 1\nworkers: {decode: [{kv_type: int8}]}\n", "f", overrides);
  REQUIRE(mixed.ok());
  CHECK(mixed->workers.decode[0].kv_type == "int8");
  CHECK(mixed->kv_transfer.allow_conversion);
  CHECK(Parse(Print(*mixed), "printed")->workers.decode[0].kv_type == "int8");
  CHECK_THAT(ErrorOf("version: 1\nworkers: {decode: [{kv_type: int4}]}\n"),
             Contains("f.yaml:2:") && Contains("workers.decode.0.kv_type") &&
                 Contains("'int4' is not one of bf16, f16, int8, f32"));
  CHECK_THAT(ErrorOf("version: 1\nkv_transfer: {allow_conversions: true}\n"),
             Contains("did you mean 'allow_conversion'"));
}

TEST_CASE("a worker in a flag that does not exist is refused", "[config]") {
  Overrides overrides;
  overrides.set = {"workers.decode.3.threads=2"};
  CHECK_THAT(ErrorOf("version: 1\nworkers: {decode: [{name: a}]}\n", overrides),
             Contains("'3' is not one of the list's 1 items"));
}

TEST_CASE("an address or a name used twice is refused", "[config]") {
  CHECK_THAT(ErrorOf("version: 1\nfrontend: {http: 127.0.0.1:8001}\n"),
             Contains("already that of frontend.http"));
  CHECK_THAT(ErrorOf("version: 1\nworkers: {decode: [{name: prefill-0}]}\n"),
             Contains("already that of workers.prefill.0.name"));
}

TEST_CASE("a loopback address among remote workers needs an advertised one", "[config]") {
  CHECK_THAT(ErrorOf("version: 1\nworkers: {decode: [{listen: 192.0.2.1:1, transfer: "
                     "192.0.2.1:2}]}\n"),
             Contains("workers.prefill.0.listen") && Contains("advertise_listen"));
  CHECK_THAT(ErrorOf("version: 1\nworkers: {decode: [{listen: 0.0.0.0:1}]}\n"),
             Contains("others cannot reach"));
}

TEST_CASE("documents that are no configuration are refused", "[config]") {
  CHECK_THAT(ErrorOf(""), Contains("must be a map"));
  CHECK_THAT(ErrorOf("limits: {}\n"), Contains("'version' is missing"));
  CHECK_THAT(ErrorOf("version: 2\n"), Contains("only version 1"));
  CHECK_THAT(ErrorOf("version: 1\n---\nversion: 1\n"), Contains("more than one"));
  CHECK_THAT(ErrorOf("version: [1\n"), Contains("f.yaml:"));
  CHECK_THAT(ErrorOf("version: 1\nlimits: !!python/x {}\n"), Contains("tags are not allowed"));
  CHECK_THAT(ErrorOf("version: 1\nlimits: [1]\n"), Contains("must be a map, not a list"));
  CHECK_THAT(ErrorOf("version: 1\nworkers: {decode: []}\n"), Contains("at least one decode"));
  CHECK_THAT(ErrorOf(",\n"), Contains("f.yaml"));  // where yaml-cpp's own loop never ends
  CHECK_THAT(ErrorOf(std::string(2 << 20, '#')), Contains("larger than 1 MiB"));
}

TEST_CASE("an alias bomb is refused before it grows", "[config]") {
  std::string bomb = "version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string above = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += (j ? ", " : "") + above;
    bomb += "]\n";
  }
  CHECK_THAT(ErrorOf(bomb), Contains("too large"));
}

TEST_CASE("values print in the unit in which they are whole", "[config]") {
  CHECK(PrintBytes(512ull << 20) == "512MiB");
  CHECK(PrintDuration(absl::Milliseconds(1500)) == "1500ms");
  CHECK(*ParseDuration("1.5s") == absl::Milliseconds(1500));
  CHECK(*ParseBytesPerSecond("2GB/s") == 2000000000u);
  CHECK(ParseAddress("[::1]:80")->host == "::1");
  CHECK(!ParseAddress("::1:80").ok());
  CHECK(!ParseAddress("host:65536").ok());
}

TEST_CASE("the keys that differ are named, also those of a worker that only one has") {
  const auto parse = [](const std::string& text) {
    const auto config = Parse("version: 1\n" + text, "test");
    REQUIRE(config.ok());
    return *config;
  };
  const Config plain = parse("");
  CHECK(Differences(plain, plain).empty());
  CHECK(Differences(plain, parse("limits: {drain: 7s}\n")) ==
        std::vector<std::string>{"limits.drain"});
  Config more = plain;
  more.workers.prefill.push_back(more.workers.prefill.at(0));
  const std::vector<std::string> added = Differences(plain, more);
  CHECK(std::find(added.begin(), added.end(), "workers.prefill.1.listen") != added.end());
  CHECK(Differences(more, plain).size() == added.size());
}

}  // namespace
}  // namespace baton::config
