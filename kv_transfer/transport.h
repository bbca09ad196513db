// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Moves KV bytes between the pools of two processes: an owner grants, a writer pushes.
//
// Two narrow views of one transport.  A decode worker sees an OwnerTransport, a prefill
// worker a WriterTransport; both are completion queues: call, then ask with Poll() what
// became of it.  Nothing ever runs on a thread, or at a moment, that the caller did not
// choose.  Links (connect, hello, verification, heartbeats, reconnection, K6, K7) are the
// transport's own business and show up only as PeerUp, PeerDown and PeerMeasured.
//
// Thread:     one owner thread makes every call; the transport rings its bell.
// Ownership:  the pool belongs to the transport, which allocated it (PoolBase()).
// Cost:       nothing blocks.
//
// Implementations: UcxTransport (this folder), sim::SimTransport; one contract-test suite.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/link_cost.h"
#include "base/messages.h"
#include "kv_transfer/ticket.h"

namespace baton::kv {

struct LinkInfo {
  std::string transport;  // what came up: "posix", "sysv", "cma", "tcp", "sim"
  char data_path = '?';   // 'A' memory writes, 'B' checked messages
  LinkCost cost;          // measured at connection, and since then by the writes
  absl::Time measured = absl::InfinitePast();  // when last; on the clock of this process
  uint64_t in_flight_bytes = 0;                // outstanding writes of the writer
  std::string link_class, expected;  // "rdma", "shm", "tcp": came up, should have; empty: any
  bool mixed_numerics = false;  // arithmetic or elements differ, as allowed: K8 is not claimed
  std::string conversion;       // what the writer converts: "bf16 to int8"; empty: nothing
  std::string tried;  // a writer's: what did not come up before this path, and why
};

// ── events of both sides ────────────────────────────────────────────────────────────
// A verified and measured link to this incarnation of a peer exists.
struct PeerUp {
  WorkerRef peer;
  LinkInfo link;
};
// The link is gone; `declared_dead`: this incarnation will never get another ticket (K7).
// Without a PeerUp before it: the peer was refused, FAILED_PRECONDITION names the field (K6); or
// both would pair (`agreed`), but no data path came up this time (UNAVAILABLE), or none that the
// configuration accepts (FAILED_PRECONDITION).
struct PeerDown {
  WorkerRef peer;
  absl::Status why;
  bool declared_dead = false;
  bool agreed = false;
};

// What is known of a link that is up has changed; at most one a second of each.
struct PeerMeasured {
  WorkerRef peer;
  LinkInfo link;
};

// ── events of the owner ─────────────────────────────────────────────────────────────
// A Commit that names an open grant and whose bytes are all visible (K3, K4).  It is the
// writer's last word: the grant is closed, nothing more will land.
struct CommitArrived {
  Commit commit;
};
// Nothing can land under this revoked generation any more, for ever (K2): its blocks may be
// freed.  Follows every Revoke exactly once, perhaps much later.
struct Quiet {
  Generation generation;
};
// The writer gave up or its link broke before a Commit.  The grant is still open: the owner
// must Revoke it.
struct WriterFailed {
  Generation generation;
  absl::Status why;
};

// ── events of the writer ────────────────────────────────────────────────────────────
using WriteId = StrongId<struct WriteTag, uint64_t>;  // the caller's; never reused

// Exactly one per Write.  OK: all bytes are visible to the owner.  Else any subset is, and
// nothing of it will land later than the Quiet that the transport gives the owner.  Either
// way the source blocks may be reused.
struct WriteDone {
  WriteId id;
  absl::Status status;
  LinkWork work;  // that it was, with OK: the bytes are those of the owner's layout
};
// The push cannot go on: refused, revoked, or its link broke.  At most once per Accept;
// writes still out end by WriteDone.
struct PushEnded {
  GrantKey key;
  absl::Status why;
};

// An owner had declared this process dead; it goes on under a new incarnation (rules 3, 4).
// Every push of the old one has ended before (PushEnded, WriteDone); links come up again.
struct Reborn {
  Incarnation incarnation;
};

// ── of the owner: its incarnation was declared dead; the process must exit (rule 7) ──
struct MustExit {
  absl::Status why;
};

using TransportEvent = std::variant<PeerUp, PeerDown, PeerMeasured, CommitArrived, Quiet,
                                    WriterFailed, WriteDone, PushEnded, Reborn, MustExit>;

class OwnerTransport {
 public:
  virtual ~OwnerTransport() = default;

  // Opens the ticket's blocks to its writer.  Call before the ticket leaves the process.
  // REQUIRES: a generation above all earlier ones; the writer's link is up.
  virtual void Grant(const Ticket& ticket) = 0;
  // Takes the grant back.  REQUIRES: granted, no CommitArrived seen, not yet revoked.  (A
  // Commit already on its way is then dropped, K4.)
  virtual void Revoke(Generation generation) = 0;
  virtual void Poll(std::vector<TransportEvent>& events) = 0;
};

struct WritePiece {
  BlockIndex source = 0;      // the writer's own block
  uint32_t target_index = 0;  // into the ticket's blocks
};

class WriterTransport {
 public:
  virtual ~WriterTransport() = default;

  // Claims the ticket, once (rule 11).  A ticket that was revoked, was seen before, or names
  // another owner incarnation than the link's is answered by PushEnded (K11, rule 1).
  // REQUIRES: no push of this key is alive here (the caller knows its own keys).
  virtual void Accept(const Ticket& ticket) = 0;
  // Copies one layer's pieces.  REQUIRES: accepted; target indices rise; no piece (layer,
  // target) is written twice under one key; source blocks stay as they are until WriteDone.
  // Writes after PushEnded complete with an error.
  virtual void Write(WriteId id, GrantKey key, uint32_t layer,
                     absl::Span<const WritePiece> pieces) = 0;
  // REQUIRES: every layer of every block of the ticket was written and is done with OK; the bytes
  // named are those that the WriteDones did.  Nothing may follow for the key.
  virtual void SendCommit(const Commit& commit) = 0;
  // Gives the push up (cancelled, failed).  Writes still out end by WriteDone.
  virtual void Abandon(GrantKey key, const absl::Status& why) = 0;
  virtual void Poll(std::vector<TransportEvent>& events) = 0;
};

}  // namespace baton::kv
