// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The prefill role: runs prompts in chunks and pushes each layer's KV to the decode worker
// that granted the memory, while later layers are still being computed.
//
// Life of an attempt: Prefill(ids, ticket) → Accept → queue → chunks (each LayerDone posts
// the blocks that the chunk completed) → all writes done and first token drawn → Commit,
// PrefillDone, Finished.  Whatever ends it earlier says why on the stream (rule 9), and its
// own blocks are freed only after the engine and every posted write are done with them (K2).
//
// Thread:    one owner makes every call.  Reads no clock: a tick is one moment, handed in.
// Ownership: engine and transport are borrowed and outlive the worker; the pool's memory is
//            theirs, which block is whose is the worker's.
// Bounds:    queue_requests and queue_tokens refuse with RESOURCE_EXHAUSTED on arrival; what
//            was accepted never fails for lack of memory.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
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
#include "engine/block_pool.h"
#include "engine/engine.h"
#include "engine/kv_layout.h"
#include "engine/prefix_cache.h"
#include "kv_transfer/ticket.h"
#include "kv_transfer/transport.h"
#include "prefill_worker/prefill_queue.h"

namespace baton::prefill {

struct Options {
  uint32_t context_max = 0;         // 0: the engine's; capped by the pool
  uint32_t chunk_tokens = 512;      // prompt tokens in one step; a multiple of the block size
  uint32_t sequences_max = 64;      // computing or pushing at once
  uint32_t queue_requests = 256;    // waiting to start
  uint64_t queue_tokens = 1000000;  // of those
  uint32_t inputs_max = 4096;       // received and not yet looked at
  bool pipelining = true;           // false: push only after the whole prompt is computed
  absl::Duration progress_interval = absl::Seconds(1);
  absl::Duration dead_after = kDeadAfter;  // of a silent front end
  absl::Duration drain_max = absl::Seconds(30);
  uint64_t model_fingerprint = 0;
  engine::PrefixCache::Options prefix_cache;
  uint32_t push_events_max = 0;  // kept for TakePushEvents; 0: none
};

// Why a push did not reach its Commit; label `reason` of baton_kv_transfer_failures_total.
enum class Failure : uint8_t {
  kBadTicket = 0,  // undecodable, or for another attempt, writer or length
  kRefused,        // the transport refused or revoked the push, or its link broke
  kWrite,          // a write failed
  kEngine,         // the model step failed
  kLease,          // the front end went silent
  kExpired,        // the back-stop behind the request's deadline
  kCancelled,      // the front end closed or lost the stream
  kDrained,        // handed back at the end of a drain
};
inline constexpr std::array<const char*, 8> kFailureNames = {
    "bad_ticket", "refused", "write", "engine", "lease", "expired", "cancelled", "drained"};

// Messages that name nothing alive (K4); label `kind` of baton_kv_stale_messages_total.
enum class Stale : uint8_t { kStream = 0, kPush, kWrite };
inline constexpr std::array<const char*, 3> kStaleNames = {"stream", "push", "write"};

struct Pushed {  // to one peer over one transport
  uint64_t bytes = 0;
  uint64_t blocks = 0;
  uint64_t pushes = 0;  // committed
};

// Plain numbers for /metrics; totals count from the start of the process.
struct Metrics {
  engine::BlockCounts blocks;
  uint32_t waiting = 0;  // in the queue
  uint32_t computing = 0;
  uint32_t pushing = 0;   // computed, waiting for writes
  uint64_t requests = 0;  // Prefill messages received
  uint64_t refused = 0;   // before they were queued
  uint64_t committed = 0;
  uint64_t prompt_tokens_computed = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t steps = 0;
  std::array<uint64_t, kFailureNames.size()> failures{};
  std::array<uint64_t, kStaleNames.size()> stale{};
  absl::btree_map<std::pair<std::string, std::string>, Pushed> pushed;  // by (peer, transport)
};

// One line of the push log: proves that layers leave while later ones are computed.
struct PushEvent {
  enum class Kind : uint8_t { kComputed, kPosted, kWritten, kCommitted } kind = Kind::kComputed;
  absl::Time at;
  AttemptId attempt;
  uint32_t layer = 0;
  uint32_t blocks = 0;  // posted or written
};

class PrefillWorker {
 public:
  // `layout` is the pool's, as engine and transport see it.
  PrefillWorker(const Options& options, engine::Engine& engine, kv::WriterTransport& transport,
                const WorkerRef& self, const engine::KvLayout& layout);

  PrefillWorker(const PrefillWorker&) = delete;
  PrefillWorker& operator=(const PrefillWorker&) = delete;

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

  // Draining, and nothing is left to do or to say.
  bool drained() const;
  // The oldest push_events_max lines since the last call.
  std::vector<PushEvent> TakePushEvents();

 private:
  enum class State : uint8_t {
    kQueued,     // accepted; owns no blocks
    kComputing,  // owns its blocks; chunks run
    kPushing,    // computed; writes are out
    kEnding,     // its stream is over; waits for engine or writes to let go of its blocks
  };

  struct Job {
    uint64_t key = 0;  // in order of arrival
    StreamId stream;
    AttemptId attempt;
    Sequence sequence;
    kv::Ticket ticket;
    State state = State::kQueued;
    std::vector<engine::BlockHash> chain;
    std::vector<BlockIndex> blocks;  // of positions [0, size); the first ones may be shared
    uint32_t cached_tokens = 0;
    uint32_t computed = 0;  // positions [0, computed) are in the blocks
    bool in_step = false;
    bool push_over = false;  // PushEnded, Abandon or SendCommit: no more writes
    uint32_t writes_out = 0;
    uint64_t pieces_written = 0;  // (layer, block) pairs
    uint64_t moved = 0;           // its last move, as `moves_` counts them
    uint64_t reported = 0;        // the move that its last Progress told of
    std::optional<OutputToken> first_token;
    absl::Time backstop;
    absl::Time next_progress;
    absl::Time received, started, computed_at, busy_since, last_write_at;
    absl::Duration transfer;     // with at least one write outstanding
    LinkWork work{.starts = 0};  // of its writes, once they are done
    LinkCost cost;               // of the link, as it was known before the first of them
  };
  struct WriteRecord {
    uint64_t job = 0;
    uint32_t layer = 0;
    uint32_t blocks = 0;
  };

  // In the order in which Tick calls them.
  bool PollTransport(absl::Time now);
  bool PollEngine(absl::Time now);
  bool HandleInputs(absl::Time now);
  bool Expire(absl::Time now);
  void StartQueued(absl::Time now);
  bool Step(absl::Time now);
  void SendProgress(absl::Time now);

  void Open(const StreamOpened& opened, absl::Time now);
  absl::Status CheckPrefill(const Prefill& prefill) const;
  absl::Status CheckTicket(const Prefill& prefill, const kv::Ticket& ticket) const;
  void StartDraining(absl::Time now);
  bool TryStart(Job& job, absl::Time now);
  void OnWriteDone(const kv::WriteDone& done, absl::Time now);
  void OnPushEnded(const kv::PushEnded& ended);
  void OnReborn(const kv::Reborn& reborn);
  void OnLayerDone(const engine::LayerDone& done, absl::Time now);
  void OnStepDone(const engine::StepDone& done, absl::Time now);
  void ChunkDone(Job& job, const Chunk& chunk, const absl::Status& status, absl::Time now);
  bool FailWhere(absl::FunctionRef<bool(const Job&)> predicate, Failure reason,
                 const absl::Status& why, bool preempted = false);

  void Post(Job& job, uint32_t layer, uint32_t begin, uint32_t end, absl::Time now);
  void PostAllLayers(Job& job, uint32_t begin, uint32_t end, absl::Time now);
  void CommitIfComplete(Job& job, absl::Time now);
  PromptStats StatsOf(const Job& job) const;
  void NoteSpeed(const PromptStats& stats);
  const kv::PeerUp* OwnerOf(const Job& job) const;
  std::string About(const Job& job) const;  // for failpoints: attempt and owner
  void Emit(StreamId stream, FromWorker message, bool last = false);
  void Fail(Job& job, Failure reason, const absl::Status& why, bool preempted = false);
  // Ends the job without a word to its stream.  The job may be gone afterwards.
  void End(Job& job, const absl::Status& why);
  void FreeIfIdle(uint64_t key);
  void Refuse(StreamId stream, const absl::Status& why);
  void Log(PushEvent::Kind kind, const Job& job, uint32_t layer, uint32_t blocks, absl::Time now);

  const Options options_;
  engine::Engine& engine_;
  kv::WriterTransport& transport_;
  WorkerRef self_;
  const engine::KvLayout layout_;
  uint32_t context_max_ = 0;

  engine::BlockPool pool_;
  engine::PrefixCache cache_;
  LeaseTable leases_;

  std::vector<WorkerInput> inputs_;
  std::vector<WorkerOutput> outputs_;
  std::map<uint64_t, Job> jobs_;  // by key: in order of arrival
  absl::btree_map<StreamId, uint64_t> by_stream_;
  absl::btree_map<kv::GrantKey, uint64_t> by_grant_;
  absl::btree_map<kv::WriteId, WriteRecord> writes_;
  absl::btree_map<Incarnation, kv::PeerUp> links_;
  double tokens_per_second_ = 0;  // of prompts computed lately; 0: of none
  uint64_t queued_tokens_ = 0;
  uint32_t queued_ = 0;
  uint32_t active_ = 0;  // own blocks
  uint64_t next_key_ = 1;
  uint64_t next_write_ = 1;
  uint64_t step_id_ = 0;  // of the last step submitted
  uint64_t moves_ = 0;    // prompts started, layers and chunks computed, writes done
  uint64_t ticks_ = 0;
  std::vector<Chunk> step_;  // of the step that runs; empty: none does
  bool draining_ = false;
  absl::Time drain_until_ = absl::InfiniteFuture();
  Metrics totals_;
  std::deque<PushEvent> push_events_;
};

}  // namespace baton::prefill
