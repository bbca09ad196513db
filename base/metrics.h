// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Thin handles over prometheus-cpp: counters and histograms that code updates, and families
// that a scrape computes from state.
//
// A gauge of work in flight comes from a source, never from ++ and --: it then cannot stick
// after a mass abort.  Sources run on the scraping thread, so they read atomics or a
// snapshot that the owner published; they never wait for a loop.
//
// Thread:  any; AddSource before the first Text.
// Cost:    a handle costs an atomic or a short lock; Text is O(series).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace prometheus {
class Counter;
class Histogram;
}  // namespace prometheus

namespace baton {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class Counter {
 public:
  Counter() = default;
  explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
  void Add(double amount = 1);
  double value() const;

 private:
  prometheus::Counter* counter_ = nullptr;  // the registry's
};

class Histogram {
 public:
  Histogram() = default;
  explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
  void Observe(double value);

 private:
  prometheus::Histogram* histogram_ = nullptr;  // the registry's
};

enum class MetricKind : uint8_t { kGauge, kCounter };

struct MetricSample {
  MetricLabels labels;
  double value = 0;
};
// One family as a source reports it.
struct MetricFamily {
  std::string name;
  std::string help;
  MetricKind kind = MetricKind::kGauge;
  std::vector<MetricSample> samples;
};
using MetricSource = std::function<std::vector<MetricFamily>()>;

class Metrics {
 public:
  // `common` is on every series (role, model).
  explicit Metrics(MetricLabels common);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // The series exists, at 0, from here on.  Same name: same help, another set of label values.
  Counter AddCounter(const std::string& name, const std::string& help,
                     const MetricLabels& labels = {});
  // `bounds`: upper edges, ascending.
  Histogram AddHistogram(const std::string& name, const std::string& help,
                         absl::Span<const double> bounds, const MetricLabels& labels = {});
  void AddSource(MetricSource source);

  // The exposition format, text version 0.0.4.
  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// process_* of this process, with the names of Prometheus' own client libraries.
std::vector<MetricFamily> ProcessMetrics();

}  // namespace baton
