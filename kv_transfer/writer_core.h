// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The writer's half of the KV protocol: pushes, their writes, and the promise never to write.
//
// A pure state machine, driven as owner_core.h.
//
//   push:  Accept ─► Active ──SendCommit──► gone
//                      └──Revoke, Abandon, link lost──► ended; its posted writes drain
//
// Invariant (K11): a generation is recorded as closed before Quiet is said for it, and nothing
// is posted under a closed generation.  The record is bounded: the owner says the lowest
// generation still open; beyond closed_max the oldest are closed without a record of their own.
//
// Of one push in check_one_in every piece gets a sum, by which the owner sees whether its bytes
// arrived: in the header (path B), or in a frame once they are visible (path A).
//
// To an owner whose layout differs a write goes as several, each converted, when its turn comes,
// into a piece of the staging area, which is free again when the write has ended.  From there on
// it is as any write: its bytes, sums and bounds are those of the owner's layout.
//
// What writes take keeps the link's cost true (link_cost.h), which heartbeats tell the owner.
//
// Thread:     the driver's.  Cost: log(pushes) per call, a pass over bytes that get sums, and two
//             over bytes that are converted; nothing waits.
// Bounds (K5): bytes and writes in flight per link, writes waiting, pushes, closed generations,
//             staging pieces.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_transfer/conversion.h"
#include "kv_transfer/link_core.h"
#include "kv_transfer/link_cost.h"
#include "kv_transfer/link_io.h"
#include "kv_transfer/staging.h"
#include "kv_transfer/ticket.h"
#include "kv_transfer/transport.h"

namespace baton::kv {

class WriterCore final : public LinkCore {
 public:
  struct Options {
    LinkOptions link;
    uint64_t bytes_in_flight_max = 32ull << 20;  // per link; one larger write goes alone
    uint32_t writes_in_flight_max = 128;         // per link
    uint32_t writes_waiting_max = 65536;         // all links; more end RESOURCE_EXHAUSTED
    uint32_t owners_max = 1024;                  // incarnations known
    uint32_t pushes_max = 4096;
    uint32_t closed_max = 4096;  // generations recorded per owner incarnation
    uint32_t check_one_in = 1;   // so many pushes to an owner is one that has sums; 0: none
    StagingOptions staging;
  };

  // `self`: what our Hello says; its layout is the pool's.  `rebirth_seed`: chance handed in,
  // from which later incarnations are drawn.  `memory` is the pool, which is only read, and only
  // what a Write names; behind it, where conversions are allowed, the staging area
  // (MemoryBytes).  `io` and the memory outlive the core.
  WriterCore(const Options& options, Hello self, uint64_t rebirth_seed, absl::Span<uint8_t> memory,
             LinkIo& io);

  // Of a pool and a staging area that serves so many owners at a time.
  static uint64_t MemoryBytes(const Options& options, const Layout& pool, size_t owners);

  // ── from the role loop, through the driver: as WriterTransport ────────────────────
  // Calls for a key whose PushEnded is on its way are answered as WriterTransport says.
  void Accept(const Ticket& ticket);
  void Write(WriteId id, GrantKey key, uint32_t layer, absl::Span<const WritePiece> pieces);
  void SendCommit(const Commit& commit);
  void Abandon(GrantKey key, const absl::Status& why);

  // ── what the driver brings, beside the links' own ────────────────────────────────
  // Of LinkIo::Post.
  void WriteEnded(uint64_t write, const absl::Status& status);
  void DataClosed(LinkId link, bool fenced) override;

  // ── for metrics ───────────────────────────────────────────────────────────────────
  uint64_t bytes_in_flight() const;  // costs a look at every link
  size_t writes_waiting() const { return writes_waiting_; }
  size_t pushes() const { return pushes_.size(); }
  size_t staged() const { return staging_.taken(); }

 private:
  struct Push {
    Ticket ticket;
    LinkId link;
    std::vector<bool> begun;   // [layer][target]: a piece is written once
    uint64_t pieces_done = 0;  // with OK
    bool summed = false;       // all its pieces get sums
  };
  struct Waiting {
    WriteId id;
    DataWrite write;
  };
  struct Posted {
    WriteId id;
    GrantKey key;
    LinkId link;
    LinkWork work;
    uint32_t pieces = 0;
    std::optional<StagingArea::Piece> staged;
    bool ended = false;     // WriteEnded came
    bool answered = false;  // path B: WriteResult came; true from the start on path A
    absl::Status status;
    std::optional<DataWrite> to_sum;  // path A: once its bytes are visible
  };
  // What is on its way over one link.
  struct Flow {
    std::optional<ConversionPlan> plan;  // none: the owner's layout is ours
    std::deque<Waiting> waiting;
    uint64_t bytes = 0;
    uint32_t writes = 0;
    uint32_t staged = 0;  // of the writes
    LinkMeter meter;
    LinkEstimate estimate;
  };
  // A Write that became several.
  struct Split {
    uint32_t left = 0;
    LinkWork work;
    absl::Status status;
  };
  // One incarnation of an owner: what may never be written there again, and what still is.
  struct Owner {
    std::string worker;
    bool superseded = false;                       // forgotten once drained
    Generation floor;                              // all below are closed
    absl::btree_set<Generation> closed;            // at or above the floor
    absl::btree_map<Generation, uint32_t> posted;  // writes out
    absl::btree_set<Generation> quiet_owed;        // revoked, not drained
    uint64_t accepted = 0;                         // pushes
  };

  void HelloAccepted(Link& link) override;
  void Received(Link& link, const Frame& frame) override;
  void HeartbeatArrived(Link& link, const Heartbeat& heartbeat) override;
  Generation LowestOpen(const Link&) const override { return Generation(0); }
  LinkReport Report(const Link& link) const override;
  void LinkEnded(const Link& link, const absl::Status& why, bool silent) override;
  bool accepts_links() const override { return !fenced_; }

  absl::Status CheckTicket(const Ticket& ticket);
  void RevokeArrived(Link& link, const RevokeFrame& revoke);
  void ResultArrived(const Link& link, const WriteResult& result);
  void DeclaredDeadArrived(Link& link, Incarnation incarnation);
  void CloseGeneration(Owner& owner, Generation generation);
  void RaiseFloor(Incarnation owner, Generation lowest_open);
  // Ends a push: its waiting writes fail, its posted ones go on.  `tell`: PushEnded.
  void EndPush(GrantKey key, const absl::Status& why, bool tell);
  void DropWaiting(LinkId link, GrantKey key, const absl::Status& why);
  DataWrite MakeWrite(const Push& push, const Link& link, uint32_t layer,
                      absl::Span<const WritePiece> pieces) const;
  // The write, or a part of it, is over.
  void PartOver(WriteId id, const LinkWork& work, const absl::Status& status);
  void PostWaiting(LinkId link);
  void Post(Link& link, Flow& flow, std::optional<StagingArea::Piece> piece);
  void ConvertInto(StagingArea::Piece piece, const ConversionPlan& plan, DataWrite& write);
  void Unstage(Posted& posted);
  void AddSums(DataWrite& write) const;
  void SayWritten(Posted& posted);
  void Drained(Incarnation owner, Generation generation);
  void FinishIfOver(uint64_t write);
  // Posted or ended: what is known of the link.
  void Measure(Link& link, Flow& flow, const std::optional<LinkSample>& span);
  void SayQuietIfDrained(Incarnation owner, Generation generation);
  void BeRebornIfDrained();

  const Options options_;
  const absl::Span<const uint8_t> memory_;  // the pool, and the staging area behind it
  StagingArea staging_;
  const uint64_t rebirth_seed_;
  uint64_t rebirths_ = 0;
  bool fenced_ = false;  // declared dead: drain, then be reborn
  absl::btree_map<GrantKey, Push> pushes_;
  absl::btree_map<uint64_t, Posted> posted_;
  absl::btree_map<LinkId, Flow> flows_;
  absl::btree_map<WriteId, Split> splits_;
  absl::btree_map<Incarnation, Owner> owners_;
  std::deque<Incarnation> superseded_;  // owners that were replaced (K7)
  uint64_t last_write_ = 0;
  size_t writes_waiting_ = 0;
};

}  // namespace baton::kv
