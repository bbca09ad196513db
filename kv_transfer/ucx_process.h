// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which process this is, and whether another one on this host still lives.
//
// A pid alone names nothing: it is reused, and differs between pid namespaces.  Together with
// boot, namespace and start time it names one process for ever (ProcessId).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kv_transfer/hello.h"
#include "kv_transfer/socket_fd.h"

namespace baton::kv {

struct SelfDescription {
  ProcessId process;
  std::string host;
  uint64_t net_namespace = 0;
  uint64_t ipc_namespace = 0;
};
// Reads /proc: UNAVAILABLE where there is none.
absl::StatusOr<SelfDescription> DescribeSelf();

// Field 22 of /proc/PID/stat; the command name in it may contain anything.
std::optional<uint64_t> ParseStartTime(absl::string_view stat);

// Can `theirs` be watched and signalled from the process `mine`?
bool SharesPids(const ProcessId& mine, const ProcessId& theirs);

// REQUIRES: SharesPids.
bool IsAlive(const ProcessId& process);

// Readable when the process is gone.  NOT_FOUND: it is gone already, or not visible here.
absl::StatusOr<Fd> WatchProcess(const ProcessId& mine, const ProcessId& theirs);

}  // namespace baton::kv
