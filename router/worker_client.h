// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How the front end calls workers: one stream per attempt and worker, and a heartbeat.
//
// The client connects, reconnects with back-off and sends heartbeats by itself (every
// 200 ms, carrying the front end's incarnation); the dispatcher sees only what comes of it.
//
// Thread:  one owner thread makes every call; the client rings the owner's bell.
// Cost:    nothing blocks.  Open never fails: a stream that cannot be made ends with
//          StreamLost.
//
// Implementations: server::GrpcWorkerClient, sim::SimWorkerClient; one contract-test suite.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/messages.h"

namespace baton::router {

using WorkerIndex = StrongId<struct WorkerIndexTag, uint32_t>;  // place in the configured list

// In order per stream.  After StreamLost, Finished or Ended a stream says nothing more.
struct StreamSaid {
  StreamId stream;
  FromWorker message;
};
struct StreamLost {
  StreamId stream;
  absl::Status why;
};
// An answered heartbeat.
struct WorkerSaid {
  WorkerIndex worker;
  WorkerStatus status;
};
// The connection to the worker broke or was refused.  Streams on it end by StreamLost.
struct WorkerGone {
  WorkerIndex worker;
};
using ClientEvent = std::variant<StreamSaid, StreamLost, WorkerSaid, WorkerGone>;

class WorkerClient {
 public:
  virtual ~WorkerClient() = default;
  virtual StreamId Open(WorkerIndex worker, ToWorker first) = 0;
  virtual void Send(StreamId stream, ToWorker message) = 0;  // ignored once the stream is over
  virtual void Close(StreamId stream) = 0;                   // cancel; no event follows
  virtual void Poll(std::vector<ClientEvent>& events) = 0;   // appends, oldest first
};

}  // namespace baton::router
