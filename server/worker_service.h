// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The worker's side of proto/worker.proto: gRPC streams to WorkerInputs, WorkerOutputs to
// streams.
//
// Each Attempt stream becomes StreamOpened, StreamMessage…, StreamClosed in the role loop's
// box; a Session stream becomes FrontendAlive per heartbeat, and is answered with the status
// that the role loop published last.
//
// Threads:  gRPC's threads post; TakeInputs, Send and Publish are the role loop's.
// Failure:  a message that breaks a rule ends its stream with INVALID_ARGUMENT before the
//           worker sees it; a full box ends a new stream with RESOURCE_EXHAUSTED; a front end
//           that does not read what it asked for loses its stream (K5).
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/bell.h"
#include "base/mailbox.h"
#include "base/messages.h"
#include "base/mutex.h"
#include "server/convert.h"

namespace grpc {
class Service;
}

namespace baton::server {

class AttemptStream;

// What streams and the role loop share.  Outlives both.
class WorkerDesk {
 public:
  WorkerDesk(Bell* bell, ConvertLimits limits);

  // The role loop's side.
  std::vector<WorkerInput> TakeInputs();
  void Send(std::vector<WorkerOutput> outputs);
  void Publish(WorkerStatus status);
  // Ends every stream: the process stops.
  void Abort();

  // The streams' side.
  [[nodiscard]] bool Post(WorkerInput input) { return inputs_.Push(std::move(input)); }
  StreamId Add(AttemptStream* stream);
  void Remove(StreamId id);
  void Closed(StreamId id);  // never refused: bounded by the number of streams
  WorkerStatus status() const;
  bool aborted() const { return aborted_; }
  const ConvertLimits& limits() const { return limits_; }

 private:
  const ConvertLimits limits_;
  Bell* const bell_;
  Mailbox<WorkerInput> inputs_;
  mutable Mutex mutex_;
  std::atomic<bool> aborted_{false};
  uint64_t next_stream_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<StreamId, AttemptStream*> streams_ ABSL_GUARDED_BY(mutex_);
  // Taken while mutex_ and a stream's own are held, so it is another one.
  Mutex closed_mutex_;
  std::vector<StreamId> closed_ ABSL_GUARDED_BY(closed_mutex_);
  mutable Mutex status_mutex_;
  WorkerStatus status_ ABSL_GUARDED_BY(status_mutex_);
};

// The gRPC service; `desk` outlives it.
std::unique_ptr<grpc::Service> MakeWorkerService(WorkerDesk* desk);

}  // namespace baton::server
