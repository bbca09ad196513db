// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The names of Baton's metrics, made once for each role.
//
// Every series with known label values exists from the start.  What the front end measures on
// its own clock are histograms that its delivery thread fills; everything else is computed at
// scrape time from the snapshot that a role loop published.
//
// Thread:  observing from any; sources read published snapshots.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "base/messages.h"
#include "base/metrics.h"
#include "router/client.h"

namespace baton::server {

inline constexpr char kVersion[] = "0.1.0";
inline constexpr size_t kTransportLabels = 8;

absl::string_view PathName(router::Path path);           // none, colocated, …
absl::string_view OutcomeName(router::Outcome outcome);  // stop, length, …

// How the last SIGHUP ended, for baton_config_last_reload_successful; 1 before the first.
void NoteReload(bool good);

// What all roles show: build, process and reload.
std::unique_ptr<Metrics> MakeMetrics(absl::string_view role, absl::string_view model);

// Filled by the edge as answers go out.
class FrontendMetrics {
 public:
  explicit FrontendMetrics(Metrics* metrics);

  void FirstToken(router::Path path, absl::Duration since_received);
  void InterToken(router::Path path, absl::Duration gap, uint32_t tokens);
  // Once per request, when it is over; `content`: the client got some.
  void Over(const router::Over& over, uint32_t completion_tokens, absl::Duration duration,
            bool content);
  void Http(absl::string_view route, int status);

 private:
  void ObservePrediction(const PromptStats& prompt);

  static constexpr size_t kPaths = 4, kOutcomes = 6, kStages = 7;
  Metrics* const metrics_;
  std::array<std::array<Counter, kPaths>, kOutcomes> requests_;
  std::array<Histogram, kPaths> first_token_, inter_token_, duration_;
  std::array<Histogram, kStages> stages_;
  Counter computed_tokens_, cached_tokens_, generated_tokens_, resumes_;
  Histogram transfer_, exposed_;
  std::array<Histogram, kTransportLabels> predicted_;  // by transport
};

}  // namespace baton::server
