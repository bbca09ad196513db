// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What UCX sees on this machine: the names that kv_transfer.devices may hold, and the
// transports that could carry a link.
//
// Whether two processes can really use one of them is known when their link comes up.
#pragma once

#include <set>
#include <string>

#include "absl/status/statusor.h"

namespace baton::kv {

struct UcxDevices {
  std::string version;               // of the library that runs
  std::set<std::string> transports;  // as UCX names them: posix, sysv, cma, tcp, rc_verbs, …
  std::set<std::string> devices;     // memory, lo, eth0, mlx5_0:1, …
  // Reliable connections (rc) over RDMA, and where.  dc is not among them: its peers share one
  // end, whose close would fence all of them or none.
  std::set<std::string> rdma_transports;  // rc_verbs, rc_mlx5
  std::set<std::string> rdma_devices;     // mlx5_0:1, …
};

// Opens each of UCX's memory domains and closes it again; a domain that cannot be opened
// (no permission, no driver) counts as not there.  A few milliseconds; any thread.
// UNAVAILABLE: UCX itself fails.
absl::StatusOr<UcxDevices> FindUcxDevices();

}  // namespace baton::kv
