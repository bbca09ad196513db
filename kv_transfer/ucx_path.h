// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One data path from this writer to one owner, from the proposal to the last write.
//
//   Open (connect, map) ─► owner agrees ─► Begin (verify, measure) ─► result ─► Post …
//
// Implementations: UcxMemoryPath (A), SocketPath and UcxMessagePath (B).  The owner's side is
// ucx_owner_paths.h.
//
// Thread:     the reactor's.  Ownership: a path lives until closed(), or its UCX workers are
//             destroyed before it.
// Cost:       a Step moves at most about 1 MiB.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kv_transfer/link_io.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/socket_poller.h"
#include "kv_transfer/ucx_wire.h"

namespace baton::kv {

// What paths ask of the reactor.
class PathHost {
 public:
  virtual ~PathHost() = default;
  virtual void SendPath(LinkId link, const PathMessage& message) = 0;
  // The data path is up, or will not be: once per link.
  virtual void PathReady(LinkId link, const LinkInfo& info) = 0;
  virtual void PathFailed(LinkId link, const absl::Status& why) = 0;
  // It had been up.
  virtual void PathBroken(LinkId link, const absl::Status& why) = 0;
  virtual void WriteEnded(uint64_t write, const absl::Status& status) = 0;
  // Carries out what the role loop asked for before now, but closes nothing: a message that
  // has arrived may be the first under a grant that still waits.
  virtual void TakeGrants() = 0;
  // Of the other end of a control link.
  virtual absl::StatusOr<SocketAddress> PeerAddress(LinkId link) const = 0;
};

// Why no path came up.  REQUIRES: a kMeasured that is not ok.  FAILED_PRECONDITION: the two
// configurations leave none; UNAVAILABLE: one failed, and may do better on the next link.
absl::Status NoPath(const PathMessage& message);

// What the configuration asks of every link.
struct PathPolicy {
  bool allow_memory = true;    // path A on one host
  bool allow_sockets = true;   // path B
  bool allow_messages = true;  // path B over UCX
  uint64_t net_namespace = 0;  // our own; another one counts as another host, unless shm is forced
  bool require_rdma = false;
  double min_bandwidth = 0;  // bytes per second
};
// Proposals, in the order in which they are tried: memory writes on one host and over RDMA,
// messages over sockets and over UCX.
inline constexpr absl::string_view kProposals = "ARSB";
// The data path that a proposal is about, as the cores and metrics know it.
inline char DataPathOf(char proposal) { return proposal == 'A' || proposal == 'R' ? 'A' : 'B'; }

// FAILED_PRECONDITION names what came up, what was asked for, and the setting.
absl::Status CheckPolicy(const PathPolicy& policy, const WorkerRef& peer, const LinkInfo& info);

// Classes of links: "rdma", "shm", "tcp".
std::string ClassOf(absl::string_view transport);
// The class that should come up between two processes: RDMA where it is required, shared memory
// on one host where it is allowed, else what is allowed; "" on two hosts that may have either.
std::string ExpectedClass(const PathPolicy& policy, const ProcessId& self, const Hello& peer);

// Bytes per second that get a sum here; measures it, in less than a millisecond.
double SumsBandwidth();

// The best of several short windows: what the path can do, not what a busy machine left of it.
class RateMeter {
 public:
  void Start(absl::Time now) { start_ = window_ = now; }
  // `bytes` in all since Start.
  void Note(uint64_t bytes, absl::Time now) {
    if (now - window_ < absl::Milliseconds(5)) return;
    const double seconds = absl::FDivDuration(now - window_, absl::Seconds(1));
    best_ = std::max(best_, static_cast<double>(bytes - counted_) / seconds);
    counted_ = bytes;
    window_ = now;
  }
  absl::Duration elapsed(absl::Time now) const { return now - start_; }
  // Of `bytes` in all by `now`, should no window have ended.
  double best(uint64_t bytes, absl::Time now) const {
    const double seconds = absl::FDivDuration(now - start_, absl::Seconds(1));
    return best_ > 0 ? best_ : static_cast<double>(bytes) / std::max(seconds, 1e-9);
  }

 private:
  absl::Time start_, window_;
  uint64_t counted_ = 0;
  double best_ = 0;
};

// The best of repeated rounds; for the same reason.
class BestTime {
 public:
  void Note(absl::Duration took) { best_ = rounds_++ == 0 ? took : std::min(best_, took); }
  absl::Duration best() const { return best_; }
  uint32_t rounds() const { return rounds_; }

 private:
  absl::Duration best_;
  uint32_t rounds_ = 0;
};

// What one run more costs: the same bytes took `apart` as `runs` runs and `whole` as one.
inline absl::Duration PerOperation(absl::Duration apart, absl::Duration whole, uint64_t runs) {
  return std::max(apart - whole, absl::ZeroDuration()) / static_cast<int64_t>(runs - 1);
}

// Where the i-th of `count` runs lies among them: apart from its neighbours.  REQUIRES: `count` a
// power of two.
constexpr uint64_t Scattered(uint64_t i, uint64_t count) { return (37 * i + 5) % count; }

struct PathMeasure {
  LinkInfo info;
  bool rdma = false;
};

class UcxPath {
 public:
  virtual ~UcxPath() = default;

  // The owner agreed; `token` is its name for the link.
  virtual void Begin(uint64_t token, absl::Time now) = 0;
  virtual void OnMessage(const PathMessage& message, absl::Time now) = 0;
  // Does some work; true if there was any.
  virtual bool Step(absl::Time now) = 0;
  // True if the key is one of the path's.
  virtual bool Handle(const ReadyFd& ready) = 0;
  // Set after Begin; an error behind a good one: the path broke.
  virtual const std::optional<absl::StatusOr<PathMeasure>>& result() const = 0;
  // REQUIRES: a good result, not closed.
  virtual void Post(DataWrite write) = 0;
  // Something is under way that Step or UCX must go on with.
  virtual bool busy() const = 0;
  // Writes that did not end yet end with an error, at the latest when closed() is true.
  virtual void Close() = 0;
  // None: not yet.  Else whether that proves that nothing can land any more.
  virtual std::optional<bool> closed() const = 0;
};

}  // namespace baton::kv
