// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_path.h"

#include "absl/strings/str_format.h"
#include "kv_transfer/ucx_lanes.h"

namespace baton::kv {

absl::Status NoPath(const PathMessage& message) {
  return message.number == 1 ? absl::UnavailableError(message.text)
                             : absl::FailedPreconditionError(message.text);
}

absl::Status CheckPolicy(const PathPolicy& policy, const WorkerRef& peer, const LinkInfo& info) {
  if (policy.require_rdma && !IsRdmaTransport(info.transport)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the link to %s came up over %s, but kv_transfer.require_rdma is true: name an RDMA device "
        "in kv_transfer.devices (`ibv_devices` lists them; `ulimit -l` must be unlimited)",
        peer.worker, info.transport));
  }
  if (info.bandwidth_bytes_per_second < policy.min_bandwidth) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the link to %s over %s moves %.2f GB/s, less than kv_transfer.min_bandwidth (%.2f GB/s): "
        "name a faster device in kv_transfer.devices or lower min_bandwidth",
        peer.worker, info.transport, info.bandwidth_bytes_per_second * 1e-9,
        policy.min_bandwidth * 1e-9));
  }
  return absl::OkStatus();
}

}  // namespace baton::kv
