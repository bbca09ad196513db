// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The owner's half of the KV protocol: grants, their fences, and what may land in the pool.
//
// A pure state machine.  A driver (UCX reactor, simulator) brings what happened, in order, and
// carries out what LinkIo asks; the same object runs in production and in simulation.
//
//   grant:  Granted ──Commit──► closed
//              └──Revoke──► Quarantined ──Quiet, fence──► closed
//
// Invariant (K2): a generation leaves Quarantined only when nothing can land under it.
//   path A: the writer's Quiet; Hello of a later life of the same process; its exit; a closed
//           endpoint where that is a fence.
//   path B: no landing is under way: the check of each arrival is the fence.
// A piece whose bytes do not have the sum that its writer names breaks the grant (K3).
//
// Thread:     the driver's.  Cost: log(grants) per call, and a pass over bytes that have sums;
//             nothing waits.
// Bounds:     grants_max; per grant one bit per (layer, block); per writer the caller's cap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_transfer/link_core.h"
#include "kv_transfer/link_io.h"
#include "kv_transfer/ticket.h"
#include "kv_transfer/transport.h"

namespace baton::kv {

class OwnerCore final : public LinkCore {
 public:
  struct Options {
    LinkOptions link;
    uint32_t grants_max = 8192;  // open and quarantined; more is the caller's error
    uint32_t landings_per_link_max = 256;
    uint32_t dead_max = 1024;  // incarnations remembered as declared dead
  };

  // Blocks that one worker (all its incarnations, rule 14) may still write.
  struct Held {
    uint32_t open_blocks = 0;
    uint32_t quarantined_blocks = 0;
  };

  static constexpr size_t kComparedMax = 1024;  // entries; further links count as peer "others"

  // `self`: what our Hello says; its layout is the pool's.  `pool` is only read, and only what
  // a sum names under an open grant.  `io` and the pool outlive the core.
  OwnerCore(const Options& options, Hello self, absl::Span<const uint8_t> pool, LinkIo& io);

  // ── from the role loop, through the driver ────────────────────────────────────────
  // As OwnerTransport::Grant, except that the link may have been lost on the way here: then
  // WriterFailed follows at once.
  void Grant(const Ticket& ticket);
  // As OwnerTransport::Revoke, except that a Commit may have closed the grant already: then
  // Quiet follows at once.  (RevokeFilter drops the CommitArrived on the role loop's side.)
  void Revoke(Generation generation);

  // The process is gone and nothing of it runs any more (pidfd).
  void ProcessExited(const ProcessId& process);
  void DataClosed(LinkId link, bool fenced) override;

  // ── path B: check, land, tell ─────────────────────────────────────────────────────
  // Permission to land.  Until Landed(link, write) or DataClosed(link) the blocks cannot leave
  // quarantine (rule 12).
  struct Landing {
    std::vector<uint64_t> offsets;  // in the pool, one per target of the header
    uint64_t block_bytes = 0;       // at each of them
  };
  // An error: land nothing, skip the payload.  The core has counted and answered it.
  absl::StatusOr<Landing> CheckArrival(LinkId link, const DataHeader& header,
                                       uint64_t payload_bytes);
  // All bytes of a permitted message are visible in the pool.  If its header has sums they are
  // compared now: reads those bytes.  A landing that fails is a lost link: LinkLost, and it ends
  // with DataClosed.
  void Landed(LinkId link, uint64_t write);

  // ── for metrics ───────────────────────────────────────────────────────────────────
  // By worker name; only those that hold something.
  absl::btree_map<std::string, Held> held() const;
  size_t grants() const { return grants_.size(); }
  const ComparedBlocks& compared() const { return compared_; }

 private:
  struct GrantRecord {
    Ticket ticket;
    std::string worker;
    LinkId link;  // over which it must be filled; 0: none was up
    char path = 'A';
    bool broken = false;       // told as WriterFailed: no Commit any more, closed to the writer
    bool quarantined = false;  // revoked
    bool fenced = false;       // path A: nothing can land under it any more
    uint32_t landings = 0;     // path B, under way
    uint64_t pieces = 0;       // path B, landed
    uint64_t right = 0;        // pieces whose bytes have their sum
    // [layer][target].  Path B: landing or landed.  Path A, where sums come: compared.
    std::vector<bool> begun;
  };
  // One incarnation of a writer, as long as it matters.
  struct Life {
    std::string worker;
    ProcessId process;
    bool memory_writes = false;  // it ever had a link of path A
    bool dead = false;           // declared dead or superseded: no ticket again (K7)
    bool silent = false;         // its process exited or went on under another incarnation
    uint64_t since = 0;          // order of birth here, for eviction
  };
  struct LandingRecord {
    Generation generation;
    uint32_t pieces = 0;
    DataHeader sums;  // the header, if it has sums
  };
  using LandingKey = std::pair<LinkId, uint64_t>;

  void HelloAccepted(Link& link) override;
  void Received(Link& link, const Frame& frame) override;
  void HeartbeatArrived(Link& link, const Heartbeat& heartbeat) override;
  Generation LowestOpen(const Link& link) const override;
  LinkReport Report(const Link&) const override { return {}; }
  void LinkEnded(const Link& link, const absl::Status& why, bool silent) override;
  bool accepts_links() const override { return true; }

  void CommitFrame(const Link& link, const Commit& commit);
  void QuietArrived(const Link& link, const QuietFrame& quiet);
  void FailureArrived(const Link& link, const WriterFailedFrame& failure);
  absl::Status CheckHeader(LinkId link, const DataHeader& header, char path) const;
  absl::Status CheckRoom(LinkId link, const DataHeader& header, uint64_t payload_bytes) const;
  void WrittenArrived(Link& link, const DataHeader& header);
  // Whether the pieces have the bytes whose sums the header has; breaks the grant if not.
  bool Compare(const Link& link, GrantRecord& grant, const DataHeader& header);
  // Tells the role loop, once, that an open grant will see no Commit.
  void Break(GrantRecord& grant, const absl::Status& why);
  void Supersede(const Hello& newcomer);
  void Silence(Incarnation writer);
  // Ends the quarantine of a revoked grant if nothing can land any more.
  void Settle(Generation generation);
  std::vector<Generation> GrantsOf(Incarnation writer) const;
  void ForgetLives();

  const Options options_;
  const absl::Span<const uint8_t> pool_;
  ComparedBlocks compared_;
  absl::btree_map<Generation, GrantRecord> grants_;  // open and quarantined
  absl::btree_map<Incarnation, Life> lives_;
  absl::btree_map<LandingKey, LandingRecord> landings_;
  absl::btree_map<LinkId, uint32_t> landings_of_;  // how many per link
  Generation last_granted_;
  uint64_t births_ = 0;
};

}  // namespace baton::kv
