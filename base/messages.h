// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a front end and a worker say to each other about one attempt, and about themselves.
//
// Per attempt and worker there is one bidirectional stream: the front end opens it with
// Reserve (decode) or Prefill (prefill); messages arrive in order; closing it, or losing
// it, is a cancel.  A worker ends a stream with Finished or Ended, never silently.
// Plain values: the adaptors (gRPC, simulation) carry them, the logic reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/link_cost.h"
#include "base/request.h"

namespace baton {

enum class Role : uint8_t { kFrontend = 0, kPrefill = 1, kDecode = 2 };

// A worker in one of its lives.  `worker` is its configured name and survives restarts.
struct WorkerRef {
  std::string worker;
  Incarnation incarnation;
  auto operator<=>(const WorkerRef&) const = default;
};

// ── front end → decode ──────────────────────────────────────────────────────────────
// Take memory for the attempt.  The answer is Reserved or Ended.
struct Reserve {
  AttemptId attempt;
  Incarnation decode;  // whom it was chosen for: another life may have other weights (K7, K8)
  Sequence sequence;
  absl::Duration remaining;         // of the request's deadline; the worker's back-stop is + 1 s
  std::optional<WorkerRef> writer;  // who would run the prompt; none: decode runs it itself
  uint32_t colocate_below = 0;      // fewer uncached tokens than this: decode runs it itself
};
// Settle the attempt: the answer is Settled, and `committed` wins.
struct Revoke {};

// ── front end → prefill ─────────────────────────────────────────────────────────────
struct Prefill {
  AttemptId attempt;
  Sequence sequence;
  absl::Duration remaining;
  std::vector<uint8_t> ticket;  // as decode issued it; opaque to the front end
};

using ToWorker = std::variant<Reserve, Revoke, Prefill>;

// ── decode → front end ──────────────────────────────────────────────────────────────
struct Reserved {
  uint32_t cached_tokens = 0;  // found in decode's prefix cache
  uint32_t uncached_tokens = 0;
  uint32_t first_pushed_position = 0;  // multiple of the block size
  std::vector<uint8_t> ticket;         // empty: decode runs the prompt itself, already queued
};
// How the prompt was run; comes with (just before) the attempt's first token.
struct PromptStats {
  bool pushed = false;         // by a prefill worker
  uint32_t cached_tokens = 0;  // prompt tokens from the prefix cache of whoever ran it
  uint32_t computed_tokens = 0;
  uint64_t kv_bytes = 0;  // pushed
  uint32_t kv_blocks = 0;
  std::string transport;     // "posix", "sysv", "tcp", …; empty if not pushed
  absl::Duration queued;     // in the queue of whoever ran it
  absl::Duration compute;    // first chunk starts → last layer computed
  absl::Duration transfer;   // time with at least one write outstanding
  absl::Duration exposed;    // last layer computed → last byte visible
  absl::Duration predicted;  // transfer, by what was known of the link; 0: nothing was
};
struct Token {
  uint32_t index = 0;  // in the whole answer, from 0
  OutputToken token;
};
struct Settled {
  bool committed = false;
};

// ── prefill → front end ─────────────────────────────────────────────────────────────
// A sign of life: queued or computing; restarts the progress time-out.
struct Progress {
  uint32_t tokens_done = 0;
};
struct PrefillDone {
  PromptStats stats;
};

// ── either → front end: the last word on a stream ───────────────────────────────────
struct Finished {
  enum class Reason : uint8_t { kStop = 0, kLength = 1 } reason = Reason::kStop;
};
// The worker gives the attempt up.  UNAVAILABLE and RESOURCE_EXHAUSTED may be tried again;
// `preempted` says that nothing is wrong and the front end may resume anywhere.
struct Ended {
  absl::Status why;
  bool preempted = false;
};

using FromWorker =
    std::variant<Reserved, PromptStats, Token, Settled, Progress, PrefillDone, Finished, Ended>;

// ── a worker's mailbox and outbox ───────────────────────────────────────────────────
using StreamId = StrongId<struct StreamTag, uint64_t>;  // unique in its process's life

struct StreamOpened {
  StreamId stream;
  ToWorker first;
};
struct StreamMessage {
  StreamId stream;
  ToWorker message;
};
struct StreamClosed {  // by the front end, or lost
  StreamId stream;
};
struct FrontendAlive {  // its heartbeat
  Incarnation frontend;
};
struct StartDrain {};
using WorkerInput =
    std::variant<StreamOpened, StreamMessage, StreamClosed, FrontendAlive, StartDrain>;

struct WorkerOutput {
  StreamId stream;
  FromWorker message;
  bool last = false;  // the worker ends the stream after it
};

// ── a worker about itself; answers each heartbeat ───────────────────────────────────
struct LinkStatus {
  WorkerRef peer;
  std::string transport;
  LinkCost cost;
  uint64_t in_flight_bytes = 0;
};
struct WorkerStatus {
  WorkerRef self;
  Role role = Role::kPrefill;
  uint64_t ticks = 0;  // of the role loop: alive but wedged is seen
  bool ready = false;
  bool draining = false;
  uint32_t context_max = 0;
  uint64_t model_fingerprint = 0;
  uint32_t blocks_total = 0;
  uint32_t blocks_available = 0;  // free or cached
  uint32_t attempts = 0;          // running and waiting
  uint32_t waiting_tokens = 0;    // prompt tokens not yet computed
  uint32_t kv_layers = 0;
  uint64_t kv_block_bytes = 0;          // of one block, all layers
  double prompt_tokens_per_second = 0;  // of prefill: computed lately; 0: not known
  std::vector<LinkStatus> links;        // peers it can exchange KV with now
};

}  // namespace baton
