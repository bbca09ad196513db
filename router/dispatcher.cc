// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/dispatcher.h"

#include <algorithm>

#include "absl/status/status.h"
#include "base/ensure.h"
#include "base/random.h"
#include "router/dispatcher_impl.h"

namespace baton::router {
namespace {

Peers::Options PeersOptions(const Dispatcher::Options& options) {
  return {.health = options.health,
          .full_backoff = options.full_backoff,
          .reserving_max = options.reserving_max,
          .affinity_entries = options.affinity_entries};
}

std::vector<Role> RolesOf(const std::vector<WorkerSpec>& workers) {
  std::vector<Role> roles;
  for (const WorkerSpec& worker : workers) roles.push_back(worker.role);
  return roles;
}

PeerMetric MetricOf(const Health& health) {
  switch (health.state()) {
    case PeerState::kUnknown:
      return PeerMetric::kConnecting;
    case PeerState::kDead:
      return PeerMetric::kDead;
    case PeerState::kGone:
    case PeerState::kSuspect:
      return PeerMetric::kSuspect;
    case PeerState::kAlive:
      break;
  }
  if (health.status().draining) return PeerMetric::kDraining;
  return health.status().ready ? PeerMetric::kReady : PeerMetric::kConnecting;
}

std::optional<WaitingStage> StageOf(const Request& request) {
  switch (request.phase) {
    case Phase::kQueued:
    case Phase::kReserving:
      return WaitingStage::kAdmission;
    case Phase::kComputing:
      return WaitingStage::kPrefill;
    case Phase::kPrefilling:
      return request.attempt.prefill_done ? WaitingStage::kKvTransfer : WaitingStage::kPrefill;
    case Phase::kSettling:
      return WaitingStage::kKvTransfer;
    case Phase::kLanding:
      return WaitingStage::kDecode;
    case Phase::kDecoding:
      break;
  }
  return std::nullopt;
}

}  // namespace

Dispatcher::Impl::Impl(Options options, std::vector<WorkerSpec> workers, WorkerClient& client,
                       Incarnation self, uint64_t seed)
    : options_(options),
      client_(client),
      self_(self),
      seed_(seed),
      peers_(PeersOptions(options), RolesOf(workers)) {
  ENSURE(options_.attempts_max > 0 && options_.reserving_max > 0);
}

bool Dispatcher::Impl::Tick(absl::Time now) {
  ForgiveOwnAbsence(now);
  now_ = now;
  bool worked = !inputs_.empty();
  for (ClientInput& input : std::exchange(inputs_, {})) {
    std::visit([this](auto& kind) { TakeInput(kind); }, input);
  }
  events_.clear();
  client_.Poll(events_);
  worked |= !events_.empty();
  for (ClientEvent& event : events_) {
    std::visit([this](auto& kind) { TakeEvent(kind); }, event);
  }
  worked |= AdvanceHealth();
  worked |= Admit();
  worked |= Expire();
  return worked;
}

absl::Time Dispatcher::Impl::NextWake() const {
  absl::Time wake = peers_.NextChange();
  if (!timers_.empty()) wake = std::min(wake, timers_.begin()->first);
  // Often enough that a gap between two ticks means an absence.
  if (wake < absl::InfiniteFuture()) wake = std::min(wake, now_ + OwnAbsence() / 2);
  if (!queued_.empty()) wake = std::min(wake, peers_.NextRoom(now_));
  return wake;
}

// ── inputs ──────────────────────────────────────────────────────────────────────────

void Dispatcher::Impl::TakeInput(Submit& submit) {
  ENSURE(submit.sequence.outputs.empty());
  ENSURE(!by_client_.contains(submit.client));
  Capacity capacity = peers_.capacity();
  capacity.draining = draining_;
  const absl::Status admitted = CheckAdmission(submit.sequence, capacity, waiting(),
                                               {options_.queue_requests, options_.queue_tokens});
  if (!admitted.ok()) {
    Reject(submit, admitted);
    return;
  }
  const uint64_t number = ++requests_made_;
  Request& request = requests_[number];
  request.number = number;
  request.client = submit.client;
  request.sequence = std::move(submit.sequence);
  request.sequence.remaining_tokens = RemainingWithin(request.sequence, capacity);
  if (submit.draw_seed) {
    request.sequence.sampling.seed = CounterRandom(seed_, self_.value(), number);
  }
  request.deadline = submit.received + submit.deadline;
  request.stages = StageClock(submit.received);
  by_client_[request.client] = number;
  request.hashes = LeadingBlockHashes(request.sequence);
  queued_.insert(number);
  waiting_tokens_ += request.sequence.prompt.size();
  Arm(request);
}

void Dispatcher::Impl::Reject(const Submit& submit, const absl::Status& why) {
  const bool later = why.code() != absl::StatusCode::kInvalidArgument;
  Over over;
  over.client = submit.client;
  over.request = {self_, ++requests_made_};
  over.outcome = Outcome::kRejected;
  over.status = why;
  if (later) over.retry_after = options_.retry_after;
  over.stages = StageClock(submit.received).Over(now_);
  outputs_.push_back(std::move(over));
}

Request* Dispatcher::Impl::Find(ClientKey client) {
  const auto it = by_client_.find(client);
  return it == by_client_.end() ? nullptr : &requests_.at(it->second);
}

void Dispatcher::Impl::TakeInput(Cancel& cancel) {
  if (Request* request = Find(cancel.client)) {
    End(*request, Outcome::kCancelled, absl::CancelledError("cancelled by the client"));
  }
}

void Dispatcher::Impl::TakeInput(Complete& complete) {
  if (Request* request = Find(complete.client)) {
    CloseAttempt(*request, AttemptResult::kCompleted);
    End(*request, Outcome::kStop, absl::OkStatus());
  }
}

// ── events ──────────────────────────────────────────────────────────────────────────

void Dispatcher::Impl::TakeEvent(StreamSaid& said) {
  const auto it = streams_.find(said.stream);
  if (it == streams_.end()) {  // of an attempt that is not current any more (K4)
    ++late_messages_;
    return;
  }
  const StreamOwner owner = it->second;
  Request& request = requests_.at(owner.request);
  if (owner.decode) {
    FromDecode(request, said.message);
  } else {
    FromPrefill(request, said.message);
  }
}

void Dispatcher::Impl::TakeEvent(StreamLost& lost) {
  const auto it = streams_.find(lost.stream);
  if (it == streams_.end()) return;
  const StreamOwner owner = it->second;
  Request& request = requests_.at(owner.request);
  const absl::Status why = lost.why.ok() ? absl::UnavailableError("the stream broke") : lost.why;
  if (owner.decode) {
    Fail(request, {Blame::kDecode, why});  // loss settles (rule 8)
  } else {
    WriterFailed(request, {Blame::kPrefill, why});
  }
}

void Dispatcher::Impl::TakeEvent(WorkerSaid& said) {
  Health& health = peers_.at(said.worker).health;
  if (health.Answered(said.status, now_) == Health::Change::kLost) {
    LoseWorker(said.worker, "the worker restarted");
  }
}

void Dispatcher::Impl::TakeEvent(WorkerGone& gone) { peers_.at(gone.worker).health.Gone(); }

// Whatever is open on an earlier life of the worker, or on a dead one, is lost.
void Dispatcher::Impl::LoseWorker(WorkerIndex worker, const char* why) {
  const Health& health = peers_.at(worker).health;
  const bool dead = health.state() == PeerState::kDead;
  const Incarnation life = health.status().self.incarnation;
  std::vector<uint64_t> decodes, writers;
  for (const auto& [number, request] : requests_) {
    if (request.phase == Phase::kQueued) continue;
    const Attempt& attempt = request.attempt;
    if (attempt.decode == worker && (dead || attempt.decode_life != life)) {
      decodes.push_back(number);
    } else if (attempt.writer_open && attempt.writer == worker &&
               (dead || attempt.writer_life != life)) {
      writers.push_back(number);
    }
  }
  for (const uint64_t number : decodes) {
    Fail(requests_.at(number), {Blame::kDecode, absl::UnavailableError(why)});
  }
  for (const uint64_t number : writers) {
    WriterFailed(requests_.at(number), {Blame::kPrefill, absl::UnavailableError(why)});
  }
}

// ── time ────────────────────────────────────────────────────────────────────────────

// If this process itself stood still (stopped, swapped out), what workers said meanwhile may be
// unread or unasked for: the gap counts for no time-out but the client's own deadline.
void Dispatcher::Impl::ForgiveOwnAbsence(absl::Time now) {
  const absl::Duration gap = now - now_;
  if (now_ == absl::InfinitePast() || gap <= OwnAbsence()) return;
  peers_.Forgive(gap);
  for (auto& [number, request] : requests_) {
    request.attempt.timeout += gap;
    request.stranded_since += gap;
    Arm(request);
  }
}

bool Dispatcher::Impl::AdvanceHealth() {
  std::vector<WorkerIndex> lost;
  peers_.Advance(now_, lost);
  for (const WorkerIndex worker : lost) LoseWorker(worker, "the worker does not answer");
  return !lost.empty();
}

// Oldest first.  One that finds no room is overtaken only on workers that it cannot use.
bool Dispatcher::Impl::Admit() {
  bool worked = false;
  // Opening takes the request out of the set, which moves its neighbours.
  for (auto it = queued_.begin(); it != queued_.end();) {
    const uint64_t number = *it;
    Request& request = requests_.at(number);
    it = queued_.upper_bound(number);
    if (request.deadline <= now_) continue;
    Peers::Lack lack;
    const std::optional<Placement> placement = peers_.Find(NeedOf(request), now_, lack);
    Strand(request, lack == Peers::Lack::kDecode);
    if (lack == Peers::Lack::kRoom && !peers_.AnyRoom(now_)) break;
    if (!placement) continue;
    Open(request, *placement);
    it = queued_.upper_bound(number);
    worked = true;
  }
  return worked;
}

// After Admit: who waits for a decode worker had its chance in this very moment.
bool Dispatcher::Impl::Expire() {
  bool worked = false;
  while (!timers_.empty() && timers_.begin()->first <= now_) {
    worked = true;
    Request& request = requests_.at(timers_.begin()->second);
    if (request.deadline <= now_) {
      End(request, Outcome::kTimeout, absl::DeadlineExceededError("the deadline passed"));
    } else if (request.phase == Phase::kQueued) {
      End(request, Outcome::kError, absl::UnavailableError("no decode worker is there"));
    } else if (request.phase == Phase::kSettling) {
      // It may still run the attempt; nobody listens to it any more (K10).
      Fail(request, {Blame::kDecode, absl::UnavailableError("decode does not settle")});
    } else {
      ENSURE(request.phase == Phase::kPrefilling);
      WriterFailed(request, {Blame::kPrefill, absl::UnavailableError("prefill makes no progress")});
    }
  }
  return worked;
}

void Dispatcher::Impl::Strand(Request& request, bool stranded) {
  if (stranded == (request.stranded_since != absl::InfiniteFuture())) return;
  request.stranded_since = stranded ? now_ : absl::InfiniteFuture();
  Arm(request);
}

// ── what metrics show ───────────────────────────────────────────────────────────────

Snapshot Dispatcher::Impl::snapshot() const {
  Snapshot snapshot;
  for (const auto& [number, request] : requests_) {
    if (const auto stage = StageOf(request)) {
      ++snapshot.waiting[static_cast<size_t>(*stage)];
    } else {
      ++snapshot.running;
    }
  }
  snapshot.waiting_tokens = waiting_tokens_;
  for (const Peers::Peer& peer : peers_.all()) {
    auto& pool = peer.role == Role::kPrefill ? snapshot.prefill_peers : snapshot.decode_peers;
    snapshot.peers.push_back(MetricOf(peer.health));
    ++pool[static_cast<size_t>(snapshot.peers.back())];
    snapshot.reconnects += peer.health.returns();
  }
  snapshot.attempts = attempt_results_;
  snapshot.resumes = resumes_;
  snapshot.late_messages = late_messages_;
  snapshot.protocol_errors = protocol_errors_;
  snapshot.ready = !draining_ && peers_.capacity().any_usable;
  return snapshot;
}

// ── the public class ────────────────────────────────────────────────────────────────

Dispatcher::Dispatcher(Options options, std::vector<WorkerSpec> workers, WorkerClient& client,
                       Incarnation self, uint64_t seed)
    : impl_(std::make_unique<Impl>(options, std::move(workers), client, self, seed)) {}
Dispatcher::~Dispatcher() = default;
void Dispatcher::Receive(ClientInput input) { impl_->Receive(std::move(input)); }
void Dispatcher::StartDrain() { impl_->StartDrain(); }
bool Dispatcher::Tick(absl::Time now) { return impl_->Tick(now); }
std::vector<ClientOutput> Dispatcher::TakeOutputs() { return impl_->TakeOutputs(); }
absl::Time Dispatcher::NextWake() const { return impl_->NextWake(); }
bool Dispatcher::idle() const { return impl_->idle(); }
Snapshot Dispatcher::snapshot() const { return impl_->snapshot(); }

}  // namespace baton::router
