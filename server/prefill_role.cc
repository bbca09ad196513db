// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What is a prefill process's own.
#include "prefill_worker/prefill_worker.h"
#include "server/worker_role_process.h"

namespace baton::server {
namespace {

struct PrefillKind {
  using Worker = prefill::PrefillWorker;
  using Options = prefill::Options;
  using Metrics = prefill::Metrics;
  using Transport = WatchedWriter;
  static constexpr Role kRole = Role::kPrefill;
  static constexpr const char* kName = "prefill";

  static const std::vector<config::Worker>& Workers(const config::Config& config) {
    return config.workers.prefill;
  }

  static void Configure(const config::Config& config, Options& options) {
    options.chunk_tokens = config.engine.chunk_tokens;
    options.pipelining = config.kv_transfer.pipelining;
  }

  static void AddFamilies(const Metrics& m, std::vector<MetricFamily>& out) {
    out.push_back(OneSeries("baton_requests_running", "Prompts being computed.", MetricKind::kGauge,
                            m.computing));
    out.push_back(ByName("baton_requests_waiting", "Prompts that wait, by what for.",
                         MetricKind::kGauge, "stage",
                         std::array<const char*, 2>{"prefill", "kv_transfer"},
                         std::array<uint32_t, 2>{m.waiting, m.pushing}));
    AddTransferFaults("Pushes that did not reach their Commit, by why.", prefill::kFailureNames,
                      m.failures, prefill::kStaleNames, m.stale, out);
    out.push_back(TransferBytes("KV bytes pushed.", m.pushed));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<RoleProcess>> StartPrefill(const RoleOptions& options) {
  return WorkerRoleProcess<PrefillKind>::Started(options);
}

}  // namespace baton::server
