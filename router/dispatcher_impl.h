// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The states behind Dispatcher.  Included by the dispatcher's own sources only.
//
// dispatcher.cc is the loop: what comes in, what time does, what goes out.  attempts.cc is the
// life of one request's attempts: open, hand off, settle, fail, end.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "router/dispatcher.h"
#include "router/peers.h"
#include "router/retry.h"
#include "router/stages.h"

namespace baton::router {

enum class Phase : uint8_t {
  kQueued,      // no attempt is open
  kReserving,   // Reserve sent
  kComputing,   // decode runs the prompt itself
  kPrefilling,  // a prefill worker runs and pushes it; perhaps done, no token yet
  kSettling,    // Revoke sent after the writer failed
  kLanding,     // decode answered `committed`; no token yet
  kDecoding,    // tokens of this attempt came
};

// The current attempt; meaningless while queued.
struct Attempt {
  WorkerIndex decode;
  Incarnation decode_life;  // as known when it was opened
  StreamId decode_stream;
  std::optional<WorkerIndex> writer;
  Incarnation writer_life;
  StreamId writer_stream;
  bool writer_open = false;
  bool prefill_done = false;
  uint64_t tokens = 0;                          // counted as load of decode or writer
  std::optional<WorkerIndex> loaded;            // who `tokens` is counted at
  absl::Time timeout = absl::InfiniteFuture();  // progress or settlement
  Failure failure;                              // why it is being settled
  PromptStats stats;
};

struct Request {
  uint64_t number = 0;
  ClientKey client;
  Sequence sequence;  // outputs and remaining_tokens follow what was delivered
  absl::Time deadline;
  Phase phase = Phase::kQueued;
  Attempt attempt;
  uint32_t attempts_opened = 0;  // names attempts
  uint32_t refusals = 0;         // of them, those that a full decode refused
  Tried tried;
  uint32_t resumes = 0;
  bool was_pushed = false;  // some attempt had a ticket
  Path path = Path::kNone;
  PromptStats prompt;
  StageClock stages;
  std::vector<Avoided> avoided;
  std::vector<uint64_t> hashes;  // of the sequence's leading blocks, as it was queued
  uint64_t fingerprint = 0;      // of the decode that began the answer
  absl::Time stranded_since = absl::InfiniteFuture();  // no decode worker at all
  absl::Time wake = absl::InfiniteFuture();            // its place in `timers_`

  uint32_t next_index() const { return static_cast<uint32_t>(sequence.outputs.size()); }
};

class Dispatcher::Impl {
 public:
  Impl(Options options, std::vector<WorkerSpec> workers, WorkerClient& client, Incarnation self,
       uint64_t seed);

  // ── dispatcher.cc ────────────────────────────────────────────────────────────────
  void Receive(ClientInput input) { inputs_.push_back(std::move(input)); }
  void StartDrain() { draining_ = true; }
  bool Tick(absl::Time now);
  std::vector<ClientOutput> TakeOutputs() { return std::exchange(outputs_, {}); }
  absl::Time NextWake() const;
  bool idle() const { return requests_.empty() && inputs_.empty(); }
  Snapshot snapshot() const;

 private:
  struct StreamOwner {
    uint64_t request = 0;
    bool decode = false;
  };

  void TakeInput(Submit& submit);
  void TakeInput(Cancel& cancel);
  void TakeInput(Complete& complete);
  void Reject(const Submit& submit, const absl::Status& why);
  void TakeEvent(StreamSaid& said);
  void TakeEvent(StreamLost& lost);
  void TakeEvent(WorkerSaid& said);
  void TakeEvent(WorkerGone& gone);
  void LoseWorker(WorkerIndex worker, const char* why);
  void ForgiveOwnAbsence(absl::Time now);
  // A longer gap between two ticks is one.
  absl::Duration OwnAbsence() const { return options_.health.dead_after / 2; }
  bool AdvanceHealth();
  bool Admit();
  bool Expire();
  void Strand(Request& request, bool stranded);
  Request* Find(ClientKey client);
  Waiting waiting() const { return {queued_.size() + reserving_, waiting_tokens_}; }

  // ── attempts.cc ──────────────────────────────────────────────────────────────────
  // Each handler may end the request; the reference is dead then.
  Peers::Need NeedOf(const Request& request) const;
  void Open(Request& request, const Placement& placement);
  void FromDecode(Request& request, FromWorker& message);
  void FromPrefill(Request& request, FromWorker& message);
  void OnReserved(Request& request, Reserved& reserved);
  void StartPrefill(Request& request, std::vector<uint8_t> ticket);
  void OnToken(Request& request, Token& token);
  void OnSettled(Request& request, bool committed);
  void OnDecodeEnded(Request& request, const Ended& ended);
  void WriterFailed(Request& request, Failure failure);
  void Fail(Request& request, const Failure& failure);  // the attempt is settled
  void FailProtocol(Request& request, const char* what);
  void End(Request& request, Outcome outcome, const absl::Status& status);
  void SetPath(Request& request, Path path);
  // Streams, load and waiting counts of the current attempt, given back.
  void CloseAttempt(Request& request, AttemptResult result);
  void CloseWriter(Request& request);
  void Load(Request& request, WorkerIndex worker, uint64_t tokens);
  void Unload(Request& request);
  void SetPhase(Request& request, Phase phase);
  void Avoid(Request& request, WorkerIndex worker);
  void Arm(Request& request);

  const Options options_;
  WorkerClient& client_;
  const Incarnation self_;
  const uint64_t seed_;
  Peers peers_;

  absl::Time now_ = absl::InfinitePast();  // of the current Tick
  bool draining_ = false;
  uint64_t requests_made_ = 0;
  absl::btree_map<uint64_t, Request> requests_;  // by number: oldest first
  absl::btree_map<ClientKey, uint64_t> by_client_;
  absl::btree_map<StreamId, StreamOwner> streams_;
  absl::btree_set<uint64_t> queued_;  // requests in phase kQueued
  absl::btree_set<std::pair<absl::Time, uint64_t>> timers_;
  uint64_t reserving_ = 0;       // requests in phase kReserving
  uint64_t waiting_tokens_ = 0;  // of queued and reserving requests

  std::vector<ClientInput> inputs_;
  std::vector<ClientOutput> outputs_;
  std::vector<ClientEvent> events_;  // scratch
  std::array<uint64_t, kAttemptResults> attempt_results_{};
  uint64_t resumes_ = 0;
  uint64_t late_messages_ = 0;
  uint64_t protocol_errors_ = 0;
};

}  // namespace baton::router
