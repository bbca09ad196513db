// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which transports an endpoint really uses, read from UCX's own description of it.
//
// UCX before 1.14 has no call that says so, and its choice can silently be a slow one;
// this parser of ucp_ep_print_info's text is what a link's class is judged by.  Pure.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton::kv {

struct UcxLane {
  std::string transport;  // "sysv", "posix", "tcp", "rc_verbs", "cma", ...
  std::string device;     // "memory", "lo", "mlx5_0:1", ...
  bool wireup_only = false;
  bool operator==(const UcxLane&) const = default;
};

// Lanes in UCX's order; lines of another form are skipped, so any text is fine.
std::vector<UcxLane> ParseLanes(absl::string_view endpoint_info);

// True for transports whose writes need no help of the target's CPU.
bool IsMemoryTransport(absl::string_view transport);
// True for transports that are RDMA hardware's (or its emulation's).
bool IsRdmaTransport(absl::string_view transport);

}  // namespace baton::kv
