// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What both halves of the protocol do with links: hello, pairing, readiness, heartbeats,
// silence.  OwnerCore and WriterCore add what a link is for.
//
// One link per peer: a later one from the same process replaces the earlier, one from another
// process of the same name is refused while the earlier link lives.
//
// Thread:     the driver's (link_io.h).  A driver holds a LinkCore& and needs not know which.
// Cost:       log(links) per call, links per Tick.
// Bounds:     links_max connections; a stranger that says no Hello is gone after dead_after.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kv_transfer/link_io.h"

namespace baton::kv {

class LinkCore {
 public:
  virtual ~LinkCore() = default;
  LinkCore(const LinkCore&) = delete;
  LinkCore& operator=(const LinkCore&) = delete;

  // ── what the driver brings (link_io.h has the order) ──────────────────────────────
  // `to`: the configured name of the peer that was dialled; none: it dialled us, or it may be any.
  void LinkOpened(LinkId link, const std::string& to, absl::Time now);
  // One whole frame (FrameCutter).  Foreign bytes: anything malformed ends the link.
  void FrameArrived(LinkId link, absl::Span<const uint8_t> frame, absl::Time now);
  void LinkLost(LinkId link, const absl::Status& why);
  void DataReady(LinkId link, const LinkInfo& info);
  void DataFailed(LinkId link, const absl::Status& why);
  virtual void DataClosed(LinkId link, bool fenced) = 0;
  // Heartbeats and silence; bring the frames that wait before it.  `role_ticks` is the role
  // loop's own counter.  Call by NextDeadline(), or more often.
  void Tick(absl::Time now, uint64_t role_ticks);
  absl::Time NextDeadline() const;

  // ── what came of it ───────────────────────────────────────────────────────────────
  // Appends the events since the last call, oldest first.
  void Poll(std::vector<TransportEvent>& events);
  bool has_events() const { return !events_.empty(); }

  // Our Hello; its incarnation changes when a writer is reborn.
  const Hello& self() const { return self_; }
  const LinkCounters& counters() const { return counters_; }
  std::vector<LinkView> links() const;

 protected:
  struct Link {
    LinkId id;
    std::string to;  // whom we dialled
    LinkState state = LinkState::kHello;
    std::optional<Hello> peer;
    LinkInfo info;
    LinkInfo told;            // as the last PeerUp or PeerMeasured said
    absl::Time told_at;       // when
    bool data_ready = false;  // ours
    bool peer_ready = false;  // theirs
    absl::Time since;         // of the state
    absl::Time heard, said;   // last frame in, last heartbeat out
    // Writer: when a write last ended, or the first of those that are out was posted.
    absl::Time moved = absl::InfiniteFuture();  // none is out
    uint64_t ticks = 0;
    absl::Time ticks_changed;
  };

  LinkCore(const LinkOptions& options, Hello self, LinkIo& io);

  // ── what a half adds ──────────────────────────────────────────────────────────────
  // The peer pairs with us.  Calls Fence or Prepare on the link, or EndLink.
  virtual void HelloAccepted(Link& link) = 0;
  // Any frame but Hello, HelloRefused, Ready, Heartbeat.  The peer is known.
  virtual void Received(Link& link, const Frame& frame) = 0;
  virtual void HeartbeatArrived(Link& link, const Heartbeat& heartbeat) = 0;
  virtual Generation LowestOpen(const Link& link) const = 0;
  // For the heartbeat.
  virtual LinkReport Report(const Link& link) const = 0;
  // Removed from the table; the peer was known.  `silent`: nothing was heard for dead_after.
  virtual void LinkEnded(const Link& link, const absl::Status& why, bool silent) = 0;
  // False: take no connection now.
  virtual bool accepts_links() const = 0;

  void Prepare(Link& link);
  void Fence(Link& link) { link.state = LinkState::kFenced; }
  // Close, removal, LinkEnded.  `link` is gone after it.
  void EndLink(LinkId link, const absl::Status& why, bool silent = false);
  // None: each end is whom the other means.
  std::optional<Refusal> CheckMeant(const Link& link, const Hello& hello) const;
  void Refuse(Link& link, const Refusal& refusal);
  void Send(const Link& link, const Frame& frame) { io_.Send(link.id, EncodeFrame(frame)); }
  void Emit(TransportEvent event);

  Link* Find(LinkId link);
  // The link to this incarnation in state kUp; in any state past Hello.
  Link* FindUp(Incarnation peer);
  Link* FindKnown(Incarnation peer);
  WorkerRef PeerOf(const Link& link) const { return link.peer->self; }

  const LinkOptions link_options_;
  Hello self_;
  LinkIo& io_;
  LinkCounters counters_;
  absl::btree_map<LinkId, Link> links_;
  std::vector<TransportEvent> events_;
  absl::Time now_ = absl::InfinitePast();  // the last moment handed in

 private:
  void HelloArrived(LinkId id, const Hello& hello);
  void ReadyArrived(Link& link, const Ready& ready);
  void DescribePair(Link& link) const;
  void UpIfReady(Link& link);
  void TellIfMeasured(Link& link, absl::Time now);
  void SayIfPreparing(const Link& link, const absl::Status& why);
  void ForgiveOwnAbsence(absl::Time now);

  absl::Time last_tick_ = absl::InfinitePast();
};

}  // namespace baton::kv
