// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Invariants of a worker's numbers that hold at every moment, and what is left when all is over.
//
//   K10 workers say to the front ends what they may say, and nothing twice;
//   K5  queues within their bounds; tickets and quarantine within half the pool;
//   K9  after the last end: no block used, reserved or quarantined, no attempt, no stream.
#pragma once

#include <string>

#include "router/dispatcher.h"
#include "sim/event_log.h"
#include "sim/frontend_process.h"
#include "sim/worker_process.h"

namespace baton::sim {

void CheckBounds(const WorkerProcess& worker, const prefill::Options& prefill,
                 const decode::Options& decode, EventLog& log);
void CheckBounds(const FrontendProcess& frontend, const router::Dispatcher::Options& options,
                 EventLog& log);

// What the process still owns, in words; empty if nothing.  A process that is not there owns
// nothing.
std::string OwnedBy(const WorkerProcess& worker);
std::string OwnedBy(const FrontendProcess& frontend);

}  // namespace baton::sim
