// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k9_ending.h"

#include "base/lease.h"

namespace baton::sim {

void K9Ending::Ticked(const WorkerFacts& worker, absl::Time now) {
  for (const auto& [id, stream] : worker.streams) {
    if (now >= stream.backstop) {
      log_.Violation("K9: ", worker.name, " still has ", ToString(stream.attempt),
                     " behind its back-stop");
    }
    const auto heard = worker.heard.find(stream.attempt.request.frontend);
    if (heard != worker.heard.end() && now - heard->second >= kDeadAfter) {
      log_.Violation("K9: ", worker.name, " still has ", ToString(stream.attempt),
                     ", whose front end is silent");
    }
  }
}

void K9Ending::Drains(const WorkerFacts& worker, absl::Time now, const K5Bounds::Limits& limits) {
  if (worker.drains == absl::InfiniteFuture()) return;
  const absl::Duration most =
      worker.role == Role::kDecode ? limits.decode.drain_max : limits.prefill.drain_max;
  if (now - worker.drains >= most && !worker.streams.empty()) {
    log_.Violation("K9: ", worker.name, " still has ", worker.streams.size(),
                   " attempts behind its drain");
  }
  for (const auto& [id, stream] : worker.streams) {
    if (!stream.behind_drain) continue;
    log_.Violation("K9: ", worker.name, " takes ", ToString(stream.attempt), " while it drains");
  }
}

void K9Ending::Answered(const WorkerFacts& worker) {
  for (const auto& [id, stream] : worker.streams) {
    if (!stream.revoke_asked || stream.settled) continue;
    log_.Violation("K9: ", worker.name, " does not answer Revoke of ", ToString(stream.attempt));
  }
}

void K9Ending::LetGo(const WorkerFacts& worker, const Book& book) {
  const auto unsettled = book.unsettled.find(worker.life);
  if (unsettled == book.unsettled.end()) return;
  const LifeFacts& life = book.life(worker.life);
  for (const Generation generation : unsettled->second) {
    const GrantFacts& grant = *book.Find({life.incarnation, generation});
    if (grant.state != GrantState::kOpen) continue;
    if (!grant.failed && life.links.contains(grant.ticket.writer)) continue;
    log_.Violation("K9: ", worker.name, " keeps generation ", generation.value(),
                   " open, though its writer ", grant.failed ? "failed" : "is gone");
  }
}

void K9Ending::Leaves(const WorkerFacts& worker) {
  if (worker.streams.empty()) return;
  log_.Violation("K9: ", worker.name, " leaves with ", worker.streams.size(), " attempts");
}

void K9Ending::Ended(const WorkerFacts& worker, const StreamFacts& stream,
                     const baton::Ended& ended, absl::Time now) {
  if (ended.why.code() == absl::StatusCode::kDeadlineExceeded && now < stream.backstop) {
    log_.Violation("K9: ", worker.name, " gives ", ToString(stream.attempt),
                   " up before its back-stop");
  }
  if (ended.preempted || !absl::IsUnavailable(ended.why) || stream.tokens == 0) return;
  // It runs: nothing but its front end's silence, or the worker's own death, ends it so.
  const auto heard = worker.heard.find(stream.attempt.request.frontend);
  const bool silent = heard == worker.heard.end() || now - heard->second >= kDeadAfter;
  if (silent || worker.must_exit) return;
  log_.Violation("K9: ", worker.name, " gives ", ToString(stream.attempt),
                 " up without a cause: ", ended.why.ToString());
}

}  // namespace baton::sim
