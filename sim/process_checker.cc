// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/process_checker.h"

#include "absl/strings/str_cat.h"

namespace baton::sim {

void CheckBounds(const WorkerProcess& worker, const prefill::Options& prefill,
                 const decode::Options& decode, EventLog& log) {
  if (!worker.alive()) return;
  if (worker.role() == Role::kPrefill) {
    if (worker.prefill_metrics().waiting > prefill.queue_requests) {
      log.Violation("K5: queue of ", worker.name());
    }
    return;
  }
  const decode::Metrics metrics = worker.decode_metrics();
  const engine::BlockCounts& blocks = metrics.blocks;
  if (blocks.reserved + blocks.quarantined > blocks.total() / 2) {
    log.Violation("K5: ", worker.name(), " has ", blocks.reserved, " blocks reserved and ",
                  blocks.quarantined, " quarantined of ", blocks.total());
  }
  // Preempted sequences wait as well; they were admitted once.
  if (metrics.waiting > decode.queue_requests + decode.sequences_max) {
    log.Violation("K5: queue of ", worker.name());
  }
}

void CheckBounds(const FrontendProcess& frontend, const router::Dispatcher::Options& options,
                 EventLog& log) {
  if (!frontend.alive()) return;
  const router::Snapshot snapshot = frontend.snapshot();
  if (snapshot.protocol_errors > 0) log.Violation("K10: a worker says what it may not say");
  uint64_t failed = 0;  // requests that wait again were admitted once
  for (size_t i = 1; i < router::kAttemptResults; ++i) failed += snapshot.attempts[i];
  if (snapshot.waiting[0] > options.queue_requests + failed) {
    log.Violation("K5: queue of a front end");
  }
}

std::string OwnedBy(const WorkerProcess& worker) {
  if (!worker.alive()) return "";
  std::string owned;
  const engine::BlockCounts blocks = worker.blocks();
  if (blocks.free + blocks.cached != blocks.total()) {
    absl::StrAppend(&owned, worker.name(), " has ", blocks.used, " blocks used, ", blocks.reserved,
                    " reserved, ", blocks.quarantined, " quarantined; ");
  }
  if (worker.Status().attempts > 0) {
    absl::StrAppend(&owned, worker.name(), " has ", worker.Status().attempts, " attempts; ");
  }
  if (worker.grants() > 0) {
    absl::StrAppend(&owned, worker.name(), " has ", worker.grants(), " grants; ");
  }
  return owned;
}

std::string OwnedBy(const FrontendProcess& frontend) {
  return frontend.idle() ? "" : "a front end has requests; ";
}

}  // namespace baton::sim
