// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_path.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "kv_transfer/ucx_lanes.h"

namespace baton::kv {
namespace {

constexpr size_t kSumBytes = 256u << 10;
constexpr int kSumRounds = 8;

}  // namespace

std::string ClassOf(absl::string_view transport) {
  if (IsRdmaTransport(transport)) return "rdma";
  return IsMemoryTransport(transport) ? "shm" : "tcp";
}

std::string ExpectedClass(const PathPolicy& policy, const ProcessId& self, const Hello& peer) {
  if (policy.require_rdma) return "rdma";
  const bool messages = policy.allow_sockets || policy.allow_messages;
  if (!policy.allow_memory) return "tcp";
  if (!messages) return "shm";
  const bool one_host = peer.process.boot_id == self.boot_id;
  if (one_host && peer.net_namespace == policy.net_namespace) return "shm";
  return one_host ? "tcp" : "";
}

double SumsBandwidth() {
  const RealClock clock;
  const std::vector<uint8_t> bytes(kSumBytes, 1);
  BestTime best;
  uint32_t sum = 0;
  for (int i = 0; i < kSumRounds; ++i) {
    const absl::Time start = clock.Now();
    sum ^= Crc32c(bytes);
    best.Note(clock.Now() - start + absl::Nanoseconds(1 + (sum & 1)));  // `sum` is used
  }
  return kSumBytes / absl::ToDoubleSeconds(best.best());
}

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
  if (info.cost.bandwidth < policy.min_bandwidth) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the link to %s over %s moves %.2f GB/s, less than kv_transfer.min_bandwidth (%.2f GB/s): "
        "name a faster device in kv_transfer.devices or lower min_bandwidth",
        peer.worker, info.transport, info.cost.bandwidth * 1e-9, policy.min_bandwidth * 1e-9));
  }
  return absl::OkStatus();
}

}  // namespace baton::kv
