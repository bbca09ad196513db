// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The owner's side of all data paths: agrees to them, checks what was written, and lands
// path-B messages in the pool, each only after the core permitted it.
//
// What UCX brings is copied inside the call that brought it; a flow is read into the pool as it
// comes, over many turns.  Either way the core knows of the landing until it is whole, or until
// Close has ended it (rule 12).
//
// What RDMA brings passes nobody's check; but each connection is accepted for one link that has
// proposed it, and closed with that link: nothing lands any more once UCX has confirmed it (K2).
//
// Thread:     the reactor's.  Ownership: region, poller, host and core outlive it, and the worker
//             of the listener, but for accepted connections that it has not closed yet.
// Bounds:     one state per link, kFlowsMax flows and kConnectionsMax RDMA connections each;
//             landings per link are the core's bound; one descriptor per peer process that is or
//             was linked and still lives, at most kWatchedMax.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "kv_transfer/owner_core.h"
#include "kv_transfer/socket_flow.h"
#include "kv_transfer/socket_poller.h"
#include "kv_transfer/ucx_listener.h"
#include "kv_transfer/ucx_path.h"
#include "kv_transfer/ucx_region.h"

namespace baton::kv {

class UcxOwnerPaths {
 public:
  static constexpr size_t kWatchedMax = 1024;
  static constexpr int kFlowsMax = 8;
  // More than one: an earlier one of the same writer may have been on its way.
  static constexpr size_t kConnectionsMax = 4;

  // `listener`: of RDMA connections; null: none.
  UcxOwnerPaths(const PathPolicy& policy, const ProcessId& self, UcxRegion& region,
                std::unique_ptr<UcxListener> listener, SocketPoller& poller, PathHost& host)
      : policy_(policy),
        self_(self),
        region_(region),
        listener_(std::move(listener)),
        poller_(poller),
        host_(host) {}
  ~UcxOwnerPaths();
  void SetCore(OwnerCore* core) { core_ = core; }

  void Prepare(LinkId link, const Hello& peer);
  void OnMessage(LinkId link, const PathMessage& message);
  // The answer to DataClosed's question: nothing can land of this link any more.  None: TakeClosed
  // will have it.
  std::optional<bool> Close(LinkId link);
  std::vector<std::pair<LinkId, bool>> TakeClosed() { return std::exchange(closed_, {}); }
  // Closes are under way.
  bool busy() const { return !closing_.empty(); }
  // Accepts and refuses RDMA connections; true if there were any.
  bool Step();
  // Before the worker of the listener ends.
  void StopListening() { listener_.reset(); }
  // A UCX message: foreign bytes.
  void OnData(absl::Span<const uint8_t> header, absl::Span<const uint8_t> payload);
  // A connection that began as a flow; closed unless the token is that of a link over sockets.
  void AddFlow(Fd fd, uint64_t token);
  // True if the key is one of ours: a flow has bytes, or a process that we watched has exited.
  bool Handle(const ReadyFd& ready);
  // Exits, and flows that broke in the middle of a write, that the core was not told of.
  bool has_ends() const { return !exits_.empty() || !broken_.empty(); }
  // Tells them.  Only when all that the processes sent was read: a writer's last words are its
  // Commits, and its end must not overtake them.
  void TellEnds();

  uint64_t messages_refused() const { return messages_refused_; }
  uint64_t bytes_landed() const { return bytes_landed_; }
  uint64_t bytes_landed(LinkId link) const;

 private:
  struct LandingState {
    OwnerCore::Landing landing;
    uint64_t received = 0;
    uint64_t total = 0;
  };
  struct Path {
    Hello peer;
    char proposed = '?';
    char agreed = '?';
    bool up = false;
    uint64_t client = 0;                 // R: what its connection says of itself
    std::vector<UcxEndpoint> endpoints;  // R: what its writes come through
    uint64_t token = 0;
    absl::btree_map<uint64_t, LandingState> landings;  // by write
    uint64_t bytes_landed = 0;
  };
  struct Closing {
    size_t connections = 0;  // over RDMA, whose close UCX has not ended
    bool fenced = false;     // so far
  };
  struct Watched {
    ProcessId process;
    Fd fd;
  };

  struct Flow {
    LinkId link;
    FlowReceiver receiver;
    absl::Span<uint8_t> probe;  // where the one that is being read lands
  };
  class FlowTarget;

  absl::Status Agree(const Path& path, char which);
  void Propose(LinkId link, Path& path, const PathMessage& message);
  absl::Status AgreeToMemory(const Hello& peer);
  void Answer(LinkId link, Path& path, const absl::Status& status);
  // The link that a connection is meant for.
  Path* Expecting(uint64_t client);
  void NextProbe();
  void EndProbe(LinkId link);
  void Check(LinkId link, const PathMessage& message);
  void Measured(LinkId link, Path& path, const PathMessage& message);
  void AnswerProbe(LinkId link, const MessageHeader& header, absl::Span<const uint8_t> payload);
  // Empty: dropped, since the link is not being measured, or too large.
  absl::Span<uint8_t> ProbePlace(LinkId link, const MessageHeader& header, uint64_t bytes);
  // None: refused, and counted.
  std::optional<OwnerCore::Landing> Permit(LinkId link, const MessageHeader& header);
  void Landed(LinkId link, Path& path, uint64_t write, uint64_t bytes);
  void Land(LinkId link, Path& path, const MessageHeader& header,
            absl::Span<const uint8_t> payload);
  void EndFlow(uint64_t key, const absl::Status& why);

  const PathPolicy policy_;
  const ProcessId self_;
  UcxRegion& region_;
  std::unique_ptr<UcxListener> listener_;
  SocketPoller& poller_;
  PathHost& host_;
  OwnerCore* core_ = nullptr;
  absl::btree_map<LinkId, Path> paths_;
  absl::btree_map<uint64_t, LinkId> tokens_;
  std::optional<LinkId> probing_;  // has the probe region
  std::deque<LinkId> wait_probe_;  // agreed to the proposed path, waits for it
  uint64_t probe_at_ = 0;          // in the probe region, where the next probe lands
  absl::btree_map<LinkId, Closing> closing_;
  std::vector<std::pair<LinkId, bool>> closed_;
  absl::btree_map<uint64_t, Watched> watched_;  // by poller key
  std::vector<ProcessId> exits_;
  absl::btree_map<uint64_t, Flow> flows_;  // by poller key
  std::vector<std::pair<LinkId, absl::Status>> broken_;
  uint64_t last_token_ = 0;
  uint64_t last_watched_ = 0;
  uint64_t last_flow_ = 0;
  uint64_t messages_refused_ = 0;
  uint64_t bytes_landed_ = 0;
};

}  // namespace baton::kv
