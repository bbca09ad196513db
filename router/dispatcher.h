// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Owns the life of every request of one front end: admit, place, hand off, relay, settle,
// retry or resume, and end exactly once (K9).
//
// A plain state machine.  Per request there is at most one current attempt; its decode stream
// and, on the disaggregated path, its prefill stream are the only ones listened to.  A new
// attempt starts only after the earlier one is settled: revoked by an answer, or by the loss
// or closing of its decode stream (K10, rule 8).  Whether an answer is complete is decided
// here, from the ids (rule 10).
//
//   queued → reserving → computing ───────────────→ decoding → over
//                      → prefilling → (settling) → landing ↗
//   every failure before `over` → queued again, or over; cancel and deadline end any state.
//
// Thread:     one owner thread; reads no clock: every Tick is one moment.
// Ownership:  the WorkerClient is borrowed and outlives the dispatcher.
// Cost:       Tick never blocks; it is linear in what arrived, not in what is open.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/ids.h"
#include "base/messages.h"
#include "router/client.h"
#include "router/health.h"
#include "router/worker_client.h"

namespace baton::router {

// A configured worker; its place in the list is its WorkerIndex.
struct WorkerSpec {
  std::string name;
  Role role = Role::kDecode;  // kPrefill or kDecode
};

// How an attempt ended.
enum class AttemptResult : uint8_t {
  kCompleted = 0,      // gave the answer's end: its last id, or a stop string
  kCancelled = 1,      // the request ended first: cancel or deadline
  kRefused = 2,        // decode had no memory; tried again later
  kPreempted = 3,      // handed back by a worker that needed memory or drains
  kPrefillFailed = 4,  // the writer, or the way from it
  kDecodeFailed = 5,
};
inline constexpr size_t kAttemptResults = 6;
inline constexpr std::array<const char*, kAttemptResults> kAttemptResultNames = {
    "completed", "cancelled", "refused", "preempted", "prefill_failed", "decode_failed"};

enum class WaitingStage : uint8_t { kAdmission = 0, kPrefill = 1, kKvTransfer = 2, kDecode = 3 };
inline constexpr size_t kWaitingStages = 4;
inline constexpr std::array<const char*, kWaitingStages> kWaitingStageNames = {
    "admission", "prefill", "kv_transfer", "decode"};

enum class PeerMetric : uint8_t {
  kConnecting = 0,
  kReady = 1,
  kDraining = 2,
  kSuspect = 3,
  kDead = 4
};
inline constexpr size_t kPeerMetrics = 5;
inline constexpr std::array<const char*, kPeerMetrics> kPeerMetricNames = {
    "connecting", "ready", "draining", "suspect", "dead"};

// What metrics and readiness show; gauges are of this moment, the rest only grows.
struct Snapshot {
  uint32_t running = 0;  // requests whose tokens flow
  std::array<uint32_t, kWaitingStages> waiting{};
  uint64_t waiting_tokens = 0;  // of requests that hold no reservation
  std::array<uint32_t, kPeerMetrics> prefill_peers{}, decode_peers{};
  std::vector<PeerMetric> peers;  // by WorkerIndex
  std::array<uint64_t, kAttemptResults> attempts{};
  uint64_t resumes = 0;
  uint64_t reconnects = 0;
  uint64_t late_messages = 0;    // of attempts that are not current (K4)
  uint64_t protocol_errors = 0;  // of the current one, but not what it may say (K10)
  bool ready = false;            // some decode worker takes work
};

class Dispatcher {
 public:
  struct Options {
    uint32_t colocate_below_tokens = 512;
    uint32_t attempts_max = 3;
    bool resume = true;  // false: an answer that has begun is never continued elsewhere
    // Requests without a reservation, and their tokens; what exceeds them is rejected at once.
    uint32_t queue_requests = 256;
    uint64_t queue_tokens = 1000000;
    absl::Duration progress_timeout = absl::Seconds(30);  // from a prefill's last sign of life
    absl::Duration settle_timeout = kDeadAfter;     // a decode that does not answer Revoke is dead
    absl::Duration decode_wait = absl::Seconds(2);  // for a decode to return, then UNAVAILABLE
    absl::Duration full_backoff = absl::Milliseconds(20);  // before asking a full decode again
    absl::Duration retry_after = absl::Seconds(1);         // what rejected clients are told
    uint32_t reserving_max = 16;                           // unanswered Reserves per decode
    uint32_t affinity_entries = 1u << 16;                  // remembered prefixes per pool
    Health::Options health;
  };

  // `self` names this front end in request ids; `seed` is what drawn seeds come from.
  Dispatcher(Options options, std::vector<WorkerSpec> workers, WorkerClient& client,
             Incarnation self, uint64_t seed);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Queues an input for the next Tick.  Submit: the client key was never used before.
  // Cancel and Complete of a request that is over, or unknown, do nothing.
  void Receive(ClientInput input);
  // Rejects every later Submit as UNAVAILABLE; what runs goes on.
  void StartDrain();

  // One moment: inputs, events, time-outs, placements.  True if anything happened.
  bool Tick(absl::Time now);
  // What the edge is to be told since the last call, oldest first.
  std::vector<ClientOutput> TakeOutputs();
  // The latest moment for the next Tick if nothing rings before.
  absl::Time NextWake() const;

  bool idle() const;  // no request is open
  Snapshot snapshot() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::router
