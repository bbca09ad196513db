// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_endpoint.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/status_macros.h"
#include "kv_transfer/ucx_status.h"

namespace baton::kv {
namespace {

// Inside ucp_worker_progress: records, decides nothing.
void OnEndpointError(void* argument, ucp_ep_h, ucs_status_t status) {
  auto* state = static_cast<UcxEndpointState*>(argument);
  if (state->failure.ok()) state->failure = FromUcs(status, "the peer's endpoint failed");
}

void OnOperationDone(void* request, ucs_status_t status, void* argument) {
  auto* operation = static_cast<UcxOperation*>(argument);
  if (request != nullptr) ucp_request_free(request);
  auto& operations = operation->endpoint->operations;
  for (auto it = operations.begin(); it != operations.end(); ++it) {
    if (it->get() != operation) continue;
    const std::unique_ptr<UcxOperation> ended = std::move(*it);
    operations.erase(it);
    // Told already where the endpoint was closed long ago.
    if (ended->done != nullptr) ended->done(FromUcs(status, "kv transfer"));
    return;
  }
}

}  // namespace

absl::StatusOr<UcxEndpoint> UcxEndpoint::Connect(UcxWorker& worker,
                                                 absl::Span<const uint8_t> address) {
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  return Create(worker, parameters, "connecting to the peer's UCX worker");
}

absl::StatusOr<UcxEndpoint> UcxEndpoint::ConnectTo(UcxWorker& worker,
                                                   const SocketAddress& listener) {
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
  parameters.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER | UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID;
  parameters.sockaddr.addr = reinterpret_cast<const sockaddr*>(&listener.storage);
  parameters.sockaddr.addrlen = listener.size;
  return Create(worker, parameters, absl::StrCat("connecting by RDMA to ", listener.ToString()));
}

absl::StatusOr<UcxEndpoint> UcxEndpoint::Accept(UcxWorker& worker, ucp_conn_request_h request) {
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  parameters.conn_request = request;
  return Create(worker, parameters, "accepting an RDMA connection");
}

absl::StatusOr<UcxEndpoint> UcxEndpoint::Create(UcxWorker& worker, ucp_ep_params_t parameters,
                                                absl::string_view what) {
  UcxEndpoint result;
  result.worker_ = &worker;
  result.state_ = std::make_unique<UcxEndpointState>();
  parameters.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = &OnEndpointError;
  parameters.err_handler.arg = result.state_.get();
  const ucs_status_t made = ucp_ep_create(worker.handle(), &parameters, &result.endpoint_);
  if (made != UCS_OK) result.endpoint_ = nullptr;
  RETURN_IF_ERROR(FromUcs(made, what));
  return result;
}

UcxEndpoint::UcxEndpoint(UcxEndpoint&& other) noexcept { *this = std::move(other); }

UcxEndpoint& UcxEndpoint::operator=(UcxEndpoint&& other) noexcept {
  if (this == &other) return *this;
  CloseNow();
  worker_ = std::exchange(other.worker_, nullptr);
  endpoint_ = std::exchange(other.endpoint_, nullptr);
  state_ = std::move(other.state_);
  return *this;
}

UcxEndpoint::~UcxEndpoint() { CloseNow(); }

void UcxEndpoint::Close(UcxClosed closed) {
  ENSURE(open());
  state_->closed = std::move(closed);
  CloseNow();
}

void UcxEndpoint::CloseNow() {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucp_ep_close_nbx(std::exchange(endpoint_, nullptr), &parameters);
  const bool refused = UCS_PTR_IS_ERR(request);
  worker_->AwaitClose(refused ? nullptr : request, !refused, std::move(state_));
}

absl::StatusOr<UcxKeyHandle> UcxEndpoint::UnpackKey(absl::Span<const uint8_t> packed) {
  ucp_rkey_h key = nullptr;
  RETURN_IF_ERROR(
      FromUcs(ucp_ep_rkey_unpack(endpoint_, packed.data(), &key), "mapping the peer's memory"));
  return UcxKeyHandle(key);
}

absl::Status UcxEndpoint::Put(const void* source, uint64_t bytes, uint64_t remote, ucp_rkey_h key) {
  if (!state_->failure.ok()) return state_->failure;
  ucp_request_param_t parameters = {};
  void* request = ucp_put_nbx(endpoint_, source, bytes, remote, key, &parameters);
  if (UCS_PTR_IS_ERR(request)) return FromUcs(UCS_PTR_STATUS(request), "kv write");
  if (request != nullptr) ucp_request_free(request);  // the flush that follows is what counts
  return absl::OkStatus();
}

UcxOperation* UcxEndpoint::NewOperation(UcxDone done) {
  auto operation = std::make_unique<UcxOperation>();
  operation->endpoint = state_.get();
  operation->done = std::move(done);
  state_->operations.push_back(std::move(operation));
  return state_->operations.back().get();
}

void UcxEndpoint::Posted(UcxOperation* operation, void* request, const char* what) {
  if (request == nullptr) return OnOperationDone(nullptr, UCS_OK, operation);
  if (UCS_PTR_IS_ERR(request)) {
    if (state_->failure.ok()) state_->failure = FromUcs(UCS_PTR_STATUS(request), what);
    OnOperationDone(nullptr, UCS_PTR_STATUS(request), operation);
  }
}

void UcxEndpoint::Flush(UcxDone done) {
  if (!state_->failure.ok()) return done(state_->failure);
  UcxOperation* operation = NewOperation(std::move(done));
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.send = &OnOperationDone;
  parameters.user_data = operation;
  Posted(operation, ucp_ep_flush_nbx(endpoint_, &parameters), "flush");
}

void UcxEndpoint::Send(uint16_t id, absl::Span<const uint8_t> header,
                       absl::Span<const ucp_dt_iov_t> payload, UcxDone done) {
  ENSURE(header.size() <= worker_->header_bytes_max());
  if (!state_->failure.ok()) return done(state_->failure);
  UcxOperation* operation = NewOperation(std::move(done));
  operation->header.assign(header.begin(), header.end());
  operation->payload.assign(payload.begin(), payload.end());
  ucp_request_param_t parameters = {};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                            UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;
  parameters.cb.send = &OnOperationDone;
  parameters.user_data = operation;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  const bool one = operation->payload.size() <= 1;
  parameters.datatype = one ? ucp_dt_make_contig(1) : ucp_dt_make_iov();
  const void* buffer =
      one ? (payload.empty() ? nullptr : payload[0].buffer) : operation->payload.data();
  const size_t count = one ? (payload.empty() ? 0 : payload[0].length) : payload.size();
  Posted(operation,
         ucp_am_send_nbx(endpoint_, id, operation->header.data(), operation->header.size(), buffer,
                         count, &parameters),
         "message");
}

std::vector<UcxLane> UcxEndpoint::Lanes() const {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  ENSURE(stream != nullptr);
  ucp_ep_print_info(endpoint_, stream);
  std::fclose(stream);
  std::vector<UcxLane> lanes = ParseLanes(absl::string_view(text, bytes));
  std::free(text);
  return lanes;
}

}  // namespace baton::kv
