// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// router::WorkerClient over gRPC: one channel per worker, one Attempt stream per attempt, one
// Session stream per worker that carries the heartbeats.
//
// A worker that is away costs one refused call every back-off (0.1 to 1 s).  Streams whose
// events the owner does not take are not read on: gRPC's flow control then holds the worker
// back (K5).
//
// Threads:  the owner's; gRPC's post events; one of its own sends the heartbeats.
// Failure:  whatever breaks ends in StreamLost and WorkerGone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bell.h"
#include "router/worker_client.h"

namespace baton::server {

class GrpcWorkerClient final : public router::WorkerClient {
 public:
  // `addresses` in the order of WorkerIndex; `self` names this front end in heartbeats.
  // `bell` outlives the client.
  GrpcWorkerClient(const std::vector<std::string>& addresses, Incarnation self, Bell* bell);
  ~GrpcWorkerClient() override;  // cancels everything and waits for it

  StreamId Open(router::WorkerIndex worker, ToWorker first) override;
  void Send(StreamId stream, ToWorker message) override;
  void Close(StreamId stream) override;
  void Poll(std::vector<router::ClientEvent>& events) override;

  // What each worker said last, none while it is away; by WorkerIndex.  Any thread.
  std::vector<std::optional<WorkerStatus>> Statuses() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace baton::server
