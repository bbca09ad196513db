// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Path B over plain TCP sockets, from the writer's side: kFlows connections to the port that
// the control link goes to.  A write is one message on one of them, the owner checks its
// header before a byte lands, and its WriteResult frame says whether it did.
//
// Unlike UCX's TCP transport it shares nothing between peers, so that one that has stopped
// holds up no other, and closing is a close(2).
#pragma once

#include <memory>
#include <vector>

#include "absl/container/btree_set.h"
#include "kv_transfer/message_probe.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/socket_flow.h"
#include "kv_transfer/socket_poller.h"
#include "kv_transfer/ucx_path.h"

namespace baton::kv {

class SocketPath final : public UcxPath {
 public:
  static constexpr size_t kFlows = 2;

  // `pool` and `probe` (message_probe.h) are the writer's own.  Ready descriptors come back with
  // keys `key` + 0, 1, …, kFlows.
  SocketPath(const SocketAddress& owner, absl::Span<const uint8_t> pool, absl::Span<uint8_t> probe,
             uint64_t key, SocketPoller& poller, PathHost& host);
  ~SocketPath() override;

  void Begin(uint64_t token, absl::Time now) override;
  void OnMessage(const PathMessage& message, absl::Time now) override;
  bool Step(absl::Time now) override;
  bool Handle(const ReadyFd& ready) override;
  const std::optional<absl::StatusOr<PathMeasure>>& result() const override {
    return probe_.result();
  }
  void Post(DataWrite write) override;
  bool busy() const override;
  void Close() override;
  std::optional<bool> closed() const override;

 private:
  struct Flow {
    FlowSender sender;
    bool connected = false;
    bool polls = false;  // for room, or for the connection
  };

  void Connected(size_t index);
  void Flush(size_t index);
  void Queue(const MessageHeader& header, absl::Span<const absl::Span<const uint8_t>> payload,
             uint64_t tag);
  void Poll(size_t index, bool want);

  const SocketAddress owner_;
  const absl::Span<const uint8_t> pool_;
  const uint64_t key_;
  SocketPoller& poller_;
  PathHost& host_;
  uint64_t token_ = 0;
  std::vector<Flow> flows_;
  size_t connected_ = 0;
  absl::Time connect_until_ = absl::InfiniteFuture();
  MessageProbe probe_;
  absl::btree_set<uint64_t> unsent_;  // writes that the kernel has not taken whole
  std::vector<uint64_t> sent_;        // scratch
  bool closed_ = false;
};

}  // namespace baton::kv
