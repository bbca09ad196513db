// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "base/ensure.h"
#include "router/dispatcher_impl.h"

namespace baton::router {
namespace {

AttemptResult ResultOf(Blame blame) {
  switch (blame) {
    case Blame::kNobody:
    case Blame::kWriterBack:
      return AttemptResult::kPreempted;
    case Blame::kFull:
      return AttemptResult::kRefused;
    case Blame::kPrefill:
      return AttemptResult::kPrefillFailed;
    case Blame::kDecode:
    case Blame::kRequest:
      break;
  }
  return AttemptResult::kDecodeFailed;
}

Outcome OutcomeOf(const absl::Status& error) {
  return error.code() == absl::StatusCode::kDeadlineExceeded ? Outcome::kTimeout : Outcome::kError;
}

bool WaitsForReservation(Phase phase) {
  return phase == Phase::kQueued || phase == Phase::kReserving;
}

}  // namespace

// ── opening ─────────────────────────────────────────────────────────────────────────

Peers::Need Dispatcher::Impl::NeedOf(const Request& request) const {
  const uint32_t tokens = request.sequence.size();
  return {.tokens = tokens,
          .tokens_end = uint64_t{tokens} + request.sequence.remaining_tokens,
          .writer_wanted = peers_.has_prefill() && tokens >= options_.colocate_below_tokens &&
                           WriterAllowed(request.tried, {options_.attempts_max, options_.resume}),
          .rotation = request.number,
          .fingerprint = request.fingerprint,
          .hashes = &request.hashes,
          .avoided = &request.avoided};
}

void Dispatcher::Impl::Open(Request& request, const Placement& placement) {
  // Rule 10: no attempt opens with nothing to draw.
  ENSURE(request.phase == Phase::kQueued && request.sequence.remaining_tokens > 0);
  Attempt& attempt = request.attempt = Attempt{};
  attempt.decode = placement.decode;
  attempt.decode_life = peers_.at(placement.decode).health.status().self.incarnation;
  Reserve reserve{.attempt = {{self_, request.number}, ++request.attempts_opened},
                  .decode = attempt.decode_life,
                  .sequence = request.sequence,
                  .remaining = request.deadline - now_,
                  .colocate_below = options_.colocate_below_tokens};
  if (placement.prefill) {
    const WorkerRef& writer = peers_.at(*placement.prefill).health.status().self;
    attempt.writer = placement.prefill;
    attempt.writer_life = writer.incarnation;
    reserve.writer = writer;
  }
  attempt.decode_stream = client_.Open(placement.decode, std::move(reserve));
  streams_[attempt.decode_stream] = {request.number, true};
  ++request.tried.attempts;
  request.stages.Opened(now_);
  peers_.ReserveSent(placement.decode);
  ++peers_.at(placement.decode).attempts;
  peers_.Remember(request.hashes, placement);
  Load(request, placement.prefill.value_or(placement.decode), request.sequence.size());
  SetPhase(request, Phase::kReserving);
}

void Dispatcher::Impl::OnReserved(Request& request, Reserved& reserved) {
  if (request.phase != Phase::kReserving) {
    FailProtocol(request, "decode reserved twice");
    return;
  }
  request.stages.Reserved(now_);
  peers_.ReserveAnswered(request.attempt.decode, true);
  if (request.next_index() > 0) {
    ++request.resumes;
    ++resumes_;
  }
  if (!reserved.ticket.empty()) {
    StartPrefill(request, std::move(reserved.ticket));
    return;
  }
  const bool planned_pushed =
      request.was_pushed ||
      (peers_.has_prefill() && reserved.uncached_tokens >= options_.colocate_below_tokens);
  SetPath(request, planned_pushed ? Path::kFallback : Path::kColocated);
  Load(request, request.attempt.decode, reserved.uncached_tokens);
  SetPhase(request, Phase::kComputing);
}

void Dispatcher::Impl::StartPrefill(Request& request, std::vector<uint8_t> ticket) {
  Attempt& attempt = request.attempt;
  if (!attempt.writer) {
    SetPhase(request, Phase::kComputing);
    FailProtocol(request, "decode sent a ticket that nobody asked for");
    return;
  }
  request.was_pushed = true;
  SetPath(request, Path::kDisaggregated);
  SetPhase(request, Phase::kPrefilling);
  const Health& writer = peers_.at(*attempt.writer).health;
  const bool there = writer.state() == PeerState::kAlive || writer.state() == PeerState::kSuspect;
  if (!there || writer.status().self.incarnation != attempt.writer_life) {
    WriterFailed(request, {Blame::kPrefill, absl::UnavailableError("prefill went away")});
    return;
  }
  attempt.writer_stream = client_.Open(
      *attempt.writer, Prefill{.attempt = {{self_, request.number}, request.attempts_opened},
                               .sequence = request.sequence,
                               .remaining = request.deadline - now_,
                               .ticket = std::move(ticket)});
  attempt.writer_open = true;
  streams_[attempt.writer_stream] = {request.number, false};
  attempt.timeout = now_ + options_.progress_timeout;
  Arm(request);
}

void Dispatcher::Impl::SetPath(Request& request, Path path) {
  if (request.next_index() > 0 || path == request.path) return;  // the first token's path stays
  request.path = path;
  outputs_.push_back(
      Placed{.client = request.client, .request = {self_, request.number}, .path = path});
}

// ── what workers say ────────────────────────────────────────────────────────────────

void Dispatcher::Impl::FromDecode(Request& request, FromWorker& message) {
  if (auto* reserved = std::get_if<Reserved>(&message)) {
    OnReserved(request, *reserved);
  } else if (auto* stats = std::get_if<PromptStats>(&message)) {
    request.attempt.stats = std::move(*stats);
  } else if (auto* token = std::get_if<Token>(&message)) {
    OnToken(request, *token);
  } else if (const auto* settled = std::get_if<Settled>(&message)) {
    OnSettled(request, settled->committed);
  } else if (std::get_if<Finished>(&message) != nullptr) {
    // Every complete answer ended with its last id (rule 10): something is missing.
    FailProtocol(request, "decode finished too early");
  } else if (const auto* ended = std::get_if<Ended>(&message)) {
    OnDecodeEnded(request, *ended);
  }
}

void Dispatcher::Impl::FromPrefill(Request& request, FromWorker& message) {
  Attempt& attempt = request.attempt;
  if (std::get_if<Progress>(&message) != nullptr) {
    attempt.timeout = now_ + options_.progress_timeout;
    Arm(request);
  } else if (std::get_if<PrefillDone>(&message) != nullptr) {
    // Its last word; the Commit is on its way to decode.
    attempt.prefill_done = true;
    attempt.timeout = now_ + options_.progress_timeout;
    CloseWriter(request);
    Arm(request);
  } else if (const auto* ended = std::get_if<Ended>(&message)) {
    WriterFailed(request, ClassifyPrefillEnded(ended->why, ended->preempted));
  } else if (std::get_if<Finished>(&message) == nullptr) {
    ++protocol_errors_;
  }
}

void Dispatcher::Impl::OnToken(Request& request, Token& token) {
  if (request.phase == Phase::kReserving || token.index > request.next_index()) {
    FailProtocol(request, "decode skipped an output");
    return;
  }
  if (token.index < request.next_index()) {  // K10: each index once
    ++protocol_errors_;
    return;
  }
  if (token.index == 0) {
    request.prompt = request.attempt.stats;
    request.stages.FirstToken(now_, request.prompt);
    request.fingerprint = peers_.at(request.attempt.decode).health.status().model_fingerprint;
  }
  if (request.phase != Phase::kDecoding) {
    // A token tells that the Commit was accepted, whatever was asked meanwhile.
    CloseWriter(request);
    Unload(request);
    request.attempt.timeout = absl::InfiniteFuture();
    SetPhase(request, Phase::kDecoding);
  }
  Sequence& sequence = request.sequence;
  const TokenId id = token.token.id;
  outputs_.push_back(Delivered{request.client, token.index, std::move(token.token)});
  sequence.outputs.push_back(id);
  --sequence.remaining_tokens;
  const auto& stop_ids = sequence.stop_ids;
  if (std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end()) {
    CloseAttempt(request, AttemptResult::kCompleted);
    End(request, Outcome::kStop, absl::OkStatus());
  } else if (sequence.remaining_tokens == 0) {
    CloseAttempt(request, AttemptResult::kCompleted);
    End(request, Outcome::kLength, absl::OkStatus());
  }
}

void Dispatcher::Impl::OnSettled(Request& request, bool committed) {
  if (request.phase != Phase::kSettling) {  // a token came first and said as much
    if (request.phase != Phase::kDecoding || !committed) ++protocol_errors_;
    return;
  }
  if (committed) {
    request.attempt.timeout = absl::InfiniteFuture();
    SetPhase(request, Phase::kLanding);
  } else {
    Fail(request, Failure(request.attempt.failure));
  }
}

void Dispatcher::Impl::OnDecodeEnded(Request& request, const Ended& ended) {
  if (request.phase == Phase::kSettling) {  // as good an answer to Revoke as any
    Fail(request, Failure(request.attempt.failure));
    return;
  }
  Fail(request, ClassifyDecodeEnded(ended.why, {.reserving = request.phase == Phase::kReserving,
                                                .pushing = request.phase == Phase::kPrefilling,
                                                .preempted = ended.preempted}));
}

// The push will not end by itself, or is not known to: decode is asked what became of it.
void Dispatcher::Impl::WriterFailed(Request& request, Failure failure) {
  CloseWriter(request);
  if (request.phase != Phase::kPrefilling) return;
  request.attempt.failure = std::move(failure);
  request.attempt.timeout = now_ + options_.settle_timeout;
  client_.Send(request.attempt.decode_stream, Revoke{});
  SetPhase(request, Phase::kSettling);
}

// ── ends ────────────────────────────────────────────────────────────────────────────

void Dispatcher::Impl::Fail(Request& request, const Failure& failure) {
  const Attempt attempt = request.attempt;
  CloseAttempt(request, ResultOf(failure.blame));
  Tried& tried = request.tried;
  tried.tokens_sent = request.next_index() > 0;
  if (!Counts(failure.blame)) --tried.attempts;
  switch (failure.blame) {
    case Blame::kFull:
      ++request.refusals;
      peers_.RefusedFull(attempt.decode, now_);
      break;
    case Blame::kPrefill:
    case Blame::kWriterBack:
      if (failure.blame == Blame::kPrefill) ++tried.prefill_failures;
      if (attempt.writer) Avoid(request, *attempt.writer);
      break;
    case Blame::kNobody:
    case Blame::kDecode:
    case Blame::kRequest:
      Avoid(request, attempt.decode);
      break;
  }
  if (failure.blame == Blame::kFull) {
    request.stages.Refused(now_);
  } else {
    request.stages.Failed(now_);
  }
  const absl::Status may = MayRetry(failure, tried, {options_.attempts_max, options_.resume});
  if (!may.ok()) {
    End(request, OutcomeOf(may), may);
    return;
  }
  request.hashes = LeadingBlockHashes(request.sequence);
}

void Dispatcher::Impl::FailProtocol(Request& request, const char* what) {
  ++protocol_errors_;
  Fail(request, {Blame::kDecode, absl::UnavailableError(what)});
}

void Dispatcher::Impl::End(Request& request, Outcome outcome, const absl::Status& status) {
  CloseAttempt(request, AttemptResult::kCancelled);
  const bool later = absl::IsUnavailable(status) || absl::IsResourceExhausted(status);
  Over over;
  over.client = request.client;
  over.request = {self_, request.number};
  over.outcome = outcome;
  over.status = status;
  if (later) over.retry_after = options_.retry_after;
  over.path = request.path;
  over.attempts = request.attempts_opened - request.refusals;
  over.resumes = request.resumes;
  over.prompt = request.prompt;
  over.stages = request.stages.Over(now_);
  outputs_.push_back(std::move(over));
  queued_.erase(request.number);
  waiting_tokens_ -= request.sequence.prompt.size();
  timers_.erase({request.wake, request.number});
  by_client_.erase(request.client);
  requests_.erase(request.number);
}

// Leaves the request queued.
void Dispatcher::Impl::CloseAttempt(Request& request, AttemptResult result) {
  if (request.phase == Phase::kQueued) return;
  Attempt& attempt = request.attempt;
  CloseWriter(request);
  client_.Close(attempt.decode_stream);
  streams_.erase(attempt.decode_stream);
  if (request.phase == Phase::kReserving) peers_.ReserveAnswered(attempt.decode, false);
  --peers_.at(attempt.decode).attempts;
  Unload(request);
  ++attempt_results_[static_cast<size_t>(result)];
  attempt.timeout = absl::InfiniteFuture();
  SetPhase(request, Phase::kQueued);
}

void Dispatcher::Impl::CloseWriter(Request& request) {
  Attempt& attempt = request.attempt;
  if (!attempt.writer_open) return;
  client_.Close(attempt.writer_stream);
  streams_.erase(attempt.writer_stream);
  attempt.writer_open = false;
}

// ── counts and timers ───────────────────────────────────────────────────────────────

void Dispatcher::Impl::Avoid(Request& request, WorkerIndex worker) {
  const Avoided entry{worker, peers_.at(worker).health.answers()};
  for (Avoided& avoided : request.avoided) {
    if (avoided.worker == worker) {
      avoided = entry;
      return;
    }
  }
  request.avoided.push_back(entry);
}

void Dispatcher::Impl::Load(Request& request, WorkerIndex worker, uint64_t tokens) {
  Unload(request);
  request.attempt.loaded = worker;
  request.attempt.tokens = tokens;
  peers_.at(worker).tokens += tokens;
}

void Dispatcher::Impl::Unload(Request& request) {
  Attempt& attempt = request.attempt;
  if (!attempt.loaded) return;
  peers_.at(*attempt.loaded).tokens -= attempt.tokens;
  attempt.loaded.reset();
}

void Dispatcher::Impl::SetPhase(Request& request, Phase phase) {
  const uint64_t prompt = request.sequence.prompt.size();
  if (WaitsForReservation(request.phase)) waiting_tokens_ -= prompt;
  if (WaitsForReservation(phase)) waiting_tokens_ += prompt;
  if (request.phase == Phase::kReserving) --reserving_;
  if (phase == Phase::kReserving) ++reserving_;
  if (request.phase == Phase::kQueued) queued_.erase(request.number);
  if (phase == Phase::kQueued) queued_.insert(request.number);
  request.phase = phase;
  request.stranded_since = absl::InfiniteFuture();
  Arm(request);
}

// Puts the request's next time-out into `timers_`.
void Dispatcher::Impl::Arm(Request& request) {
  absl::Time wake = std::min(request.deadline, request.attempt.timeout);
  if (request.phase == Phase::kQueued) {
    wake = std::min(request.deadline, request.stranded_since + options_.decode_wait);
  }
  if (wake == request.wake) return;
  timers_.erase({request.wake, request.number});
  request.wake = wake;
  timers_.insert({wake, request.number});
}

}  // namespace baton::router
