// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What is a decode process's own.
#include "decode_worker/decode_worker.h"
#include "server/worker_role_process.h"

namespace baton::server {
namespace {

struct DecodeKind {
  using Worker = decode::DecodeWorker;
  using Options = decode::Options;
  using Metrics = decode::Metrics;
  using Transport = WatchedOwner;
  static constexpr Role kRole = Role::kDecode;
  static constexpr const char* kName = "decode";

  static const std::vector<config::Worker>& Workers(const config::Config& config) {
    return config.workers.decode;
  }

  static void Configure(const config::Config& config, Options& options) {
    options.batch_tokens = config.engine.batch_tokens;
    options.step_percent = config.engine.step_percent;
  }

  static void AddFamilies(const Metrics& m, std::vector<MetricFamily>& out) {
    auto add = [&](const char* name, const char* help, MetricKind kind, double value) {
      out.push_back(OneSeries(name, help, kind, value));
    };
    add("baton_requests_running", "Sequences in the running batch.", MetricKind::kGauge, m.running);
    out.push_back(ByName("baton_requests_waiting", "Attempts that wait, by what for.",
                         MetricKind::kGauge, "stage",
                         std::array<const char*, 2>{"decode", "kv_transfer"},
                         std::array<uint32_t, 2>{m.waiting, m.landing}));
    add("baton_generation_tokens_total", "Tokens drawn.", MetricKind::kCounter,
        static_cast<double>(m.generation_tokens));
    add("baton_preemptions_total", "Sequences that gave their blocks up for others.",
        MetricKind::kCounter, static_cast<double>(m.preemptions));
    add("baton_kv_reservations_expired_total", "Reservations whose deadline passed.",
        MetricKind::kCounter, static_cast<double>(m.reservations_expired));
    AddTransferFaults("Landings that did not reach their Commit, by why.", decode::kFailureNames,
                      m.failures, decode::kStaleNames, m.stale, out);
    out.push_back(TransferBytes("KV bytes landed.", m.received));
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<RoleProcess>> StartDecode(const RoleOptions& options) {
  return WorkerRoleProcess<DecodeKind>::Started(options);
}

}  // namespace baton::server
