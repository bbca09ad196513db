// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The decode role: owns the memory that prompts land in, and draws the answers' tokens.
//
// Life of an attempt: Reserve → waits for blocks → either a ticket (a prefill worker pushes
// the KV and commits) or, for short prompts, chunks of its own → joins the running batch →
// tokens → Finished.  Whatever ends it earlier says why on the stream (rule 9).  Blocks under
// an open ticket are never freed by that: they are quarantined until Quiet (K2).
//
// Under memory pressure running sequences grow before new reservations are made, and the
// oldest always progresses: younger ones drop their blocks and are computed again later, here
// when that is short, else wherever the front end resumes them.  A landing is never a victim.
//
// Thread:    one owner makes every call.  Reads no clock: a tick is one moment, handed in.
// Ownership: engine and transport are borrowed and outlive the worker.
// Bounds:    queue_requests and queue_tokens refuse with RESOURCE_EXHAUSTED on arrival; a
//            sequence that could never fit is refused with INVALID_ARGUMENT.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/lease.h"
#include "base/messages.h"
#include "decode_worker/batch.h"
#include "decode_worker/reservations.h"
#include "decode_worker/step_pace.h"
#include "engine/block_pool.h"
#include "engine/engine.h"
#include "engine/kv_layout.h"
#include "engine/prefix_cache.h"
#include "kv_transfer/transport.h"

namespace baton::decode {

struct Options {
  uint32_t context_max = 0;         // 0: the engine's; capped by the pool
  uint32_t batch_tokens = 256;      // in one step: decoding rows, and chunks of prompts
  uint32_t step_percent = 160;      // of the usual step, for one with prompts; see StepPace
  uint32_t sequences_max = 64;      // that own blocks: landing or running
  uint32_t queue_requests = 256;    // waiting for blocks
  uint64_t queue_tokens = 1000000;  // of those
  uint32_t inputs_max = 4096;       // received and not yet looked at
  uint32_t writer_blocks_max = 0;   // 0: a quarter of the pool; see Reservations
  absl::Duration writer_wait_max = absl::Seconds(5);  // for the writer's own cap
  uint32_t recompute_here_max = 512;       // tokens; a longer victim goes back to the front end
  absl::Duration dead_after = kDeadAfter;  // of a silent front end
  absl::Duration drain_max = absl::Seconds(30);
  uint64_t model_fingerprint = 0;
  engine::PrefixCache::Options prefix_cache;
};

// Why KV that was to be pushed did not arrive; label `reason` of
// baton_kv_transfer_failures_total.
enum class Failure : uint8_t {
  kWriterLost = 0,  // its link broke, or there was none
  kWriterFailed,    // it gave the push up
  kDamaged,         // bytes arrived that are not the writer's
  kBadCommit,       // a Commit that does not match its ticket
  kRevoked,         // the front end asked
  kCancelled,       // the front end closed or lost the stream
  kLease,           // the front end went silent
  kExpired,         // the back-stop behind the request's deadline
  kDrained,         // handed back at the end of a drain
};
inline constexpr std::array<const char*, 9> kFailureNames = {
    "writer_lost", "writer_failed", "damaged", "bad_commit", "revoked",
    "cancelled",   "lease",         "expired", "drained"};

// Messages that name nothing alive (K4); label `kind` of baton_kv_stale_messages_total.
enum class Stale : uint8_t { kStream = 0, kCommit, kQuiet, kWriterFailed };
inline constexpr std::array<const char*, 4> kStaleNames = {"stream", "commit", "quiet",
                                                           "writer_failed"};

struct Received {  // from one peer over one transport
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  uint64_t pushes = 0;
};

// Plain numbers for /metrics; totals count from the start of the process.
struct Metrics {
  engine::BlockCounts blocks;
  uint32_t waiting = 0;  // for blocks
  uint32_t landing = 0;  // under an open ticket
  uint32_t running = 0;
  uint64_t requests = 0;  // Reserve messages received
  uint64_t refused = 0;   // before they waited
  uint64_t finished = 0;
  uint64_t prompt_tokens_computed = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t generation_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t reservations_expired = 0;
  uint64_t steps = 0;
  std::array<uint64_t, kFailureNames.size()> failures{};
  std::array<uint64_t, kStaleNames.size()> stale{};
  absl::btree_map<std::pair<std::string, std::string>, Received> received;  // (peer, transport)
};

class DecodeWorker {
 public:
  // `layout` is the pool's, as engine and transport see it.
  DecodeWorker(const Options& options, engine::Engine& engine, kv::OwnerTransport& transport,
               const WorkerRef& self, const engine::KvLayout& layout);

  DecodeWorker(const DecodeWorker&) = delete;
  DecodeWorker& operator=(const DecodeWorker&) = delete;

  // Queues an input for the next Tick.  When inputs_max wait, a new stream is refused and a
  // heartbeat is dropped; closings are always taken.
  void Receive(WorkerInput input);
  // Does what can be done at `now`; true if anything happened.  Never blocks.
  bool Tick(absl::Time now);
  // What to send since the last call, oldest first.
  std::vector<WorkerOutput> TakeOutputs();
  // Tick at this moment at the latest, even if no bell rings.
  absl::Time NextWake() const;
  WorkerStatus Status() const;
  Metrics metrics() const;

  // Draining, and nothing is left to do or to say.  Blocks may still be in quarantine: they
  // belong to a peer, and the process's exit takes the memory away from it.
  bool drained() const;
  // Not OK: this incarnation was declared dead and the process must exit (rule 7).
  const absl::Status& fatal() const { return fatal_; }

 private:
  enum class State : uint8_t {
    kWaiting,  // owns no blocks; new, or preempted and to be computed again
    kLanding,  // owns the blocks of an open ticket, and pinned prefix hits
    kRunning,  // in the batch: prompt chunks or one token a step
  };

  struct Attempt {
    uint64_t key = 0;  // in order of arrival; also the engine's tag
    StreamId stream;
    AttemptId id;
    Sequence sequence;  // outputs grow, remaining_tokens shrinks
    std::optional<WorkerRef> writer;
    uint32_t colocate_below = 0;
    State state = State::kWaiting;
    std::vector<engine::BlockHash> chain;
    std::vector<BlockIndex> blocks;  // of positions [0, …); while landing: the hits only
    uint32_t offered = 0;            // leading blocks offered to the prefix cache
    uint32_t computed = 0;           // positions [0, computed) are in the blocks
    Generation generation;           // while landing
    bool in_step = false;
    bool answered = false;    // Reserved was sent
    bool first_sent = false;  // its first token was: the attempt is committed
    bool mixed = false;       // KV of another numeric class: nothing of it is shared (K6)
    PromptStats stats;        // until then
    absl::Time received, started, backstop;
    absl::Time writer_wait_until = absl::InfiniteFuture();  // while its cap is what is missing
  };

  // What came of an attempt's try to get its blocks.
  enum class Admission : uint8_t {
    kOver,         // admitted, or ended
    kNoBlocks,     // nobody behind it may pass
    kTicketsFull,  // only prompts that run here may pass
    kWriterFull,   // only prompts of this writer may not pass
  };
  // Who may not pass the earlier ones, in one round of admission.
  struct Closed {
    bool tickets = false;
    absl::btree_set<std::string> writers;  // that lack room for an earlier one
  };

  // In the order in which Tick calls them.
  bool PollTransport(absl::Time now);
  bool PollEngine(absl::Time now);
  bool HandleInputs(absl::Time now);
  bool Expire(absl::Time now);
  void Grow();
  bool Admit(absl::Time now);
  bool Step(absl::Time now);

  void Open(const StreamOpened& opened, absl::Time now);
  absl::Status CheckReserve(const Reserve& reserve) const;
  void OnRevoke(StreamId stream);
  void StartDraining(absl::Time now);
  bool FailWhere(absl::FunctionRef<bool(const Attempt&)> predicate, Failure reason,
                 const absl::Status& why, bool preempted = false);

  void OnCommit(const kv::Commit& commit);
  absl::Status CheckCommit(const kv::Commit& commit, const Attempt& attempt,
                           const Reservations::Grant& grant) const;
  void Landed(Attempt& attempt, const kv::Commit& commit, const WorkerRef& writer);
  void OnWriterFailed(const kv::WriterFailed& failed);
  void OnPeerDown(const kv::PeerDown& down);
  void OnMustExit(const kv::MustExit& exit);
  void OnStepDone(const engine::StepDone& done, absl::Time now);
  void OnSampled(const engine::Sampled& sampled, absl::Time now);

  Admission TryAdmit(Attempt& attempt, const Closed& closed, absl::Time now);
  // Whether what `missing` blocks need is there; `here`: without a ticket.
  Admission Room(Attempt& attempt, uint32_t missing, bool here, const Closed& closed,
                 absl::Time now);
  void RunHere(Attempt& attempt, std::vector<BlockIndex> hits);
  void GrantTicket(Attempt& attempt, std::vector<BlockIndex> hits);
  uint32_t running() const;

  void GrowOne(Attempt& attempt);
  Attempt* YoungestRunning();
  void Preempt(Attempt& attempt);

  void OfferToCache(Attempt& attempt);
  void Deliver(Attempt& attempt, OutputToken token);  // the attempt may be gone afterwards
  void Say(StreamId stream, FromWorker message, bool last);
  void Emit(const Attempt& attempt, FromWorker message, bool last = false);
  void Fail(Attempt& attempt, Failure reason, const absl::Status& why, bool preempted = false);
  // Takes the attempt out of everything; a landing's blocks go into quarantine.
  void Remove(Attempt& attempt);
  void Count(Failure reason) { ++totals_.failures[static_cast<size_t>(reason)]; }
  void Count(Stale kind) { ++totals_.stale[static_cast<size_t>(kind)]; }
  void Refuse(StreamId stream, const absl::Status& why);
  const kv::PeerUp* LinkOf(const WorkerRef& writer) const;

  const Options options_;
  engine::Engine& engine_;
  kv::OwnerTransport& transport_;
  const WorkerRef self_;
  const engine::KvLayout layout_;
  uint32_t context_max_ = 0;

  engine::BlockPool pool_;
  engine::PrefixCache cache_;
  Reservations reservations_;
  LeaseTable leases_;

  std::vector<WorkerInput> inputs_;
  std::vector<WorkerOutput> outputs_;
  std::map<uint64_t, Attempt> attempts_;  // by key: oldest first
  absl::btree_map<StreamId, uint64_t> by_stream_;
  absl::btree_map<AttemptId, uint64_t> by_id_;
  absl::btree_map<Incarnation, kv::PeerUp> links_;
  std::vector<Piece> step_;  // of the step that runs; empty: none does
  absl::Time step_began_;    // of that step, like these two
  uint32_t step_decoding_ = 0, step_prompt_tokens_ = 0;
  StepPace pace_;
  std::vector<BlockIndex> after_step_;  // readers to drop when it is over
  uint64_t waiting_tokens_ = 0;
  uint32_t waiting_ = 0;
  uint64_t next_key_ = 1;
  uint64_t step_id_ = 0;  // of the last step submitted
  uint64_t ticks_ = 0;
  bool draining_ = false;
  absl::Status fatal_;
  absl::Time drain_until_ = absl::InfiniteFuture();
  Metrics totals_;
};

}  // namespace baton::decode
