// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Who gets blocks, and who gives them back: admission, growth, preemption.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/failpoint.h"
#include "decode_worker/decode_worker.h"

namespace baton::decode {

uint32_t DecodeWorker::running() const {
  return static_cast<uint32_t>(attempts_.size()) - waiting_ - reservations_.open();
}

// First come, first served.  Where only the caps on tickets stand in the way, those may pass
// whom they do not concern: a writer that holds its whole share must not stop the others.
bool DecodeWorker::Admit(absl::Time now) {
  if (waiting_ == 0) return false;
  std::vector<uint64_t> keys;
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.state == State::kWaiting) keys.push_back(key);
  }
  ENSURE(keys.size() == waiting_);
  bool worked = false;
  Closed closed;
  for (const uint64_t key : keys) {
    if (running() + reservations_.open() >= options_.sequences_max) break;
    Attempt& attempt = attempts_.at(key);
    const Admission admission = TryAdmit(attempt, closed, now);
    if (admission == Admission::kNoBlocks) break;
    closed.tickets |= admission == Admission::kTicketsFull;
    if (admission == Admission::kWriterFull) closed.writers.insert(attempt.writer->worker);
    worked |= admission == Admission::kOver;
  }
  return worked;
}

DecodeWorker::Admission DecodeWorker::TryAdmit(Attempt& attempt, const Closed& closed,
                                               absl::Time now) {
  ENSURE(attempt.state == State::kWaiting && attempt.blocks.empty());
  const uint32_t tokens = attempt.sequence.size();
  cache_.ExtendChain(attempt.sequence, attempt.chain);
  const size_t hits_max =
      std::min<size_t>(attempt.chain.size(), engine::PrefixCache::HitsMax(tokens));
  std::vector<BlockIndex> hits = cache_.Acquire(absl::MakeSpan(attempt.chain.data(), hits_max));
  const auto cached = static_cast<uint32_t>(hits.size());
  const uint32_t missing = BlocksFor(tokens) - cached;

  // A prompt that no ticket could ever hold runs here, however long it is.
  const bool here = attempt.answered || !attempt.writer.has_value() ||
                    tokens - cached * kBlockTokens < attempt.colocate_below ||
                    !reservations_.EverFits(missing);
  if (!here && LinkOf(*attempt.writer) == nullptr) {
    cache_.Release(hits);
    Count(Failure::kWriterLost);
    Fail(attempt, Failure::kWriterLost, absl::UnavailableError("no link to the prefill worker"));
    return Admission::kOver;
  }
  const Admission room = Room(attempt, missing, here, closed, now);
  if (room != Admission::kOver) {
    cache_.Release(hits);
    return room;
  }
  if (here) {
    RunHere(attempt, std::move(hits));
  } else {
    GrantTicket(attempt, std::move(hits));
  }
  return Admission::kOver;
}

DecodeWorker::Admission DecodeWorker::Room(Attempt& attempt, uint32_t missing, bool here,
                                           const Closed& closed, absl::Time now) {
  if (!here && (closed.writers.contains(attempt.writer->worker) ||
                !reservations_.WriterFits(attempt.writer->worker, missing))) {
    attempt.writer_wait_until = std::min(attempt.writer_wait_until, now + options_.writer_wait_max);
    return Admission::kWriterFull;
  }
  attempt.writer_wait_until = absl::InfiniteFuture();
  if (!here && (closed.tickets || !reservations_.PoolFits(missing))) return Admission::kTicketsFull;
  // One block to grow for each that runs.
  if (pool_.available() < missing + running()) return Admission::kNoBlocks;
  return Admission::kOver;
}

void DecodeWorker::RunHere(Attempt& attempt, std::vector<BlockIndex> hits) {
  const uint32_t tokens = attempt.sequence.size();
  const auto cached = static_cast<uint32_t>(hits.size()) * kBlockTokens;
  const auto rest = cache_.Take(BlocksFor(tokens) - static_cast<uint32_t>(hits.size()));
  ENSURE(rest.has_value());
  --waiting_;
  waiting_tokens_ -= tokens;
  attempt.state = State::kRunning;
  attempt.computed = cached;
  attempt.offered = static_cast<uint32_t>(hits.size());
  attempt.blocks = std::move(hits);
  attempt.blocks.insert(attempt.blocks.end(), rest->begin(), rest->end());
  if (attempt.answered) return;
  attempt.answered = true;
  attempt.stats.cached_tokens = cached;
  totals_.prompt_tokens_cached += cached;
  Emit(attempt, Reserved{cached, tokens - cached, cached, {}});
}

void DecodeWorker::GrantTicket(Attempt& attempt, std::vector<BlockIndex> hits) {
  const uint32_t tokens = attempt.sequence.size();
  const auto cached = static_cast<uint32_t>(hits.size()) * kBlockTokens;
  auto blocks = cache_.Take(BlocksFor(tokens) - static_cast<uint32_t>(hits.size()));
  ENSURE(blocks.has_value());
  --waiting_;
  waiting_tokens_ -= tokens;
  attempt.generation = reservations_.Open(attempt.key, *attempt.writer, *blocks);
  attempt.state = State::kLanding;
  attempt.mixed = LinkOf(*attempt.writer)->link.mixed_numerics;
  attempt.computed = cached;
  attempt.offered = static_cast<uint32_t>(hits.size());
  attempt.blocks = std::move(hits);
  attempt.answered = true;
  kv::Ticket ticket;
  ticket.key = {self_.incarnation, attempt.generation};
  ticket.writer = attempt.writer->incarnation;
  ticket.attempt = attempt.id;
  ticket.first_position = cached;
  ticket.tokens = tokens;
  ticket.blocks = *std::move(blocks);
  transport_.Grant(ticket);
  BATON_FAILPOINT_ABOUT("decode.reserved",
                        absl::StrCat(ToString(attempt.id), " ", attempt.writer->worker));
  Emit(attempt, Reserved{cached, tokens - cached, cached, kv::Encode(ticket)});
}

// Oldest first: what an older sequence lacks is taken from the youngest.
void DecodeWorker::Grow() {
  ENSURE(step_.empty());
  std::vector<uint64_t> keys;
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.state != State::kRunning) continue;
    if (attempt.blocks.size() < BlocksFor(attempt.sequence.size())) keys.push_back(key);
  }
  for (const uint64_t key : keys) {
    const auto found = attempts_.find(key);
    if (found == attempts_.end() || found->second.state != State::kRunning) continue;
    GrowOne(found->second);
  }
}

void DecodeWorker::GrowOne(Attempt& attempt) {
  const uint32_t needed = BlocksFor(attempt.sequence.size());
  ENSURE(!attempt.blocks.empty() && needed == attempt.blocks.size() + 1);
  for (;;) {
    if (const auto taken = cache_.Take(1, attempt.blocks.back())) {
      attempt.blocks.push_back(taken->front());
      return;
    }
    Attempt* const victim = YoungestRunning();
    ENSURE(victim != nullptr);
    if (victim->key > attempt.key) {
      Preempt(*victim);
      continue;
    }
    // The youngest itself.  With older ones it gives way; alone it waits for landings, which
    // then are younger and running; with neither, others hold the memory for who knows how long.
    ENSURE(victim == &attempt);
    if (running() > 1) {
      Preempt(attempt);
    } else if (reservations_.open() == 0) {
      ++totals_.preemptions;
      Fail(attempt, Failure::kExpired,
           absl::ResourceExhaustedError("too many blocks are in quarantine"), /*preempted=*/true);
    }
    return;
  }
}

DecodeWorker::Attempt* DecodeWorker::YoungestRunning() {
  for (auto it = attempts_.rbegin(); it != attempts_.rend(); ++it) {
    if (it->second.state == State::kRunning) return &it->second;
  }
  return nullptr;
}

void DecodeWorker::Preempt(Attempt& attempt) {
  ENSURE(attempt.state == State::kRunning && !attempt.in_step);
  ++totals_.preemptions;
  const uint32_t tokens = attempt.sequence.size();
  if (draining_ || tokens > options_.recompute_here_max) {
    Emit(attempt, Ended{absl::UnavailableError("preempted: no blocks"), /*preempted=*/true},
         /*last=*/true);
    return Remove(attempt);
  }
  cache_.Release(std::exchange(attempt.blocks, {}));
  attempt.computed = attempt.offered = 0;
  attempt.mixed = false;  // all of it is computed here again
  attempt.state = State::kWaiting;
  ++waiting_;
  waiting_tokens_ += tokens;
}

// Full blocks become shareable as soon as they are computed.
void DecodeWorker::OfferToCache(Attempt& attempt) {
  const uint32_t full = attempt.computed / kBlockTokens;
  if (attempt.mixed || full <= attempt.offered) return;
  cache_.ExtendChain(attempt.sequence, attempt.chain);
  for (; attempt.offered < full && attempt.offered < attempt.chain.size(); ++attempt.offered) {
    cache_.Insert(attempt.chain[attempt.offered], attempt.blocks.at(attempt.offered));
  }
}

}  // namespace baton::decode
