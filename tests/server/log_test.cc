// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/log.h"

#include <catch2/catch.hpp>

#include "base/metrics.h"
#include "base/utf8.h"

namespace baton {
namespace {

TEST_CASE("a log record is one line whatever its values hold", "[log]") {
  const std::string text =
      FormatLogRecord(LogFormat::kText, absl::UnixEpoch(), LogLevel::kWarn, "decode", "decode-0",
                      "link down", {{"peer", "a\nb\x01"}, {"ms", 3}, {"plain", "x-1"}});
  CHECK(text ==
        "1970-01-01T00:00:00.000000Z WARN link down role=decode-0 peer=\"a\\nb\\u0001\" ms=3 "
        "plain=x-1");
}

TEST_CASE("a JSON log record keeps numbers bare and repairs broken UTF-8", "[log]") {
  const std::string text =
      FormatLogRecord(LogFormat::kJson, absl::UnixEpoch(), LogLevel::kInfo, "prefill", "prefill-0",
                      "say \"hi\"", {{"tokens", 7}, {"ok", true}, {"text", "\xff|\xc3\xa9"}});
  CHECK(text ==
        "{\"time\":\"1970-01-01T00:00:00.000000Z\",\"level\":\"INFO\",\"message\":\"say "
        "\\\"hi\\\"\",\"role\":\"prefill\",\"name\":\"prefill-0\",\"tokens\":7,\"ok\":true,"
        "\"text\":\"\xef\xbf\xbd|\xc3\xa9\"}");
}

TEST_CASE("UTF-8 is judged strictly", "[log]") {
  CHECK(Utf8Length("a") == 1);
  CHECK(Utf8Length("\xc3\xa9") == 2);
  CHECK(Utf8Length("\xf0\x9f\x8e\x89") == 4);
  CHECK(Utf8Length("\xc0\x80") == 0);      // overlong
  CHECK(Utf8Length("\xed\xa0\x80") == 0);  // a surrogate
  CHECK(Utf8Length("\xf4\x90\x80\x80") == 0);
  CHECK(Utf8Length("\xe2\x82") == 0);  // cut off
  CHECK(Utf8Valid("ok\xff") == 2);
}

TEST_CASE("a scrape shows handles, and families that a source computes", "[metrics]") {
  Metrics metrics(MetricLabels{{"role", "decode"}});
  Counter counter = metrics.AddCounter("baton_things_total", "Things.", {{"kind", "a"}});
  metrics.AddCounter("baton_things_total", "Things.", {{"kind", "b"}});
  const double bounds[] = {0.1, 1};
  metrics.AddHistogram("baton_wait_seconds", "Waiting.", bounds).Observe(0.5);
  metrics.AddSource([] {
    return std::vector<MetricFamily>{
        {"baton_blocks", "Blocks.", MetricKind::kGauge, {{{{"state", "free"}}, 42}}}};
  });
  counter.Add(2);
  const std::string text = metrics.Text();
  CHECK(text.find("baton_things_total{role=\"decode\",kind=\"a\"} 2") != std::string::npos);
  CHECK(text.find("baton_things_total{role=\"decode\",kind=\"b\"} 0") != std::string::npos);
  CHECK(text.find("baton_wait_seconds_bucket{role=\"decode\",le=\"1\"} 1") != std::string::npos);
  CHECK(text.find("# TYPE baton_blocks gauge") != std::string::npos);
  CHECK(text.find("baton_blocks{role=\"decode\",state=\"free\"} 42") != std::string::npos);
}

}  // namespace
}  // namespace baton
