// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Runs one role in the foreground: signals, drain, exit code.
//
// SIGTERM and SIGINT drain, a second one exits at once; SIGHUP reads the configuration again
// and names the keys that differ: they need a restart.  An invalid one changes nothing.
//
// Thread:  the main thread.  Signals are blocked in all others.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "server/role.h"

namespace baton::server {

// Blocks the signals that the main thread waits for.  Call before any thread starts.
void BlockSignals();
// Waits for one of them, at most `timeout`; 0: none came.
int WaitForSignal(absl::Duration timeout);

// Until the role has drained or failed; returns the exit code.  `reload` is called on SIGHUP.
int HostRole(RoleProcess& role, absl::Duration drain_max, const std::function<void()>& reload);

}  // namespace baton::server
