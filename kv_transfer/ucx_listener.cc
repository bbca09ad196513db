// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_listener.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kv_transfer/ucx_status.h"

namespace baton::kv {

absl::StatusOr<std::unique_ptr<UcxListener>> UcxListener::Create(UcxWorker& worker,
                                                                 const SocketAddress& at) {
  auto result = std::make_unique<UcxListener>(worker);
  ucp_listener_params_t parameters = {};
  parameters.field_mask =
      UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  parameters.sockaddr.addr = reinterpret_cast<const sockaddr*>(&at.storage);
  parameters.sockaddr.addrlen = at.size;
  parameters.conn_handler.cb = &UcxListener::OnRequest;
  parameters.conn_handler.arg = result.get();
  const ucs_status_t made = ucp_listener_create(worker.handle(), &parameters, &result->listener_);
  if (made != UCS_OK) {
    result->listener_ = nullptr;
    return absl::FailedPreconditionError(absl::StrCat(
        "listening for RDMA connections at ", at.ToString(), ": UCX says \"",
        ucs_status_string(made),
        "\": `transfer` must be an address of an RDMA device's network (`rdma link`), and "
        "/dev/infiniband/rdma_cm must be there (`modprobe rdma_ucm`)"));
  }
  ucp_listener_attr_t attributes = {};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  RETURN_IF_ERROR(FromUcs(ucp_listener_query(result->listener_, &attributes),
                          "asking for the port of RDMA connections"));
  SocketAddress bound;
  bound.storage = attributes.sockaddr;
  result->port_ = bound.port();
  return result;
}

UcxListener::~UcxListener() {
  if (listener_ == nullptr) return;
  for (const Request& request : TakeRequests()) Reject(request);
  ucp_listener_destroy(listener_);
}

// Inside ucp_worker_progress: records, decides nothing.
void UcxListener::OnRequest(ucp_conn_request_h request, void* argument) {
  ucp_conn_request_attr_t attributes = {};
  attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ID;
  const bool named = ucp_conn_request_query(request, &attributes) == UCS_OK;
  auto* self = static_cast<UcxListener*>(argument);
  self->requests_.push_back({request, named ? attributes.client_id : 0});
}

std::vector<UcxListener::Request> UcxListener::TakeRequests() {
  return std::exchange(requests_, {});
}

absl::StatusOr<UcxEndpoint> UcxListener::Accept(const Request& request) {
  return UcxEndpoint::Accept(worker_, request.handle);
}

void UcxListener::Reject(const Request& request) {
  (void)ucp_listener_reject(listener_, request.handle);
}

}  // namespace baton::kv
