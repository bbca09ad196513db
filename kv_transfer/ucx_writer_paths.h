// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The writer's side of all data paths: which one to try next, and those that are up.
//
// Memory writes first where the configuration allows them and the owner offers them (on one host,
// then over RDMA), then messages over plain sockets, then over UCX.  What was tried and why it did
// not come up is remembered per link: a fallback to a slower path is never silent.
//
// Paths are measured one at a time, so that they do not measure one another.
//
// Thread:     the reactor's.  Ownership: workers, region and host outlive it, except that the
//             workers are destroyed before it when the reactor ends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "kv_transfer/ucx_path.h"
#include "kv_transfer/ucx_region.h"
#include "kv_transfer/ucx_worker.h"

namespace baton::kv {

class UcxWriterPaths {
 public:
  // Workers may be null: that path is not available here.
  struct Workers {
    UcxWorker* memory = nullptr;
    UcxWorker* rdma = nullptr;
    UcxWorker* messages = nullptr;
  };
  UcxWriterPaths(const PathPolicy& policy, const ProcessId& self, const Workers& workers,
                 UcxRegion& region, SocketPoller& poller, PathHost& host)
      : policy_(policy),
        self_(self),
        workers_(workers),
        region_(region),
        pool_(region.memory()),
        poller_(poller),
        host_(host) {}

  void Prepare(LinkId link, const Hello& peer);
  void OnMessage(LinkId link, const PathMessage& message, absl::Time now);
  void Post(LinkId link, DataWrite write);
  void Close(LinkId link);
  // Some work of every path; true if there was any.
  bool Step(absl::Time now);
  // True if the key is one of a path's.
  bool Handle(const ReadyFd& ready);
  bool busy() const;
  // Links whose Close is complete, each once.
  std::vector<LinkId> TakeClosed();

 private:
  // kAgreed: the owner waits for the measurement, and this one for its turn.
  enum class State : uint8_t { kProposed, kAgreed, kMeasuring, kUp, kFailed, kClosing };
  struct Link {
    Hello peer;
    State state = State::kProposed;
    char trying = '?';
    std::unique_ptr<UcxPath> path;
    std::vector<std::unique_ptr<UcxPath>> retired;  // closing
    std::string tried;                              // what did not come up, and why
    uint64_t token = 0;                             // the owner's name for the link
    bool came_close = false;                        // one of them was agreed to, and failed
  };

  void TryNext(LinkId id, Link& link);
  absl::Status Open(LinkId id, Link& link);
  absl::Status OpenMemory(LinkId id, Link& link);
  absl::Status OpenRdma(LinkId id, Link& link);
  absl::Status OpenSockets(LinkId id, Link& link);
  absl::Status OpenMessages(Link& link);
  static void NoteTried(Link& link, const absl::Status& why);
  void Retire(Link& link);
  void NotThis(LinkId id, Link& link, const absl::Status& why);
  void Judge(LinkId id, Link& link);
  void MeasureNext(absl::Time now);
  void EndMeasure(LinkId id);

  const PathPolicy policy_;
  const ProcessId self_;
  const Workers workers_;
  UcxRegion& region_;
  const absl::Span<const uint8_t> pool_;
  SocketPoller& poller_;
  PathHost& host_;
  const double sums_bandwidth_ = SumsBandwidth();
  uint64_t last_key_ = 0;
  std::optional<LinkId> measuring_;  // has the probe region
  absl::btree_map<LinkId, Link> links_;
};

}  // namespace baton::kv
