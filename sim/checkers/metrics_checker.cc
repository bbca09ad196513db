// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/metrics_checker.h"

#include <numeric>

namespace baton::sim {

void MetricsChecker::Equal(const std::string& who, const char* what, uint64_t said, uint64_t seen) {
  if (said == seen) return;
  log_.Violation("metrics: ", who, " reports ", said, " ", what, ", but it is ", seen);
}

void MetricsChecker::Check(const WorkerFacts& worker, const decode::Metrics& m,
                           const Moved& moved) {
  const uint32_t pool = book_.life(worker.life).hello.layout.blocks;
  Equal(worker.name, "blocks in all", m.blocks.total(), pool);
  uint64_t open = 0, quarantined = 0, landing = 0;
  const auto unsettled = book_.unsettled.find(worker.life);
  if (unsettled != book_.unsettled.end()) {
    const Incarnation self = book_.life(worker.life).incarnation;
    for (const Generation generation : unsettled->second) {
      const GrantFacts& grant = *book_.Find({self, generation});
      const bool is_open = grant.state == GrantState::kOpen;
      landing += is_open;
      (is_open ? open : quarantined) += grant.ticket.blocks.size();
    }
  }
  Equal(worker.name, "blocks reserved", m.blocks.reserved, open);
  Equal(worker.name, "blocks quarantined", m.blocks.quarantined, quarantined);
  Equal(worker.name, "landing", m.landing, landing);
  Equal(worker.name, "waiting, landing and running", uint64_t{m.waiting} + m.landing + m.running,
        worker.streams.size());
  if (worker.streams.empty() && !worker.stepping) {
    Equal(worker.name, "blocks used by nobody", m.blocks.used, 0);
  }
  Equal(worker.name, "requests", m.requests, worker.opened);
  Equal(worker.name, "finished", m.finished, worker.finished);
  Equal(worker.name, "tokens", m.generation_tokens, worker.tokens);
  Equal(worker.name, "steps", m.steps, worker.steps);
  Moved told;
  for (const auto& [peer, received] : m.received) {
    told.pushes += received.pushes;
    told.blocks += received.blocks;
    told.bytes += received.bytes;
  }
  if (m.failures[static_cast<size_t>(decode::Failure::kBadCommit)] > 0) {
    log_.Violation("K3: ", worker.name, " was sent a Commit that is not its ticket's");
  }
  Equal(worker.name, "pushes received", told.pushes, moved.pushes);
  Equal(worker.name, "blocks received", told.blocks, moved.blocks);
  Equal(worker.name, "bytes received", told.bytes, moved.bytes);
}

void MetricsChecker::Check(const WorkerFacts& worker, const prefill::Metrics& m,
                           const Moved& moved) {
  const uint32_t pool = book_.life(worker.life).hello.layout.blocks;
  Equal(worker.name, "blocks in all", m.blocks.total(), pool);
  Equal(worker.name, "waiting, computing and pushing",
        uint64_t{m.waiting} + m.computing + m.pushing, worker.streams.size());
  const auto writes = book_.writes.find(worker.life);
  const bool reads = writes != book_.writes.end() && !writes->second.empty();
  if (worker.streams.empty() && !reads && !worker.stepping) {
    Equal(worker.name, "blocks used by nobody", m.blocks.used, 0);
  }
  Equal(worker.name, "requests", m.requests, worker.opened);
  Equal(worker.name, "pushes committed", m.committed, moved.pushes);
  Equal(worker.name, "steps", m.steps, worker.steps);
  uint64_t blocks = 0;
  for (const auto& [peer, pushed] : m.pushed) blocks += pushed.blocks;
  if (blocks > moved.blocks) {  // a write that ends with its link is not counted
    log_.Violation("metrics: ", worker.name, " reports ", blocks, " blocks pushed of ",
                   moved.blocks);
  }
}

void MetricsChecker::Check(const std::string& frontend, const AttemptsChecker& seen,
                           const router::Snapshot& snapshot) {
  const uint64_t waiting =
      std::accumulate(snapshot.waiting.begin(), snapshot.waiting.end(), uint64_t{0});
  Equal(frontend, "requests running and waiting", snapshot.running + waiting, seen.requests());
  Equal(frontend, "requests running", snapshot.running, seen.running());
  Equal(frontend, "prompt tokens waiting", snapshot.waiting_tokens, seen.waiting_tokens());
  const uint64_t ended =
      std::accumulate(snapshot.attempts.begin(), snapshot.attempts.end(), uint64_t{0});
  Equal(frontend, "attempts ended", ended, seen.attempts() - seen.open_attempts());
  const uint64_t by_writer =
      snapshot.attempts[static_cast<size_t>(router::AttemptResult::kPrefillFailed)];
  if (by_writer < seen.writer_faults()) {
    log_.Violation("metrics: ", frontend, " reports ", by_writer,
                   " attempts that failed by prefill, but ", seen.writer_faults(), " did");
  }
  Equal(frontend, "resumes", snapshot.resumes, seen.resumes());
  Equal(frontend, "protocol errors", snapshot.protocol_errors, 0);
}

}  // namespace baton::sim
