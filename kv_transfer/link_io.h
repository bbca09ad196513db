// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What the protocol's two state machines (owner_core.h, writer_core.h) ask of whoever drives
// them: the UCX reactor, or the simulator.
//
// A link is one control connection and the data path that belongs to it.  Its life:
//
//   driver: LinkOpened ─► core: Send(Hello) … Hello arrives ─► core: Prepare
//   driver: DataReady  ─► core: Send(Ready) … Ready arrives ─► PeerUp; writes may be posted
//   driver: LinkLost, or the core's own reasons ─► core: Close ─► driver: DataClosed
//
// Each LinkOpened is followed by exactly one Close, each Close by exactly one DataClosed.
// After Close the driver brings nothing of that link but WriteEnded, Landed and DataClosed;
// a core ignores whatever else was under way.  The writer's driver connects and, after a
// break, connects again with a growing pause; the owner's driver listens.
//
// Thread:     the driver's one thread makes every call in both directions.  A LinkIo method
//             never calls back into the core before it returned.
// Time:       handed in (`now`, LinkIo::Now), never going back.  Nothing here reads a clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "kv_transfer/frame.h"
#include "kv_transfer/hello.h"
#include "kv_transfer/layout.h"
#include "kv_transfer/transport.h"

namespace baton::kv {

using LinkId = StrongId<struct LinkTag, uint64_t>;  // one connection; never reused in a process

// One layer's pieces on their way to one peer.
struct DataWrite {
  DataHeader header;         // path B sends it; path A may log it
  std::vector<Copy> copies;  // source: offsets in our pool; target: in the owner's pool
  uint64_t bytes = 0;        // of all copies
};

class LinkIo {
 public:
  virtual ~LinkIo() = default;

  // Queues one frame; frames of a link arrive in order, or the link is lost.  A driver that has
  // more than it will buffer (K5: a few MiB) reports LinkLost, later, instead of growing.
  virtual void Send(LinkId link, std::vector<uint8_t> frame) = 0;

  // Ends the link: sends what is queued if that takes no waiting, closes the connection, and
  // tears the data path down.  Then exactly one DataClosed(link, fenced), when
  //   path A: the endpoint was closed by force and the close was awaited.  `fenced` is true
  //           only where that proves that nothing can land any more (rc); false on shared
  //           memory and CMA, where the peer's CPU writes.
  //   path B: no landing of this link goes on.  `fenced` is true.
  //   never prepared: at once; `fenced` is true.
  // Posted writes all end (WriteEnded) before DataClosed.
  virtual void Close(LinkId link, const absl::Status& why) = 0;

  // Brings the data path up: chooses it from both hellos' offers, opens endpoints, verifies a
  // known pattern in a probe region outside the pool, measures.  The two drivers may talk by
  // DataPathMessage frames, which they take out before the core (FrameArrived ignores them).
  // Answer: DataReady(link, info) or DataFailed(link, why), once, unless Close comes first.
  // An owner's driver opens a pidfd of a peer on the same host here, compares the start time
  // after opening, and reports ProcessExited when it fires, also long after the link is gone.
  // Without that fence a path A over shared memory must not come up.
  virtual void Prepare(LinkId link, const Hello& peer) = 0;

  // Writer only.  Starts the write; exactly one WriteEnded(header.write, status) follows.
  //   path A: OK after the flush: all bytes visible to the owner.  On an error too, only once
  //           none of its bytes can land later.
  //   path B: the source may be reused; the owner's WriteResult frame says whether it landed.
  virtual void Post(LinkId link, DataWrite write) = 0;

  // The moment, on the clock of the moments that the driver hands in: how long a write takes is
  // known no better than this.
  virtual absl::Time Now() const = 0;
};

struct LinkOptions {
  PairRules pair;
  absl::Duration heartbeat_interval = absl::Milliseconds(200);
  absl::Duration dead_after = absl::Seconds(2);      // nothing heard on a link for this long
  absl::Duration prepare_max = absl::Seconds(20);    // Hello accepted → Ready
  absl::Duration stuck_after = absl::Seconds(15);    // writes are out and none has ended since
  absl::Duration measured_every = absl::Seconds(1);  // between two PeerMeasured of a link
  uint32_t links_max = 256;                          // connections at once, strangers included
};

// stuck_after where front ends give a push up after `progress_timeout`: a link that carries
// nothing is given up no later than the pushes on it, or each new one would wait in vain; and no
// sooner than a silent one.
inline absl::Duration StuckAfter(absl::Duration progress_timeout) {
  const LinkOptions usual;
  return std::clamp(progress_timeout, usual.dead_after, usual.stuck_after);
}

enum class LinkState : uint8_t {
  kHello,      // waiting for the peer's Hello
  kPreparing,  // data path coming up
  kUp,
  kFenced,  // the peer's incarnation was declared dead: only DeclaredDead and Quiet (rule 3)
};

// For metrics and status.
struct LinkView {
  LinkId link;
  LinkState state = LinkState::kHello;
  WorkerRef peer;
  LinkInfo info;
  absl::Time heard;          // last frame
  uint64_t ticks = 0;        // of the peer's role loop
  absl::Time ticks_changed;  // long ago while frames come: alive but wedged
};

// Blocks whose bytes were compared with their writer's sum, by the link that they came over.
struct ComparedOver {
  std::string peer, transport;
  char data_path = '?';
  auto operator<=>(const ComparedOver&) const = default;
};
struct Compared {
  uint64_t right = 0, wrong = 0;
};
using ComparedBlocks = absl::btree_map<ComparedOver, Compared>;

// Messages that named nothing alive (K4) and other refusals, since the start.
struct LinkCounters {
  uint64_t stale_commits = 0;
  uint64_t refused_commits = 0;  // named more than had landed (K3)
  uint64_t stale_arrivals = 0;   // path B, refused by the generation check
  uint64_t stale_quiets = 0;
  uint64_t stale_failures = 0;
  uint64_t stale_tickets = 0;   // refused by Accept
  uint64_t refused_hellos = 0;  // K6
  uint64_t malformed_frames = 0;
  uint64_t declared_dead = 0;
};

}  // namespace baton::kv
