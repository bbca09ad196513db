// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A prefill or decode process: the worker on its loop, between gRPC, engine and transport.
//
// `Kind` says which, and only what differs:
//   Worker, Options, Metrics   the state machine of that role and its plain types
//   Transport                  the watched half of the transport that the worker drives
//   kRole, kName               the role, and its name in messages
//   Workers(config)            the configured workers of the role
//   Configure(config, options) what only this role takes from the configuration
//   AddFamilies(metrics, out)  the metric families that only this role has, or names its own way
//
// Thread:  see server/role.h; Turn runs on the role loop, Families on the admin port's threads.
// Failure: see server/role.h.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "server/role.h"
#include "server/worker_role.h"

namespace baton::server {

template <typename Kind>
class WorkerRoleProcess final : public RoleProcess {
 public:
  // The worker that `options` names, serving its ports.
  static absl::StatusOr<std::unique_ptr<RoleProcess>> Started(const RoleOptions& options) {
    const auto& workers = Kind::Workers(options.config);
    const auto found = std::find_if(workers.begin(), workers.end(), [&](const config::Worker& one) {
      return one.name == options.name;
    });
    if (found == workers.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the configuration has no ", Kind::kName, " worker '", options.name, "'"));
    }
    auto role = std::make_unique<WorkerRoleProcess>(options, *found);
    RETURN_IF_ERROR(role->Start());
    return role;
  }

  WorkerRoleProcess(const RoleOptions& options, const config::Worker& worker)
      : parts_(options, worker, Kind::kRole) {}
  ~WorkerRoleProcess() override { parts_.Stop(); }

  absl::Status Poll() override { return parts_.watch.verdict(); }
  bool ready() const override { return parts_.serving && !parts_.draining; }
  void StartDrain() override {
    parts_.draining = true;
    parts_.grpc->SetReady(false);
    parts_.loop.bell()->Ring();
  }
  bool drained() const override { return parts_.drained; }
  void Stop() override {
    parts_.Stop();
    parts_.transport->Finish();
  }

 private:
  absl::Status Start() {
    RETURN_IF_ERROR(parts_.Make());
    transport_ = std::make_unique<typename Kind::Transport>(parts_.transport.get(), &parts_.watch);
    worker_ = std::make_unique<typename Kind::Worker>(WorkerOptions(), *parts_.engine, *transport_,
                                                      parts_.self, parts_.layout);
    Publish();
    parts_.metrics->AddSource([this] { return Families(); });
    parts_.loop.Start([this](absl::Time now) { return Turn(now); });
    return parts_.Serve();
  }

  typename Kind::Options WorkerOptions() const {
    const config::Config& config = parts_.config;
    typename Kind::Options options;
    options.context_max = config.model.max_context;
    options.sequences_max = config.engine.sequences_max;
    options.queue_requests = config.limits.queue_requests;
    options.queue_tokens = config.limits.queue_tokens;
    options.drain_max = config.limits.drain;
    options.model_fingerprint = parts_.model_fingerprint;
    options.prefix_cache.enabled = config.engine.prefix_cache;
    options.prefix_cache.key = {CounterRandom(parts_.seed, 1, 0), CounterRandom(parts_.seed, 1, 1)};
    options.prefix_cache.numeric_class = parts_.prefix_class;
    Kind::Configure(config, options);
    return options;
  }

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
    parts_.pages->Note(numbers_.blocks);
  }

  std::vector<MetricFamily> Families() const {
    typename Kind::Metrics m;
    {
      MutexLock lock(&mutex_);
      m = numbers_;
    }
    std::vector<MetricFamily> families = BlockFamilies(m.blocks, parts_.layout);
    for (MetricFamily& family : parts_.TransportFamilies()) families.push_back(std::move(family));
    families.push_back(
        ByName("baton_prompt_tokens_total", "Prompt tokens, by where their KV came from.",
               MetricKind::kCounter, "source", std::array<const char*, 2>{"computed", "cached"},
               std::array<uint64_t, 2>{m.prompt_tokens_computed, m.prompt_tokens_cached}));
    Kind::AddFamilies(m, families);
    return families;
  }

  WorkerParts parts_;
  std::unique_ptr<typename Kind::Transport> transport_;
  std::unique_ptr<typename Kind::Worker> worker_;
  bool drain_told_ = false;  // the loop's
  mutable Mutex mutex_;
  typename Kind::Metrics numbers_ ABSL_GUARDED_BY(mutex_);
};

// The two families that count what went wrong with pushed KV.
template <typename FailureNames, typename Failures, typename StaleNames, typename Stales>
void AddTransferFaults(const char* failures_help, const FailureNames& failure_names,
                       const Failures& failures, const StaleNames& stale_names,
                       const Stales& stales, std::vector<MetricFamily>& out) {
  out.push_back(ByName("baton_kv_transfer_failures_total", failures_help, MetricKind::kCounter,
                       "reason", failure_names, failures));
  out.push_back(ByName("baton_kv_stale_messages_total", "Messages that name nothing alive (K4).",
                       MetricKind::kCounter, "kind", stale_names, stales));
}

// baton_kv_transfer_bytes_total from a map of (peer, transport) to something with bytes.
template <typename Transfers>
MetricFamily TransferBytes(const char* help, const Transfers& transfers) {
  MetricFamily bytes{"baton_kv_transfer_bytes_total", help, MetricKind::kCounter, {}};
  for (const auto& [other, moved] : transfers) {
    bytes.samples.push_back(
        {{{"peer", other.first}, {"transport", other.second}}, static_cast<double>(moved.bytes)});
  }
  return bytes;
}

}  // namespace baton::server
