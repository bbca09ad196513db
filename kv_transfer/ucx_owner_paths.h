// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The owner's side of all data paths: agrees to them, checks what was written, and lands
// path-B messages in the pool, each only after the core permitted it.
//
// A landing is one copy inside the call that brought the message, so no landing ever goes on
// while anything else happens here (rule 12); a write in several messages is permitted once,
// with its first.
//
// Thread:     the reactor's.  Ownership: region, poller, host and core outlive it.
// Bounds:     one state per link; landings per link are the core's bound; one descriptor per
//             peer process that is or was linked and still lives, at most kWatchedMax.
#pragma once

#include <deque>
#include <optional>

#include "absl/container/btree_map.h"
#include "kv_transfer/owner_core.h"
#include "kv_transfer/socket_poller.h"
#include "kv_transfer/ucx_path.h"
#include "kv_transfer/ucx_region.h"

namespace baton::kv {

class UcxOwnerPaths {
 public:
  static constexpr size_t kWatchedMax = 1024;

  UcxOwnerPaths(const PathPolicy& policy, const ProcessId& self, UcxRegion& region,
                SocketPoller& poller, PathHost& host)
      : policy_(policy), self_(self), region_(region), poller_(poller), host_(host) {}
  ~UcxOwnerPaths();
  void SetCore(OwnerCore* core) { core_ = core; }

  void Prepare(LinkId link, const Hello& peer);
  void OnMessage(LinkId link, const PathMessage& message);
  // The answer to DataClosed's question: nothing can land of this link any more.
  bool Close(LinkId link);
  // A UCX message: foreign bytes.
  void OnData(absl::Span<const uint8_t> header, absl::Span<const uint8_t> payload);
  // True if the key is one of ours: a process that we watched has exited.
  bool Handle(const ReadyFd& ready);
  // Exits that the core was not told of.
  bool has_exits() const { return !exits_.empty(); }
  // Tells them.  Only when all that the processes sent was read: a writer's last words are its
  // Commits, and its exit must not overtake them.
  void TellExits();

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
    char agreed = '?';
    bool up = false;
    uint64_t token = 0;
    absl::btree_map<uint64_t, LandingState> landings;  // by write
    uint64_t bytes_landed = 0;
    uint64_t writes_landed = 0;
  };
  struct Watched {
    ProcessId process;
    Fd fd;
  };

  void Propose(LinkId link, Path& path, const PathMessage& message);
  absl::Status AgreeToMemory(const Hello& peer);
  void Answer(LinkId link, Path& path, char which, const absl::Status& status);
  void NextProbe();
  void EndProbe(LinkId link);
  void Check(LinkId link, const PathMessage& message);
  void Measured(LinkId link, Path& path, const PathMessage& message);
  void Probe(LinkId link, const MessageHeader& header, absl::Span<const uint8_t> payload);
  void Land(LinkId link, Path& path, const MessageHeader& header,
            absl::Span<const uint8_t> payload);

  const PathPolicy policy_;
  const ProcessId self_;
  UcxRegion& region_;
  SocketPoller& poller_;
  PathHost& host_;
  OwnerCore* core_ = nullptr;
  absl::btree_map<LinkId, Path> paths_;
  absl::btree_map<uint64_t, LinkId> tokens_;
  std::optional<LinkId> probing_;               // has the probe region
  std::deque<LinkId> wait_probe_;               // agreed to path A, waits for it
  absl::btree_map<uint64_t, Watched> watched_;  // by poller key
  std::vector<ProcessId> exits_;
  std::vector<uint8_t> scratch_;  // where path-B probes land
  uint64_t last_token_ = 0;
  uint64_t last_watched_ = 0;
  uint64_t messages_refused_ = 0;
  uint64_t bytes_landed_ = 0;
};

}  // namespace baton::kv
