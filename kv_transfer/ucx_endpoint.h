// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One way to one peer's worker: puts into its memory, messages to it.
//
// An endpoint fails once and for good: failure() says why, later posts are refused with it,
// and the way back is a new endpoint of a new incarnation's address (K7).  Operations that
// UCX forgets when a peer dies are ended when the close is complete, so every UcxDone of
// an accepted post is called exactly once, by the worker's destructor at the latest.
//
// Thread:     the worker's.
// Ownership:  the worker outlives it; buffers of a post live until its UcxDone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/ucx_handles.h"
#include "kv_transfer/ucx_lanes.h"
#include "kv_transfer/ucx_worker.h"

namespace baton::kv {

// Whether UCX has confirmed the close: nothing of the endpoint runs any more.  If it has not, it
// has refused.
using UcxClosed = absl::AnyInvocable<void(bool confirmed)>;

struct UcxOperation {
  struct UcxEndpointState* endpoint;
  UcxDone done;
  std::vector<uint8_t> header;
  std::vector<ucp_dt_iov_t> payload;
};

// Outlives the endpoint until UCX has confirmed the close.
struct UcxEndpointState {
  absl::Status failure;
  std::vector<std::unique_ptr<UcxOperation>> operations;  // not yet ended by UCX
  UcxClosed closed;
};

class UcxEndpoint {
 public:
  // `address` is foreign bytes that came over an accepted link.
  static absl::StatusOr<UcxEndpoint> Connect(UcxWorker& worker, absl::Span<const uint8_t> address);
  // To a UcxListener; comes up, or fails, later.  Puts may be posted at once.
  static absl::StatusOr<UcxEndpoint> ConnectTo(UcxWorker& worker, const SocketAddress& listener);
  // The other end of that; its close is the end of whatever the peer may still have posted.
  static absl::StatusOr<UcxEndpoint> Accept(UcxWorker& worker, ucp_conn_request_h request);
  UcxEndpoint() = default;
  UcxEndpoint(UcxEndpoint&& other) noexcept;
  UcxEndpoint& operator=(UcxEndpoint&& other) noexcept;
  // Closes by force; the worker awaits UCX's confirmation.
  ~UcxEndpoint();

  // The same, and says when UCX has confirmed it.  Keys must be gone before.  REQUIRES: open().
  void Close(UcxClosed closed);

  bool open() const { return endpoint_ != nullptr; }
  const absl::Status& failure() const { return state_->failure; }

  // Maps a peer's memory.  REQUIRES for memory of this host: its owner lives (UCX before
  // 1.19 crashes on the key of a dead one).
  absl::StatusOr<UcxKeyHandle> UnpackKey(absl::Span<const uint8_t> packed);

  // Copies without the peer's help.  Complete for the peer only after a Flush.
  absl::Status Put(const void* source, uint64_t bytes, uint64_t remote, ucp_rkey_h key);
  // Everything put before is visible to the peer.
  void Flush(UcxDone done);
  // The header is copied; the payload's pieces must live until `done`.
  void Send(uint16_t id, absl::Span<const uint8_t> header, absl::Span<const ucp_dt_iov_t> payload,
            UcxDone done);

  // Settled after the first Flush.
  std::vector<UcxLane> Lanes() const;
  size_t outstanding() const { return state_ == nullptr ? 0 : state_->operations.size(); }

 private:
  static absl::StatusOr<UcxEndpoint> Create(UcxWorker& worker, ucp_ep_params_t parameters,
                                            absl::string_view what);
  UcxOperation* NewOperation(UcxDone done);
  void Posted(UcxOperation* operation, void* request, const char* what);
  void CloseNow();

  UcxWorker* worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  std::unique_ptr<UcxEndpointState> state_;
};

}  // namespace baton::kv
