// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/link_matrix.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/ids.h"

namespace baton::server {
namespace {

struct Line {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

// name{label="value",…} number, as the exposition format has it.  None: a comment, or no such line.
std::optional<Line> ParseLine(absl::string_view text) {
  Line line;
  const size_t open = text.find('{');
  if (text.empty() || text[0] == '#' || open == absl::string_view::npos) return std::nullopt;
  line.name = std::string(text.substr(0, open));
  text.remove_prefix(open + 1);
  while (!text.empty() && text[0] != '}') {
    const size_t equals = text.find("=\"");
    if (equals == absl::string_view::npos) return std::nullopt;
    std::string& value = line.labels[std::string(text.substr(0, equals))];
    text.remove_prefix(equals + 2);
    while (!text.empty() && text[0] != '"') {
      const bool escaped = text[0] == '\\' && text.size() > 1;
      value += text[escaped ? 1 : 0];
      text.remove_prefix(escaped ? 2 : 1);
    }
    if (!absl::ConsumePrefix(&text, "\"")) return std::nullopt;
    absl::ConsumePrefix(&text, ",");
  }
  if (!absl::ConsumePrefix(&text, "} ")) return std::nullopt;
  const absl::string_view number = text.substr(0, text.find(' '));
  if (!absl::SimpleAtod(number, &line.value) || !std::isfinite(line.value)) return std::nullopt;
  return line;
}

ShownLink& LinkOf(const Line& line, ShownWorker& worker) {
  const auto label = [&](const char* name) {
    const auto found = line.labels.find(name);
    return found == line.labels.end() ? std::string() : found->second;
  };
  const std::string peer = label("peer"), transport = label("transport");
  const auto known = std::find_if(
      worker.links.begin(), worker.links.end(),
      [&](const ShownLink& link) { return link.peer == peer && link.transport == transport; });
  if (known != worker.links.end()) return *known;
  ShownLink& link = worker.links.emplace_back();
  link.peer = peer;
  link.transport = transport;
  return link;
}

void TakeLine(const Line& line, ShownWorker& worker) {
  const double value = std::max(line.value, 0.0);
  if (line.name == "baton_kv_config_info") {
    const auto bytes = line.labels.find("block_bytes"), layers = line.labels.find("layers");
    if (bytes == line.labels.end() || layers == line.labels.end()) return;
    if (!absl::SimpleAtoi(bytes->second, &worker.kv_block_bytes)) worker.kv_block_bytes = 0;
    if (!absl::SimpleAtoi(layers->second, &worker.kv_layers)) worker.kv_layers = 0;
  } else if (line.name == "baton_transport_info") {
    ShownLink& link = LinkOf(line, worker);
    if (const auto at = line.labels.find("class"); at != line.labels.end()) {
      link.link_class = at->second;
    }
    if (const auto at = line.labels.find("expected"); at != line.labels.end()) {
      link.expected = at->second;
    }
  } else if (line.name == "baton_link_bandwidth_bytes_per_second") {
    LinkOf(line, worker).cost.bandwidth = value;
  } else if (line.name == "baton_link_latency_seconds") {
    LinkOf(line, worker).cost.latency = absl::Seconds(value);
  } else if (line.name == "baton_link_per_operation_seconds") {
    LinkOf(line, worker).cost.per_operation = absl::Seconds(value);
  } else if (line.name == "baton_link_age_seconds") {
    LinkOf(line, worker).age = absl::Seconds(value);
  } else if (line.name == "baton_link_in_flight_bytes") {
    LinkOf(line, worker).in_flight_bytes = value;
  }
}

}  // namespace

ShownWorker ReadLinks(absl::string_view metrics_page) {
  ShownWorker worker;
  for (const absl::string_view text : absl::StrSplit(metrics_page, '\n')) {
    if (const std::optional<Line> line = ParseLine(absl::StripSuffix(text, "\r"))) {
      TakeLine(*line, worker);
    }
  }
  worker.links.erase(std::remove_if(worker.links.begin(), worker.links.end(),
                                    [](const ShownLink& link) { return link.cost.bandwidth <= 0; }),
                     worker.links.end());
  return worker;
}

absl::Duration PredictPrompt(const ShownWorker& worker, const ShownLink& link, uint32_t tokens) {
  return link.cost.Predict(
      WorkOfBlocks(BlocksFor(tokens), worker.kv_block_bytes, worker.kv_layers));
}

}  // namespace baton::server
