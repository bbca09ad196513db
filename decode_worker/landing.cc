// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How pushed KV arrives, or does not: the decode worker's side of the transport.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/failpoint.h"
#include "decode_worker/decode_worker.h"

namespace baton::decode {

bool DecodeWorker::PollTransport(absl::Time) {
  std::vector<kv::TransportEvent> events;
  transport_.Poll(events);
  for (const kv::TransportEvent& event : events) {
    if (const auto* arrived = std::get_if<kv::CommitArrived>(&event)) {
      OnCommit(arrived->commit);
    } else if (const auto* quiet = std::get_if<kv::Quiet>(&event)) {
      if (!reservations_.Quiet(quiet->generation)) Count(Stale::kQuiet);
    } else if (const auto* failed = std::get_if<kv::WriterFailed>(&event)) {
      OnWriterFailed(*failed);
    } else if (const auto* up = std::get_if<kv::PeerUp>(&event)) {
      links_[up->peer.incarnation] = *up;
    } else if (const auto* measured = std::get_if<kv::PeerMeasured>(&event)) {
      const auto link = links_.find(measured->peer.incarnation);
      if (link != links_.end()) link->second.link = measured->link;
    } else if (const auto* down = std::get_if<kv::PeerDown>(&event)) {
      OnPeerDown(*down);
    } else if (const auto* exit = std::get_if<kv::MustExit>(&event)) {
      OnMustExit(*exit);
    } else {
      ENSURE(false);  // a writer's event
    }
  }
  return !events.empty();
}

const kv::PeerUp* DecodeWorker::LinkOf(const WorkerRef& writer) const {
  const auto found = links_.find(writer.incarnation);
  if (found == links_.end() || found->second.peer != writer) return nullptr;
  return &found->second;
}

absl::Status DecodeWorker::CheckCommit(const kv::Commit& commit, const Attempt& attempt,
                                       const Reservations::Grant& grant) const {
  const uint64_t bytes = grant.blocks.size() * layout_.layers * layout_.block_bytes();
  if (commit.attempt != attempt.id || commit.writer != grant.writer.incarnation) {
    return absl::UnavailableError("the commit names another attempt or writer");
  }
  if (commit.blocks != grant.blocks.size() || commit.layers != layout_.layers ||
      commit.bytes != bytes) {
    return absl::UnavailableError(
        absl::StrCat("the commit names ", commit.bytes, " of ", bytes, " bytes"));
  }
  if (commit.first_tokens.size() != 1 || commit.first_index != attempt.sequence.outputs.size()) {
    return absl::UnavailableError("the commit's tokens are not the attempt's next");
  }
  const TokenId id = commit.first_tokens[0].id;
  if (id < 0 || static_cast<uint32_t>(id) >= engine_.info().vocab_size) {
    return absl::UnavailableError("the commit's token is outside the vocabulary");
  }
  return absl::OkStatus();
}

// K4: a Commit that names nothing open is dropped.  K3: the sequence runs only if everything
// that its ticket covers is there.  Right or wrong, a Commit is the writer's last word.
void DecodeWorker::OnCommit(const kv::Commit& commit) {
  const Reservations::Grant* const grant = reservations_.Find(commit.key.generation);
  BATON_FAILPOINT_ABOUT("decode.commit_arrived", ToString(commit.attempt));
  if (grant == nullptr || commit.key.owner != self_.incarnation) return Count(Stale::kCommit);
  Attempt& attempt = attempts_.at(grant->attempt);
  ENSURE(attempt.state == State::kLanding && attempt.generation == commit.key.generation);
  const absl::Status valid = CheckCommit(commit, attempt, *grant);
  const WorkerRef writer = grant->writer;
  const std::vector<BlockIndex> landed = reservations_.Land(attempt.generation);
  attempt.blocks.insert(attempt.blocks.end(), landed.begin(), landed.end());
  attempt.state = State::kRunning;
  if (!valid.ok()) {
    Count(Failure::kBadCommit);
    return Fail(attempt, Failure::kBadCommit, valid);
  }
  Landed(attempt, commit, writer);
}

void DecodeWorker::Landed(Attempt& attempt, const kv::Commit& commit, const WorkerRef& writer) {
  attempt.computed = attempt.sequence.size();
  ENSURE(attempt.blocks.size() == BlocksFor(attempt.computed));
  OfferToCache(attempt);
  PromptStats& stats = attempt.stats;
  stats.pushed = true;
  stats.cached_tokens = commit.cached_tokens;
  stats.computed_tokens = commit.computed_tokens;
  stats.kv_bytes = commit.bytes;
  stats.kv_blocks = commit.blocks;
  stats.queued = commit.queued;
  stats.compute = commit.compute;
  stats.transfer = commit.transfer;
  stats.exposed = commit.exposed;
  stats.predicted = commit.predicted;
  if (const kv::PeerUp* link = LinkOf(writer)) stats.transport = link->link.transport;
  Received& received = totals_.received[{writer.worker, stats.transport}];
  received.bytes += commit.bytes;
  received.blocks += commit.blocks;
  ++received.pushes;
  Emit(attempt, stats);
  Deliver(attempt, commit.first_tokens[0]);
}

// Rule 7: a new life would need a new pool, so the process ends; its attempts are told.
void DecodeWorker::OnMustExit(const kv::MustExit& exit) {
  ENSURE(!exit.why.ok());
  fatal_ = exit.why;
  draining_ = true;
  FailWhere([](const Attempt&) { return true; }, Failure::kDrained,
            absl::UnavailableError("the decode worker was declared dead"));
}

void DecodeWorker::OnWriterFailed(const kv::WriterFailed& failed) {
  const Reservations::Grant* const grant = reservations_.Find(failed.generation);
  if (grant == nullptr) return Count(Stale::kWriterFailed);  // settled by something else
  const bool damaged = absl::IsDataLoss(failed.why);
  Fail(attempts_.at(grant->attempt), damaged ? Failure::kDamaged : Failure::kWriterFailed,
       absl::UnavailableError(absl::StrCat("prefill worker: ", failed.why.message())));
}

void DecodeWorker::OnPeerDown(const kv::PeerDown& down) {
  links_.erase(down.peer.incarnation);
  const std::vector<uint64_t> attempts = reservations_.AttemptsOf(down.peer.incarnation);
  for (const uint64_t key : attempts) {
    Fail(attempts_.at(key), Failure::kWriterLost,
         absl::UnavailableError("the link to the prefill worker broke"));
  }
}

}  // namespace baton::decode
