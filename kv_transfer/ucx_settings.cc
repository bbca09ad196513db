// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_settings.h"

#include "absl/strings/str_join.h"

namespace baton::kv {
namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

// A dead peer shows within a second on shared memory, not after UCX's default of twenty.
constexpr char kKeepalive[] = "1s";
// One message of path B travels in one segment of this size and is copied once, by us, after
// it was checked.
constexpr char kTcpSegment[] = "256k";
// Of one RC packet, and how often it is sent again: a peer that does not answer is an error
// after about 0.9 s, less than the silence after which it is declared dead.  Not 7 (UCX's
// default), which some devices take for "for ever".
constexpr char kRcTimeout[] = "100ms";
constexpr char kRcRetries[] = "6";

Settings ForMemory(const UcxContextOptions& options) {
  return {{"TLS", options.rdma.empty() ? "^tcp" : "^tcp,ib"},
          // Without it error handling silently removes shared memory from what UCX may use.
          {"MM_ERROR_HANDLING", "y"}};
}

Settings ForRdma(const UcxContextOptions& options) {
  Settings settings = {
      {"TLS", absl::StrJoin(options.rdma, ",")},
      // UCX's own way, datagrams (ud), drops every packet on RoCE devices whose driver leaves the
      // service level empty (before UCX 1.19), and takes idle peers there for dead.
      {"SOCKADDR_TLS_PRIORITY", "rdmacm"},
      {"RC_TIMEOUT", kRcTimeout},
      {"RC_RETRY_COUNT", kRcRetries},
      // UCX (as late as 1.22) aborts on the second error event of a connection.
      {"ASYNC_EVENTS", "n"}};
  // Without UCX's cache of registrations: there, unmapping revokes nothing.
  if (options.owner) settings.push_back({"REG_METHODS", "direct"});
  return settings;
}

Settings ForMessages() {
  return {{"TLS", "tcp"},
          {"TX_SEG_SIZE", kTcpSegment},
          {"RX_SEG_SIZE", kTcpSegment},
          // One socket event per progress: UCX 1.13 takes several at once, and when the first of
          // them ends an endpoint that the second is about, it reads freed memory.
          {"MAX_POLL", "1"}};
}

}  // namespace

Settings UcxSettings(const UcxContextOptions& options) {
  Settings settings = options.path == DataPath::kMemoryWrites ? ForMemory(options)
                      : options.path == DataPath::kRdmaWrites ? ForRdma(options)
                                                              : ForMessages();
  settings.push_back({"KEEPALIVE_INTERVAL", kKeepalive});
  if (!options.devices.empty()) {
    settings.push_back({"NET_DEVICES", absl::StrJoin(options.devices, ",")});
  }
  return settings;
}

}  // namespace baton::kv
