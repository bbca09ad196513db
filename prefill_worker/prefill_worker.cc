// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The prefill worker's tick: what comes in, what may start, which step runs.  How a job's
// KV leaves is in push.cc.
#include "prefill_worker/prefill_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "engine/sequence.h"

namespace baton::prefill {
namespace {

constexpr absl::Duration kBackstop = absl::Seconds(1);  // behind the request's deadline

size_t Index(Failure reason) { return static_cast<size_t>(reason); }
size_t Index(Stale kind) { return static_cast<size_t>(kind); }

}  // namespace

PrefillWorker::PrefillWorker(const Options& options, engine::Engine& engine,
                             kv::WriterTransport& transport, const WorkerRef& self,
                             const engine::KvLayout& layout)
    : options_(options),
      engine_(engine),
      transport_(transport),
      self_(self),
      layout_(layout),
      pool_(layout.blocks),
      cache_(options.prefix_cache, pool_),
      leases_(options.dead_after) {
  ENSURE(options.chunk_tokens > 0 && options.chunk_tokens % kBlockTokens == 0);
  ENSURE(options.sequences_max > 0 && options.inputs_max > 0);
  ENSURE(layout.blocks > 0 && layout.layers == engine.info().layers);
  context_max_ = engine.info().context_max;
  if (options.context_max > 0) context_max_ = std::min(context_max_, options.context_max);
}

bool PrefillWorker::Tick(absl::Time now) {
  ++ticks_;
  bool worked = PollTransport(now);
  worked |= PollEngine(now);
  worked |= HandleInputs(now);
  worked |= Expire(now);
  if (step_.empty()) {
    StartQueued(now);
    worked |= Step(now);
  }
  SendProgress(now);
  ENSURE(pool_.counts().total() == layout_.blocks);
  return worked;
}

void PrefillWorker::Receive(WorkerInput input) {
  if (inputs_.size() >= options_.inputs_max) {
    if (const auto* opened = std::get_if<StreamOpened>(&input)) {
      Refuse(opened->stream, absl::ResourceExhaustedError("too many messages wait"));
      return;
    }
    if (std::holds_alternative<FrontendAlive>(input)) return;
  }
  inputs_.push_back(std::move(input));
}

bool PrefillWorker::HandleInputs(absl::Time now) {
  const std::vector<WorkerInput> inputs = std::exchange(inputs_, {});
  for (const WorkerInput& input : inputs) {
    if (const auto* opened = std::get_if<StreamOpened>(&input)) {
      Open(*opened, now);
    } else if (std::holds_alternative<StreamMessage>(input)) {
      ++totals_.stale[Index(Stale::kStream)];  // nothing follows a Prefill
    } else if (const auto* closed = std::get_if<StreamClosed>(&input)) {
      const auto found = by_stream_.find(closed->stream);
      if (found == by_stream_.end()) continue;
      ++totals_.failures[Index(Failure::kCancelled)];
      End(jobs_.at(found->second), absl::CancelledError("the front end closed the stream"));
    } else if (const auto* alive = std::get_if<FrontendAlive>(&input)) {
      leases_.Alive(alive->frontend, now);
    } else {
      StartDraining(now);
    }
  }
  return !inputs.empty();
}

void PrefillWorker::StartDraining(absl::Time now) {
  if (draining_) return;
  draining_ = true;
  drain_until_ = now + options_.drain_max;
}

absl::Status PrefillWorker::CheckPrefill(const Prefill& prefill) const {
  RETURN_IF_ERROR(engine::CheckSequence(prefill.sequence, engine_.info().vocab_size, context_max_));
  const uint32_t tokens = prefill.sequence.size();
  if (BlocksFor(tokens) > pool_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat(tokens, " tokens need more blocks than the ",
                                                     pool_.size(), " of this worker"));
  }
  if (queued_ >= options_.queue_requests) {
    return absl::ResourceExhaustedError(absl::StrCat(queued_, " prompts wait already"));
  }
  if (queued_tokens_ + tokens > options_.queue_tokens) {
    return absl::ResourceExhaustedError(absl::StrCat(queued_tokens_, " tokens wait already"));
  }
  return absl::OkStatus();
}

absl::Status PrefillWorker::CheckTicket(const Prefill& prefill, const kv::Ticket& ticket) const {
  const uint32_t tokens = prefill.sequence.size();
  if (ticket.attempt != prefill.attempt || ticket.tokens != tokens) {
    return absl::InternalError("the ticket is for another attempt");
  }
  if (ticket.first_position % kBlockTokens != 0 || ticket.first_position >= tokens ||
      ticket.first_position / kBlockTokens + ticket.blocks.size() != BlocksFor(tokens)) {
    return absl::InternalError("the ticket's blocks do not cover the sequence's end");
  }
  if (ticket.writer != self_.incarnation) {
    return absl::UnavailableError("the ticket is for another incarnation of a writer");
  }
  if (by_grant_.contains(ticket.key)) {
    return absl::UnavailableError("the ticket is in use");  // rule 11
  }
  return absl::OkStatus();
}

void PrefillWorker::Open(const StreamOpened& opened, absl::Time now) {
  const auto* prefill = std::get_if<Prefill>(&opened.first);
  if (prefill == nullptr) {
    return Refuse(opened.stream, absl::InvalidArgumentError("this is a prefill worker"));
  }
  ++totals_.requests;
  ENSURE(!by_stream_.contains(opened.stream));
  leases_.Alive(prefill->attempt.request.frontend, now);
  if (draining_) return Refuse(opened.stream, absl::UnavailableError("draining"));
  const absl::Status fits = CheckPrefill(*prefill);
  if (!fits.ok()) return Refuse(opened.stream, fits);
  absl::StatusOr<kv::Ticket> ticket = kv::DecodeTicket(prefill->ticket);
  // Decode made the ticket and the front end only passed it on: garbage is no client's fault.
  const absl::Status valid =
      ticket.ok() ? CheckTicket(*prefill, *ticket) : absl::InternalError(ticket.status().message());
  if (!valid.ok()) {
    ++totals_.failures[Index(Failure::kBadTicket)];
    return Refuse(opened.stream, valid);
  }

  const uint64_t key = next_key_++;
  Job& job = jobs_[key];
  job.key = key;
  job.stream = opened.stream;
  job.attempt = prefill->attempt;
  job.sequence = prefill->sequence;
  job.ticket = *std::move(ticket);
  job.received = now;
  job.backstop = now + prefill->remaining + kBackstop;
  job.next_progress = now + options_.progress_interval;
  job.reported = moves_;
  by_stream_[job.stream] = key;
  by_grant_[job.ticket.key] = key;
  ++queued_;
  queued_tokens_ += job.sequence.size();
  transport_.Accept(job.ticket);
  BATON_FAILPOINT("prefill.accepted");
}

bool PrefillWorker::FailWhere(absl::FunctionRef<bool(const Job&)> predicate, Failure reason,
                              const absl::Status& why, bool preempted) {
  std::vector<uint64_t> keys;
  for (const auto& [key, job] : jobs_) {
    if (job.state != State::kEnding && predicate(job)) keys.push_back(key);
  }
  for (const uint64_t key : keys) Fail(jobs_.at(key), reason, why, preempted);
  return !keys.empty();
}

bool PrefillWorker::Expire(absl::Time now) {
  bool worked = false;
  for (const Incarnation gone : leases_.Expire(now)) {
    worked |= FailWhere([&](const Job& job) { return job.attempt.request.frontend == gone; },
                        Failure::kLease, absl::UnavailableError("the front end went silent"));
  }
  worked |= FailWhere([&](const Job& job) { return now >= job.backstop; }, Failure::kExpired,
                      absl::DeadlineExceededError("the request's deadline passed"));
  if (now >= drain_until_) {
    worked |= FailWhere([](const Job&) { return true; }, Failure::kDrained,
                        absl::UnavailableError("drained"), /*preempted=*/true);
  }
  return worked;
}

void PrefillWorker::OnReborn(const kv::Reborn& reborn) {
  ENSURE(reborn.incarnation != self_.incarnation);
  FailWhere([](const Job&) { return true; }, Failure::kRefused,
            absl::UnavailableError("the worker took a new incarnation"));
  self_.incarnation = reborn.incarnation;
}

// Starts just as many prompts as the next step has room for: a prompt that starts later may
// find more of its prefix in the cache.
void PrefillWorker::StartQueued(absl::Time now) {
  uint64_t ready_tokens = 0;
  for (auto& [key, job] : jobs_) {
    if (ready_tokens >= options_.chunk_tokens) break;
    if (job.state == State::kQueued) {
      if (active_ >= options_.sequences_max || !TryStart(job, now)) break;
    }
    if (job.state == State::kComputing) ready_tokens += job.sequence.size() - job.computed;
  }
}

bool PrefillWorker::TryStart(Job& job, absl::Time now) {
  ENSURE(job.state == State::kQueued && job.blocks.empty());
  const uint32_t tokens = job.sequence.size();
  cache_.ExtendChain(job.sequence, job.chain);
  const size_t hits_max = std::min<size_t>(job.chain.size(), engine::PrefixCache::HitsMax(tokens));
  std::vector<BlockIndex> blocks = cache_.Acquire(absl::MakeSpan(job.chain.data(), hits_max));
  const auto hits = static_cast<uint32_t>(blocks.size());
  const auto rest = cache_.Take(BlocksFor(tokens) - hits);
  if (!rest.has_value()) {
    cache_.Release(blocks);
    return false;
  }
  blocks.insert(blocks.end(), rest->begin(), rest->end());
  job.blocks = std::move(blocks);
  job.cached_tokens = job.computed = hits * kBlockTokens;
  job.state = State::kComputing;
  job.started = absl::InfiniteFuture();  // until its first chunk is submitted
  ++moves_;
  ++active_;
  --queued_;
  queued_tokens_ -= tokens;
  totals_.prompt_tokens_cached += job.cached_tokens;
  if (options_.pipelining) PostAllLayers(job, 0, hits, now);
  return true;
}

bool PrefillWorker::Step(absl::Time now) {
  std::vector<Prompt> prompts;
  for (const auto& [key, job] : jobs_) {
    if (job.state != State::kComputing) continue;
    prompts.push_back({key, job.computed, job.sequence.size()});
  }
  if (prompts.empty()) return false;
  step_ = PlanStep(prompts, options_.chunk_tokens);
  engine::Step step{.id = ++step_id_, .layer_events = true};
  for (const Chunk& chunk : step_) {
    Job& job = jobs_.at(chunk.key);
    ENSURE(!job.in_step && chunk.begin == job.computed);
    job.in_step = true;
    job.started = std::min(job.started, now);
    engine::Slice& slice = step.slices.emplace_back();
    slice.tag = chunk.key;
    slice.tokens = engine::TokensOf(job.sequence, chunk.begin, chunk.end);
    slice.position = chunk.begin;
    slice.block_table.assign(job.blocks.begin(), job.blocks.begin() + BlocksFor(chunk.end));
    if (chunk.end == job.sequence.size()) slice.sample = engine::NextSample(job.sequence);
  }
  ++totals_.steps;
  engine_.Submit(std::move(step));
  return true;
}

void PrefillWorker::SendProgress(absl::Time now) {
  for (auto& [key, job] : jobs_) {
    if (job.state == State::kEnding || now < job.next_progress) continue;
    job.next_progress = now + options_.progress_interval;
    // What stands still shows no life: the front end's time-out is for that.  A push lives by
    // its own writes; what is queued or computed, by whatever goes on here.
    const uint64_t moved = job.state == State::kPushing ? job.moved : moves_;
    if (moved <= job.reported) continue;
    job.reported = moved;
    Emit(job.stream, Progress{job.computed});
  }
}

void PrefillWorker::Emit(StreamId stream, FromWorker message, bool last) {
  outputs_.push_back({stream, std::move(message), last});
}

void PrefillWorker::Refuse(StreamId stream, const absl::Status& why) {
  ENSURE(!why.ok());
  ++totals_.refused;
  Emit(stream, Ended{why}, /*last=*/true);
}

std::vector<WorkerOutput> PrefillWorker::TakeOutputs() { return std::exchange(outputs_, {}); }

absl::Time PrefillWorker::NextWake() const {
  if (!inputs_.empty()) return absl::InfinitePast();
  absl::Time next = leases_.NextExpiry();
  for (const auto& [key, job] : jobs_) {
    if (job.state == State::kEnding) continue;
    next = std::min({next, job.backstop, job.next_progress, drain_until_});
  }
  return next;
}

bool PrefillWorker::drained() const {
  return draining_ && jobs_.empty() && inputs_.empty() && outputs_.empty();
}

WorkerStatus PrefillWorker::Status() const {
  WorkerStatus status;
  status.self = self_;
  status.role = Role::kPrefill;
  status.ticks = ticks_;
  status.ready = !draining_;
  status.draining = draining_;
  status.context_max = std::min(context_max_, pool_.size() * kBlockTokens);
  status.model_fingerprint = options_.model_fingerprint;
  status.blocks_total = pool_.size();
  status.blocks_available = pool_.available();
  uint64_t waiting = 0;
  for (const auto& [key, job] : jobs_) {
    if (job.state == State::kEnding) continue;
    ++status.attempts;
    waiting += job.sequence.size() - job.computed;
  }
  status.waiting_tokens = static_cast<uint32_t>(std::min<uint64_t>(waiting, UINT32_MAX));
  for (const auto& [incarnation, up] : links_) {
    status.links.push_back({up.peer, up.link.transport, up.link.cost, up.link.in_flight_bytes});
  }
  status.kv_layers = layout_.layers;
  status.kv_block_bytes = layout_.block_bytes() * layout_.layers;
  status.prompt_tokens_per_second = tokens_per_second_;
  return status;
}

Metrics PrefillWorker::metrics() const {
  Metrics metrics = totals_;
  metrics.blocks = pool_.counts();
  for (const auto& [key, job] : jobs_) {
    metrics.waiting += job.state == State::kQueued;
    metrics.computing += job.state == State::kComputing;
    metrics.pushing += job.state == State::kPushing;
  }
  return metrics;
}

}  // namespace baton::prefill
