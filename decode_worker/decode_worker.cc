// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The decode worker's tick: what comes in, which step runs, what is said.  How an attempt
// gets its blocks, and loses them, is in memory.cc; how pushed KV arrives in landing.cc.
#include "decode_worker/decode_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "engine/sequence.h"

namespace baton::decode {
namespace {

constexpr absl::Duration kBackstop = absl::Seconds(1);  // behind the request's deadline

uint32_t WriterBlocksMax(const Options& options, uint32_t blocks) {
  return options.writer_blocks_max > 0 ? options.writer_blocks_max : std::max(1u, blocks / 4);
}

}  // namespace

DecodeWorker::DecodeWorker(const Options& options, engine::Engine& engine,
                           kv::OwnerTransport& transport, const WorkerRef& self,
                           const engine::KvLayout& layout)
    : options_(options),
      engine_(engine),
      transport_(transport),
      self_(self),
      layout_(layout),
      pool_(layout.blocks),
      cache_(options.prefix_cache, pool_),
      reservations_(pool_, WriterBlocksMax(options, layout.blocks)),
      leases_(options.dead_after),
      pace_(options.step_percent) {
  ENSURE(options.batch_tokens > 0 && options.sequences_max > 0 && options.inputs_max > 0);
  ENSURE(layout.blocks > 0 && layout.layers == engine.info().layers);
  // The pool holds any single sequence, so the oldest one can always be finished.
  context_max_ =
      std::min<uint64_t>(engine.info().context_max, uint64_t{layout.blocks} * kBlockTokens);
  if (options.context_max > 0) context_max_ = std::min(context_max_, options.context_max);
}

bool DecodeWorker::Tick(absl::Time now) {
  ++ticks_;
  bool worked = PollTransport(now);
  worked |= PollEngine(now);
  worked |= HandleInputs(now);
  worked |= Expire(now);
  if (step_.empty()) Grow();
  worked |= Admit(now);
  if (step_.empty()) worked |= Step(now);
  ENSURE(pool_.counts().total() == layout_.blocks);
  ENSURE(pool_.counts().reserved + pool_.counts().quarantined == reservations_.blocks());
  return worked;
}

void DecodeWorker::Receive(WorkerInput input) {
  if (inputs_.size() >= options_.inputs_max) {
    if (const auto* opened = std::get_if<StreamOpened>(&input)) {
      Refuse(opened->stream, absl::ResourceExhaustedError("too many messages wait"));
      return;
    }
    if (std::holds_alternative<FrontendAlive>(input)) return;
  }
  inputs_.push_back(std::move(input));
}

bool DecodeWorker::HandleInputs(absl::Time now) {
  const std::vector<WorkerInput> inputs = std::exchange(inputs_, {});
  for (const WorkerInput& input : inputs) {
    if (const auto* opened = std::get_if<StreamOpened>(&input)) {
      Open(*opened, now);
    } else if (const auto* said = std::get_if<StreamMessage>(&input)) {
      if (std::holds_alternative<Revoke>(said->message)) {
        OnRevoke(said->stream);
      } else {
        Count(Stale::kStream);  // a stream opens one attempt only
      }
    } else if (const auto* closed = std::get_if<StreamClosed>(&input)) {
      const auto found = by_stream_.find(closed->stream);
      if (found == by_stream_.end()) continue;
      Attempt& attempt = attempts_.at(found->second);
      if (attempt.state == State::kLanding) Count(Failure::kCancelled);
      Remove(attempt);
    } else if (const auto* alive = std::get_if<FrontendAlive>(&input)) {
      leases_.Alive(alive->frontend, now);
    } else {
      StartDraining(now);
    }
  }
  return !inputs.empty();
}

absl::Status DecodeWorker::CheckReserve(const Reserve& reserve) const {
  // The front end chose an earlier life: what it knew of it, its weights above all, may differ.
  if (reserve.decode != self_.incarnation) {
    return absl::UnavailableError("the attempt is for another incarnation of a decode");
  }
  const Sequence& sequence = reserve.sequence;
  RETURN_IF_ERROR(engine::CheckSequence(sequence, engine_.info().vocab_size, context_max_));
  ENSURE(BlocksFor(sequence.size()) <= pool_.size());
  if (waiting_ >= options_.queue_requests) {
    return absl::ResourceExhaustedError(absl::StrCat(waiting_, " sequences wait already"));
  }
  if (waiting_tokens_ + sequence.size() > options_.queue_tokens) {
    return absl::ResourceExhaustedError(absl::StrCat(waiting_tokens_, " tokens wait already"));
  }
  if (by_id_.contains(reserve.attempt)) return absl::InternalError("the attempt exists already");
  return absl::OkStatus();
}

void DecodeWorker::Open(const StreamOpened& opened, absl::Time now) {
  const auto* reserve = std::get_if<Reserve>(&opened.first);
  if (reserve == nullptr) {
    return Refuse(opened.stream, absl::InvalidArgumentError("this is a decode worker"));
  }
  ++totals_.requests;
  ENSURE(!by_stream_.contains(opened.stream));
  leases_.Alive(reserve->attempt.request.frontend, now);
  if (draining_) return Refuse(opened.stream, absl::UnavailableError("draining"));
  const absl::Status fits = CheckReserve(*reserve);
  if (!fits.ok()) return Refuse(opened.stream, fits);

  const uint64_t key = next_key_++;
  Attempt& attempt = attempts_[key];
  attempt.key = key;
  attempt.stream = opened.stream;
  attempt.id = reserve->attempt;
  attempt.sequence = reserve->sequence;
  attempt.writer = reserve->writer;
  attempt.colocate_below = reserve->colocate_below;
  attempt.received = now;
  attempt.started = absl::InfiniteFuture();  // until its first chunk is submitted
  attempt.backstop = now + reserve->remaining + kBackstop;
  by_stream_[attempt.stream] = key;
  by_id_[attempt.id] = key;
  ++waiting_;
  waiting_tokens_ += attempt.sequence.size();
}

// Committed wins: an attempt whose first token was sent goes on.
void DecodeWorker::OnRevoke(StreamId stream) {
  const auto found = by_stream_.find(stream);
  if (found == by_stream_.end()) return Count(Stale::kStream);
  Attempt& attempt = attempts_.at(found->second);
  if (attempt.first_sent) return Emit(attempt, Settled{.committed = true});
  Emit(attempt, Settled{.committed = false});
  Fail(attempt, Failure::kRevoked, absl::CancelledError("revoked"));
}

void DecodeWorker::StartDraining(absl::Time now) {
  if (draining_) return;
  draining_ = true;
  drain_until_ = now + options_.drain_max;
  FailWhere([](const Attempt& attempt) { return attempt.state == State::kWaiting; },
            Failure::kDrained, absl::UnavailableError("draining"), /*preempted=*/true);
}

bool DecodeWorker::FailWhere(absl::FunctionRef<bool(const Attempt&)> predicate, Failure reason,
                             const absl::Status& why, bool preempted) {
  std::vector<uint64_t> keys;
  for (const auto& [key, attempt] : attempts_) {
    if (predicate(attempt)) keys.push_back(key);
  }
  for (const uint64_t key : keys) Fail(attempts_.at(key), reason, why, preempted);
  return !keys.empty();
}

bool DecodeWorker::Expire(absl::Time now) {
  bool worked = false;
  for (const Incarnation gone : leases_.Expire(now)) {
    worked |= FailWhere([&](const Attempt& attempt) { return attempt.id.request.frontend == gone; },
                        Failure::kLease, absl::UnavailableError("the front end went silent"));
  }
  const auto expired = [&](const Attempt& attempt) { return now >= attempt.backstop; };
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.state == State::kLanding && expired(attempt)) ++totals_.reservations_expired;
  }
  worked |= FailWhere(expired, Failure::kExpired,
                      absl::DeadlineExceededError("the request's deadline passed"));
  worked |= FailWhere([&](const Attempt& attempt) { return now >= attempt.writer_wait_until; },
                      Failure::kWriterLost,
                      absl::ResourceExhaustedError("the writer's share of the blocks is in use"));
  if (now >= drain_until_) {
    worked |= FailWhere([](const Attempt&) { return true; }, Failure::kDrained,
                        absl::UnavailableError("drained"), /*preempted=*/true);
  }
  return worked;
}

bool DecodeWorker::Step(absl::Time now) {
  std::vector<Row> rows;
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.state != State::kRunning) continue;
    if (attempt.blocks.size() < BlocksFor(attempt.sequence.size())) continue;  // waits to grow
    rows.push_back({key, attempt.computed, attempt.sequence.size()});
  }
  if (rows.empty()) return false;
  step_ = PlanBatch(rows, options_.batch_tokens, pace_.PromptTokensMax());
  step_began_ = now;
  step_decoding_ = step_prompt_tokens_ = 0;
  engine::Step step{.id = ++step_id_};
  for (const Piece& piece : step_) {
    Attempt& attempt = attempts_.at(piece.key);
    ENSURE(!attempt.in_step && piece.begin == attempt.computed);
    attempt.in_step = true;
    attempt.started = std::min(attempt.started, now);
    engine::Slice& slice = step.slices.emplace_back();
    slice.tag = piece.key;
    slice.tokens = engine::TokensOf(attempt.sequence, piece.begin, piece.end);
    slice.position = piece.begin;
    slice.block_table.assign(attempt.blocks.begin(), attempt.blocks.begin() + BlocksFor(piece.end));
    const bool decodes = piece.end == attempt.sequence.size() && piece.end - piece.begin == 1;
    if (decodes) {
      ++step_decoding_;
    } else {
      step_prompt_tokens_ += piece.end - piece.begin;
    }
    if (piece.end == attempt.sequence.size()) slice.sample = engine::NextSample(attempt.sequence);
  }
  ++totals_.steps;
  engine_.Submit(std::move(step));
  return true;
}

bool DecodeWorker::PollEngine(absl::Time now) {
  std::vector<engine::Event> events;
  engine_.Poll(events);
  for (const engine::Event& event : events) {
    ENSURE(std::holds_alternative<engine::StepDone>(event));  // layers are not asked for
    OnStepDone(std::get<engine::StepDone>(event), now);
  }
  return !events.empty();
}

void DecodeWorker::OnStepDone(const engine::StepDone& done, absl::Time now) {
  ENSURE(!step_.empty() && done.step == step_id_);
  const std::vector<Piece> pieces = std::exchange(step_, {});
  if (done.status.ok()) pace_.Took(step_decoding_, step_prompt_tokens_, now - step_began_);
  cache_.Release(std::exchange(after_step_, {}));
  for (const Piece& piece : pieces) {
    const auto found = attempts_.find(piece.key);
    if (found == attempts_.end()) continue;  // ended while the step ran
    Attempt& attempt = found->second;
    ENSURE(attempt.in_step && attempt.state == State::kRunning);
    attempt.in_step = false;
    if (!done.status.ok()) {
      Emit(attempt, Ended{Annotate(done.status, "model step")}, /*last=*/true);
      Remove(attempt);
      continue;
    }
    ENSURE(attempt.computed == piece.begin);
    attempt.computed = piece.end;
    if (!attempt.first_sent) {
      attempt.stats.computed_tokens += piece.end - piece.begin;
      totals_.prompt_tokens_computed += piece.end - piece.begin;
    }
    OfferToCache(attempt);
  }
  for (const engine::Sampled& sampled : done.sampled) OnSampled(sampled, now);
}

void DecodeWorker::OnSampled(const engine::Sampled& sampled, absl::Time now) {
  const auto found = attempts_.find(sampled.tag);
  if (found == attempts_.end()) return;
  Attempt& attempt = found->second;
  ENSURE(attempt.computed == attempt.sequence.size());
  if (!attempt.first_sent) {
    attempt.stats.queued = attempt.started - attempt.received;
    attempt.stats.compute = now - attempt.started;
    Emit(attempt, attempt.stats);
  }
  Deliver(attempt, sampled.token);
}

void DecodeWorker::Deliver(Attempt& attempt, OutputToken token) {
  Sequence& sequence = attempt.sequence;
  ENSURE(sequence.remaining_tokens > 0 && attempt.state == State::kRunning);
  const TokenId id = token.id;
  const auto index = static_cast<uint32_t>(sequence.outputs.size());
  sequence.outputs.push_back(id);
  --sequence.remaining_tokens;
  attempt.first_sent = true;
  ++totals_.generation_tokens;
  Emit(attempt, Token{index, std::move(token)});
  if (index == 0) BATON_FAILPOINT_ABOUT("decode.first_token", ToString(attempt.id));
  if (index == 3) BATON_FAILPOINT_ABOUT("decode.fourth_token", ToString(attempt.id));
  const bool stop =
      std::find(sequence.stop_ids.begin(), sequence.stop_ids.end(), id) != sequence.stop_ids.end();
  const bool full = sequence.remaining_tokens == 0 || sequence.size() >= context_max_;
  if (!stop && !full) return;
  ++totals_.finished;
  BATON_FAILPOINT("decode.finished");
  Emit(attempt, Finished{stop ? Finished::Reason::kStop : Finished::Reason::kLength},
       /*last=*/true);
  Remove(attempt);
}

void DecodeWorker::Say(StreamId stream, FromWorker message, bool last) {
  WorkerOutput& output = outputs_.emplace_back();
  output.stream = stream;
  output.message = std::move(message);
  output.last = last;
}

void DecodeWorker::Emit(const Attempt& attempt, FromWorker message, bool last) {
  Say(attempt.stream, std::move(message), last);
}

void DecodeWorker::Refuse(StreamId stream, const absl::Status& why) {
  ENSURE(!why.ok());
  ++totals_.refused;
  Say(stream, Ended{why}, /*last=*/true);
}

void DecodeWorker::Fail(Attempt& attempt, Failure reason, const absl::Status& why, bool preempted) {
  ENSURE(!why.ok());
  if (attempt.state == State::kLanding) Count(reason);
  Emit(attempt, Ended{why, preempted}, /*last=*/true);
  Remove(attempt);
}

void DecodeWorker::Remove(Attempt& attempt) {
  switch (attempt.state) {
    case State::kWaiting:
      ENSURE(waiting_ > 0 && attempt.blocks.empty());
      --waiting_;
      waiting_tokens_ -= attempt.sequence.size();
      break;
    case State::kLanding:
      reservations_.Revoke(attempt.generation);
      transport_.Revoke(attempt.generation);
      break;
    case State::kRunning:
      break;
  }
  if (attempt.in_step) {
    after_step_.insert(after_step_.end(), attempt.blocks.begin(), attempt.blocks.end());
  } else {
    cache_.Release(attempt.blocks);
  }
  ENSURE(by_stream_.erase(attempt.stream) == 1);
  ENSURE(by_id_.erase(attempt.id) == 1);
  attempts_.erase(attempt.key);
}

std::vector<WorkerOutput> DecodeWorker::TakeOutputs() { return std::exchange(outputs_, {}); }

absl::Time DecodeWorker::NextWake() const {
  if (!inputs_.empty()) return absl::InfinitePast();
  absl::Time next = leases_.NextExpiry();
  for (const auto& [key, attempt] : attempts_) {
    next = std::min({next, attempt.backstop, attempt.writer_wait_until, drain_until_});
  }
  return next;
}

bool DecodeWorker::drained() const {
  return draining_ && attempts_.empty() && step_.empty() && inputs_.empty() && outputs_.empty();
}

WorkerStatus DecodeWorker::Status() const {
  WorkerStatus status;
  status.self = self_;
  status.role = Role::kDecode;
  status.ticks = ticks_;
  status.ready = !draining_;
  status.draining = draining_;
  status.context_max = context_max_;
  status.model_fingerprint = options_.model_fingerprint;
  status.blocks_total = pool_.size();
  status.blocks_available = pool_.available();
  status.attempts = static_cast<uint32_t>(attempts_.size());
  uint64_t waiting = waiting_tokens_;
  for (const auto& [key, attempt] : attempts_) {
    if (attempt.state == State::kRunning) waiting += attempt.sequence.size() - attempt.computed - 1;
  }
  status.waiting_tokens = static_cast<uint32_t>(std::min<uint64_t>(waiting, UINT32_MAX));
  for (const auto& [incarnation, up] : links_) {
    status.links.push_back({up.peer, up.link.transport, up.link.cost, up.link.in_flight_bytes});
  }
  status.kv_layers = layout_.layers;
  status.kv_block_bytes = layout_.block_bytes() * layout_.layers;
  return status;
}

Metrics DecodeWorker::metrics() const {
  Metrics metrics = totals_;
  metrics.blocks = pool_.counts();
  metrics.waiting = waiting_;
  metrics.landing = reservations_.open();
  metrics.running = running();
  return metrics;
}

}  // namespace baton::decode
