// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/role_metrics.h"

#include <atomic>

#include "absl/strings/str_cat.h"

#ifndef BATON_COMMIT
#define BATON_COMMIT "unknown"
#endif

namespace baton::server {
namespace {

std::atomic<bool> g_reload_good{true};

constexpr std::array<const char*, 4> kPathNames = {"none", "colocated", "disaggregated",
                                                   "fallback"};
constexpr std::array<const char*, 6> kOutcomeNames = {"stop",     "length", "cancelled",
                                                      "rejected", "error",  "timeout"};
constexpr std::array<const char*, 7> kStageNames = {
    "queue", "reserve", "prefill", "kv_exposed", "first_token", "retry", "decode"};

// Seconds.  Fine at the low end: a small model answers in milliseconds.
constexpr double kFirstTokenBounds[] = {.001, .0025, .005, .01, .02, .04, .06, .08, .1, .15, .25,
                                        .5,   .75,   1,    1.5, 2.5, 5,   10,  20,  40, 80,  160};
constexpr double kInterTokenBounds[] = {.0005, .001, .002, .004, .006, .008, .01,
                                        .015,  .02,  .025, .03,  .04,  .06,  .08,
                                        .1,    .2,   .4,   .8,   1.6,  4,    10};
constexpr double kDurationBounds[] = {.005, .01, .025, .05, .1, .25, .5,  1,   2.5,
                                      5,    10,  20,   40,  60, 120, 240, 480, 960};
constexpr double kStageBounds[] = {.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25,
                                   .5,    1,     2.5,  5,     10,   30,  60,   120, 300};
constexpr double kTransferBounds[] = {.0001, .00025, .0005, .001, .0025, .005, .01, .025,
                                      .05,   .1,     .25,   .5,   1,     2.5,  5,   10};

// Measured time by predicted time.
constexpr double kRatioBounds[] = {.25, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 4, 8};
// What a worker says of a transport is a label only if it is one of these: labels are bounded.
constexpr std::array<absl::string_view, kTransportLabels> kTransports = {
    "posix", "sysv", "tcp", "ucx_tcp", "rc_verbs", "rc_mlx5", "dc_mlx5", "other"};

}  // namespace

absl::string_view PathName(router::Path path) { return kPathNames[static_cast<size_t>(path)]; }
absl::string_view OutcomeName(router::Outcome outcome) {
  return kOutcomeNames[static_cast<size_t>(outcome)];
}

void NoteReload(bool good) { g_reload_good.store(good, std::memory_order_relaxed); }

std::unique_ptr<Metrics> MakeMetrics(absl::string_view role, absl::string_view model) {
  auto metrics = std::make_unique<Metrics>(
      MetricLabels{{"role", std::string(role)}, {"model", std::string(model)}});
  metrics->AddSource([] {
    return std::vector<MetricFamily>{{"baton_build_info",
                                      "What runs; the value is 1.",
                                      MetricKind::kGauge,
                                      {{{{"version", kVersion}, {"commit", BATON_COMMIT}}, 1}}}};
  });
  metrics->AddSource(ProcessMetrics);
  metrics->AddSource([] {
    const double good = g_reload_good.load(std::memory_order_relaxed) ? 1 : 0;
    return std::vector<MetricFamily>{{"baton_config_last_reload_successful",
                                      "Whether the last SIGHUP found a valid configuration.",
                                      MetricKind::kGauge,
                                      {{{}, good}}}};
  });
  return metrics;
}

FrontendMetrics::FrontendMetrics(Metrics* metrics) : metrics_(metrics) {
  for (size_t path = 0; path < kPaths; ++path) {
    const MetricLabels labels = {{"path", kPathNames[path]}};
    for (size_t outcome = 0; outcome < kOutcomes; ++outcome) {
      requests_[outcome][path] =
          metrics->AddCounter("baton_requests_total", "Requests that are over.",
                              {{"outcome", kOutcomeNames[outcome]}, {"path", kPathNames[path]}});
    }
    duration_[path] =
        metrics->AddHistogram("baton_request_duration_seconds",
                              "From a request's arrival to its end.", kDurationBounds, labels);
    if (path == 0) continue;  // an answer has a path
    first_token_[path] =
        metrics->AddHistogram("baton_time_to_first_token_seconds",
                              "From a request's arrival to the first content handed to its client.",
                              kFirstTokenBounds, labels);
    inter_token_[path] = metrics->AddHistogram(
        "baton_inter_token_latency_seconds", "Between content deliveries of one answer, per token.",
        kInterTokenBounds, labels);
  }
  for (size_t stage = 0; stage < kStages; ++stage) {
    stages_[stage] = metrics->AddHistogram(
        "baton_stage_duration_seconds",
        "Consecutive parts of a request's life; those before decode add up to its first token.",
        kStageBounds, {{"stage", kStageNames[stage]}});
  }
  const std::string prompt = "baton_prompt_tokens_total";
  const std::string prompt_help = "Prompt tokens, by where their KV came from.";
  computed_tokens_ = metrics->AddCounter(prompt, prompt_help, {{"source", "computed"}});
  cached_tokens_ = metrics->AddCounter(prompt, prompt_help, {{"source", "cached"}});
  generated_tokens_ =
      metrics->AddCounter("baton_generation_tokens_total", "Output tokens delivered to the edge.");
  transfer_ =
      metrics->AddHistogram("baton_kv_transfer_seconds",
                            "Per push: time with at least one write outstanding.", kTransferBounds);
  exposed_ = metrics->AddHistogram(
      "baton_kv_transfer_exposed_seconds",
      "Per push: from the last layer computed to its last byte visible at decode.",
      kTransferBounds);
  for (size_t i = 0; i < kTransports.size(); ++i) {
    predicted_[i] = metrics->AddHistogram(
        "baton_kv_transfer_measured_to_predicted_ratio",
        "Per push: its transfer time by what was predicted of its link; above 1: it took longer.",
        kRatioBounds, {{"transport", std::string(kTransports[i])}});
  }
}

void FrontendMetrics::FirstToken(router::Path path, absl::Duration since_received) {
  first_token_[static_cast<size_t>(path)].Observe(absl::ToDoubleSeconds(since_received));
}

void FrontendMetrics::InterToken(router::Path path, absl::Duration gap, uint32_t tokens) {
  for (uint32_t i = 0; i < tokens; ++i) {
    inter_token_[static_cast<size_t>(path)].Observe(absl::ToDoubleSeconds(gap) / tokens);
  }
}

void FrontendMetrics::Over(const router::Over& over, uint32_t completion_tokens,
                           absl::Duration duration, bool content) {
  const auto path = static_cast<size_t>(over.path);
  requests_[static_cast<size_t>(over.outcome)][path].Add();
  duration_[path].Observe(absl::ToDoubleSeconds(duration));
  generated_tokens_.Add(completion_tokens);
  if (!content) return;
  computed_tokens_.Add(over.prompt.computed_tokens);
  cached_tokens_.Add(over.prompt.cached_tokens);
  const router::Stages& s = over.stages;
  const std::array<absl::Duration, kStages> stages = {
      s.queue, s.reserve, s.prefill, s.kv_exposed, s.first_token, s.retry, s.decode};
  for (size_t i = 0; i < kStages; ++i) stages_[i].Observe(absl::ToDoubleSeconds(stages[i]));
  if (over.prompt.pushed) {
    transfer_.Observe(absl::ToDoubleSeconds(over.prompt.transfer));
    exposed_.Observe(absl::ToDoubleSeconds(over.prompt.exposed));
    ObservePrediction(over.prompt);
  }
}

void FrontendMetrics::ObservePrediction(const PromptStats& prompt) {
  if (prompt.predicted <= absl::ZeroDuration()) return;
  size_t at = 0;
  while (at + 1 < kTransports.size() && kTransports[at] != prompt.transport) ++at;
  predicted_[at].Observe(absl::FDivDuration(prompt.transfer, prompt.predicted));
}

void FrontendMetrics::Http(absl::string_view route, int status) {
  metrics_
      ->AddCounter("baton_http_requests_total", "Answers of the HTTP API.",
                   {{"route", std::string(route)}, {"code", absl::StrCat(status)}})
      .Add();
}

}  // namespace baton::server
