// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A decode process: the worker on its loop, between gRPC, engine and transport.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "decode_worker/decode_worker.h"
#include "server/role.h"
#include "server/worker_role.h"

namespace baton::server {
namespace {

decode::Options OptionsOf(const WorkerParts& parts) {
  const config::Config& config = parts.config;
  decode::Options options;
  options.context_max = config.model.max_context;
  options.batch_tokens = config.engine.batch_tokens;
  options.sequences_max = config.engine.sequences_max;
  options.queue_requests = config.limits.queue_requests;
  options.queue_tokens = config.limits.queue_tokens;
  options.drain_max = config.limits.drain;
  options.model_fingerprint = parts.model_fingerprint;
  options.prefix_cache.enabled = config.engine.prefix_cache;
  options.prefix_cache.key = {CounterRandom(parts.seed, 1, 0), CounterRandom(parts.seed, 1, 1)};
  options.prefix_cache.numeric_class = parts.model_fingerprint;
  return options;
}

class DecodeRole final : public RoleProcess {
 public:
  DecodeRole(const RoleOptions& options, const config::Worker& worker)
      : parts_(options, worker, Role::kDecode) {}
  ~DecodeRole() override { parts_.Stop(); }

  absl::Status Start() {
    RETURN_IF_ERROR(parts_.Make());
    transport_ = std::make_unique<WatchedOwner>(parts_.transport.get(), &parts_.watch);
    worker_ = std::make_unique<decode::DecodeWorker>(OptionsOf(parts_), *parts_.engine, *transport_,
                                                     parts_.self, parts_.layout);
    Publish();
    parts_.metrics->AddSource([this] { return Families(); });
    parts_.loop.Start([this](absl::Time now) { return Turn(now); });
    return parts_.Serve();
  }

  absl::Status Poll() override { return parts_.watch.verdict(); }
  bool ready() const override { return parts_.serving && !parts_.draining; }
  void StartDrain() override {
    parts_.draining = true;
    parts_.grpc->SetReady(false);
    parts_.loop.bell()->Ring();
  }
  bool drained() const override { return parts_.drained; }

 private:
  absl::Time Turn(absl::Time now) {
    if (parts_.draining && !std::exchange(drain_told_, true)) worker_->Receive(baton::StartDrain{});
    for (WorkerInput& input : parts_.desk.TakeInputs()) worker_->Receive(std::move(input));
    worker_->Tick(now);
    parts_.desk.Send(worker_->TakeOutputs());
    Publish();
    parts_.drained = worker_->drained();
    return worker_->NextWake();
  }

  void Publish() {
    WorkerStatus status = worker_->Status();
    status.ready = status.ready && parts_.serving;
    parts_.desk.Publish(std::move(status));
    MutexLock lock(&mutex_);
    numbers_ = worker_->metrics();
  }

  std::vector<MetricFamily> Families() const {
    decode::Metrics m;
    {
      MutexLock lock(&mutex_);
      m = numbers_;
    }
    std::vector<MetricFamily> families = BlockFamilies(m.blocks, parts_.layout);
    for (MetricFamily& family : parts_.TransportFamilies()) families.push_back(std::move(family));
    auto add = [&](const char* name, const char* help, MetricKind kind, double value) {
      families.push_back(OneSeries(name, help, kind, value));
    };
    add("baton_requests_running", "Sequences in the running batch.", MetricKind::kGauge, m.running);
    families.push_back(ByName("baton_requests_waiting", "Attempts that wait, by what for.",
                              MetricKind::kGauge, "stage",
                              std::array<const char*, 2>{"decode", "kv_transfer"},
                              std::array<uint32_t, 2>{m.waiting, m.landing}));
    add("baton_generation_tokens_total", "Tokens drawn.", MetricKind::kCounter,
        static_cast<double>(m.generation_tokens));
    add("baton_preemptions_total", "Sequences that gave their blocks up for others.",
        MetricKind::kCounter, static_cast<double>(m.preemptions));
    add("baton_kv_reservations_expired_total", "Reservations whose deadline passed.",
        MetricKind::kCounter, static_cast<double>(m.reservations_expired));
    families.push_back(
        ByName("baton_prompt_tokens_total", "Prompt tokens, by where their KV came from.",
               MetricKind::kCounter, "source", std::array<const char*, 2>{"computed", "cached"},
               std::array<uint64_t, 2>{m.prompt_tokens_computed, m.prompt_tokens_cached}));
    families.push_back(ByName("baton_kv_transfer_failures_total",
                              "Landings that did not reach their Commit, by why.",
                              MetricKind::kCounter, "reason", decode::kFailureNames, m.failures));
    families.push_back(ByName("baton_kv_stale_messages_total",
                              "Messages that name nothing alive (K4).", MetricKind::kCounter,
                              "kind", decode::kStaleNames, m.stale));
    MetricFamily bytes{
        "baton_kv_transfer_bytes_total", "KV bytes landed.", MetricKind::kCounter, {}};
    for (const auto& [from, received] : m.received) {
      bytes.samples.push_back({{{"peer", from.first}, {"transport", from.second}},
                               static_cast<double>(received.bytes)});
    }
    families.push_back(std::move(bytes));
    return families;
  }

  WorkerParts parts_;
  std::unique_ptr<WatchedOwner> transport_;
  std::unique_ptr<decode::DecodeWorker> worker_;
  bool drain_told_ = false;  // the loop's
  mutable Mutex mutex_;
  decode::Metrics numbers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<RoleProcess>> StartDecode(const RoleOptions& options) {
  const auto& workers = options.config.workers.decode;
  const auto found = std::find_if(workers.begin(), workers.end(), [&](const config::Worker& one) {
    return one.name == options.name;
  });
  if (found == workers.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the configuration has no decode worker '", options.name, "'"));
  }
  auto role = std::make_unique<DecodeRole>(options, *found);
  RETURN_IF_ERROR(role->Start());
  return role;
}

}  // namespace baton::server
