// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/metrics.h"

#include <dirent.h>
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/mutex.h"

namespace baton {
namespace {

prometheus::Labels ToLabels(const MetricLabels& labels) {
  return prometheus::Labels(labels.begin(), labels.end());
}

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

double CountOpenFiles() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  double count = -3;  // ".", ".." and the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

double BootTimeSeconds() {
  for (absl::string_view line : absl::StrSplit(ReadFile("/proc/stat"), '\n')) {
    double value = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &value)) return value;
  }
  return 0;
}

}  // namespace

void Counter::Add(double amount) {
  if (counter_ != nullptr) counter_->Increment(amount);
}
double Counter::value() const { return counter_ == nullptr ? 0 : counter_->Value(); }
void Histogram::Observe(double value) {
  if (histogram_ != nullptr) histogram_->Observe(value);
}

struct Metrics::State {
  MetricLabels common;
  prometheus::Registry registry;
  Mutex mutex;  // of the two maps
  std::map<std::string, prometheus::Family<prometheus::Counter>*> counters;
  std::map<std::string, prometheus::Family<prometheus::Histogram>*> histograms;
  std::vector<MetricSource> sources;
};

Metrics::Metrics(MetricLabels common) : state_(std::make_unique<State>()) {
  state_->common = std::move(common);
}
Metrics::~Metrics() = default;

Counter Metrics::AddCounter(const std::string& name, const std::string& help,
                            const MetricLabels& labels) {
  MutexLock lock(&state_->mutex);
  auto& family = state_->counters[name];
  if (family == nullptr) {
    family = &prometheus::BuildCounter()
                  .Name(name)
                  .Help(help)
                  .Labels(ToLabels(state_->common))
                  .Register(state_->registry);
  }
  return Counter(&family->Add(ToLabels(labels)));
}

Histogram Metrics::AddHistogram(const std::string& name, const std::string& help,
                                absl::Span<const double> bounds, const MetricLabels& labels) {
  MutexLock lock(&state_->mutex);
  auto& family = state_->histograms[name];
  if (family == nullptr) {
    family = &prometheus::BuildHistogram()
                  .Name(name)
                  .Help(help)
                  .Labels(ToLabels(state_->common))
                  .Register(state_->registry);
  }
  return Histogram(&family->Add(
      ToLabels(labels), prometheus::Histogram::BucketBoundaries(bounds.begin(), bounds.end())));
}

void Metrics::AddSource(MetricSource source) { state_->sources.push_back(std::move(source)); }

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = state_->registry.Collect();
  for (const MetricSource& source : state_->sources) {
    for (const MetricFamily& from : source()) {
      prometheus::MetricFamily family;
      family.name = from.name;
      family.help = from.help;
      const bool counter = from.kind == MetricKind::kCounter;
      family.type = counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
      for (const MetricSample& sample : from.samples) {
        prometheus::ClientMetric metric;
        for (const MetricLabels* labels : {&std::as_const(state_->common), &sample.labels}) {
          for (const auto& [name, value] : *labels) {
            prometheus::ClientMetric::Label label;
            label.name = name;
            label.value = value;
            metric.label.push_back(std::move(label));
          }
        }
        (counter ? metric.counter.value : metric.gauge.value) = sample.value;
        family.metric.push_back(std::move(metric));
      }
      families.push_back(std::move(family));
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

std::vector<MetricFamily> ProcessMetrics() {
  // /proc/self/stat behind the last ')': field 3 (state) is index 0.
  const std::string stat = ReadFile("/proc/self/stat");
  const std::vector<std::string> fields = absl::StrSplit(
      absl::string_view(stat).substr(std::min(stat.rfind(')') + 2, stat.size())), ' ');
  auto field = [&](size_t index) {
    double value = 0;
    return index < fields.size() && absl::SimpleAtod(fields[index], &value) ? value : 0;
  };
  const double tick = static_cast<double>(sysconf(_SC_CLK_TCK));
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  static const double boot_time = BootTimeSeconds();
  auto one = [](std::string name, std::string help, MetricKind kind, double value) {
    return MetricFamily{std::move(name), std::move(help), kind, {{{}, value}}};
  };
  return {
      one("process_cpu_seconds_total", "User and system CPU time spent.", MetricKind::kCounter,
          (field(11) + field(12)) / tick),
      one("process_resident_memory_bytes", "Resident memory.", MetricKind::kGauge,
          field(21) * page),
      one("process_virtual_memory_bytes", "Virtual memory.", MetricKind::kGauge, field(20)),
      one("process_start_time_seconds", "Start of the process since the Unix epoch.",
          MetricKind::kGauge, boot_time + field(19) / tick),
      one("process_open_fds", "Open file descriptors.", MetricKind::kGauge, CountOpenFiles()),
      one("process_max_fds", "Limit of open file descriptors.", MetricKind::kGauge,
          static_cast<double>(files.rlim_cur)),
      one("process_threads", "Threads of the process.", MetricKind::kGauge, field(17)),
  };
}

}  // namespace baton
