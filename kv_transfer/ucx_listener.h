// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Where writers connect to by RDMA.
//
// The connection manager of the RDMA device (rdmacm) brings connections up, not UCX's own
// exchange of datagrams: that one drops every packet on RoCE devices whose driver leaves the
// packet's service level empty (UCX before 1.19), and leaves the owner nothing to close.  Each
// request waits until its writer's link says that it is meant; nothing can be written before
// Accept.
//
// Thread:     the worker's.
// Ownership:  the worker outlives it.  Requests are named by their place here and used once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/ucx_endpoint.h"
#include "kv_transfer/ucx_worker.h"

namespace baton::kv {

class UcxListener {
 public:
  struct Request {
    ucp_conn_request_h handle;
    uint64_t client;  // UcxWorker::Options.client of who asks; a stranger may say anything
  };

  // FAILED_PRECONDITION: no RDMA device has this address, or there is no rdma_cm.
  static absl::StatusOr<std::unique_ptr<UcxListener>> Create(UcxWorker& worker,
                                                             const SocketAddress& at);
  // Refuses what waits.
  ~UcxListener();
  UcxListener(const UcxListener&) = delete;
  UcxListener& operator=(const UcxListener&) = delete;

  // Of RDMA connections; no TCP port.
  uint16_t port() const { return port_; }
  // Since the last call; each is then accepted or rejected.
  std::vector<Request> TakeRequests();
  absl::StatusOr<UcxEndpoint> Accept(const Request& request);
  void Reject(const Request& request);

  // For the factory.
  explicit UcxListener(UcxWorker& worker) : worker_(worker) {}

 private:
  static void OnRequest(ucp_conn_request_h request, void* argument);

  UcxWorker& worker_;
  ucp_listener_h listener_ = nullptr;
  uint16_t port_ = 0;
  std::vector<Request> requests_;
};

}  // namespace baton::kv
