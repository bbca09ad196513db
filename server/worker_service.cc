// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/worker_service.h"

#include <grpcpp/grpcpp.h>

#include <deque>

#include "proto/worker.grpc.pb.h"
#include "server/grpc_status.h"

namespace baton::server {

namespace pb = worker::v1;

namespace {

constexpr size_t kInputsMax = 65536;
// Messages that wait for one front end to read them; a token is one message.
constexpr size_t kOutputsMax = 65536;

}  // namespace

// One Attempt stream.  Deletes itself when gRPC is done with it.
class AttemptStream final : public grpc::ServerBidiReactor<pb::ToWorker, pb::FromWorker> {
 public:
  explicit AttemptStream(WorkerDesk* desk) : desk_(desk), id_(desk->Add(this)) {
    StartRead(&incoming_);
  }

  // From the role loop.
  void Send(const FromWorker& message, bool last) {
    MutexLock lock(&mutex_);
    if (finished_ || last_queued_) return;
    if (outgoing_.size() >= kOutputsMax) {
      desk_->Closed(id_);
      FinishLocked(absl::ResourceExhaustedError("the front end does not read its stream"));
      return;
    }
    outgoing_.emplace_back();
    ToProto(message, &outgoing_.back());
    last_queued_ = last;
    WriteLocked();
  }

  void Abort() { Close(absl::UnavailableError("the worker stops")); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // Half-closed, cancelled or lost: all mean that nobody wants the answer.
      Close(absl::CancelledError("the front end closed the stream"));
      return;
    }
    absl::StatusOr<ToWorker> message = FromProto(incoming_, desk_->limits());
    if (!message.ok()) return Close(message.status());
    if (desk_->aborted()) return Close(absl::UnavailableError("the worker stops"));
    if (!PostInput(*std::move(message))) {
      return Close(absl::ResourceExhaustedError("the worker's mailbox is full"));
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    outgoing_.pop_front();
    if (ok) WriteLocked();
  }

  void OnCancel() override { Close(absl::CancelledError("the front end cancelled")); }

  void OnDone() override {
    desk_->Remove(id_);
    delete this;
  }

 private:
  // Together with opened_, so that a closing is never told before its opening.
  bool PostInput(ToWorker message) {
    MutexLock lock(&mutex_);
    if (finished_) return true;
    if (opened_) return desk_->Post(StreamMessage{id_, std::move(message)});
    opened_ = desk_->Post(StreamOpened{id_, std::move(message)});
    return opened_;
  }
  void Close(const absl::Status& why) {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (opened_ && !last_queued_) desk_->Closed(id_);
    FinishLocked(why);
  }
  void FinishLocked(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    finished_ = true;
    Finish(ToGrpc(why));
  }
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    } else if (last_queued_) {
      FinishLocked(absl::OkStatus());
    }
  }

  WorkerDesk* const desk_;
  const StreamId id_;
  pb::ToWorker incoming_;  // the reading reactions'
  Mutex mutex_;
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<pb::FromWorker> outgoing_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_queued_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

namespace {

// One front end's heartbeats.  An answer that is still being written when the next heartbeat
// comes is not doubled: the status is a state, not a history.
class SessionStream final : public grpc::ServerBidiReactor<pb::Heartbeat, pb::WorkerStatus> {
 public:
  explicit SessionStream(WorkerDesk* desk) : desk_(desk) { StartRead(&heartbeat_); }

  void OnCancel() override {
    MutexLock lock(&mutex_);
    if (std::exchange(finished_, true)) return;
    Finish(grpc::Status::CANCELLED);
  }

  void OnReadDone(bool ok) override {
    MutexLock lock(&mutex_);
    if (finished_) return;
    if (!ok || heartbeat_.frontend() == 0) {
      finished_ = true;
      Finish(ok ? grpc::Status(grpc::INVALID_ARGUMENT, "heartbeat.frontend is 0")
                : grpc::Status::OK);
      return;
    }
    // A full box already holds older signs of life.
    (void)desk_->Post(FrontendAlive{Incarnation(heartbeat_.frontend())});
    if (!writing_) {
      writing_ = true;
      status_.Clear();
      ToProto(desk_->status(), &status_);
      StartWrite(&status_);
    }
    StartRead(&heartbeat_);
  }
  void OnWriteDone(bool) override {
    MutexLock lock(&mutex_);
    writing_ = false;
  }
  void OnDone() override { delete this; }

 private:
  WorkerDesk* const desk_;
  pb::Heartbeat heartbeat_;
  pb::WorkerStatus status_;
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class WorkerService final : public pb::Worker::CallbackService {
 public:
  explicit WorkerService(WorkerDesk* desk) : desk_(desk) {}
  grpc::ServerBidiReactor<pb::ToWorker, pb::FromWorker>* Attempt(
      grpc::CallbackServerContext*) override {
    return new AttemptStream(desk_);
  }
  grpc::ServerBidiReactor<pb::Heartbeat, pb::WorkerStatus>* Session(
      grpc::CallbackServerContext*) override {
    return new SessionStream(desk_);
  }

 private:
  WorkerDesk* const desk_;
};

}  // namespace

WorkerDesk::WorkerDesk(Bell* bell, ConvertLimits limits)
    : limits_(limits), bell_(bell), inputs_(kInputsMax, bell) {}

std::vector<WorkerInput> WorkerDesk::TakeInputs() {
  std::vector<StreamId> closed;
  {
    // Before the box: a closing never overtakes its opening.
    MutexLock lock(&closed_mutex_);
    closed.swap(closed_);
  }
  std::vector<WorkerInput> inputs = inputs_.TakeAll();
  for (const StreamId id : closed) inputs.push_back(StreamClosed{id});
  return inputs;
}

void WorkerDesk::Send(std::vector<WorkerOutput> outputs) {
  MutexLock lock(&mutex_);
  for (const WorkerOutput& output : outputs) {
    const auto found = streams_.find(output.stream);
    if (found != streams_.end()) found->second->Send(output.message, output.last);
  }
}

void WorkerDesk::Abort() {
  MutexLock lock(&mutex_);
  aborted_ = true;
  for (auto& [id, stream] : streams_) stream->Abort();
}

void WorkerDesk::Publish(WorkerStatus status) {
  MutexLock lock(&status_mutex_);
  status_ = std::move(status);
}

StreamId WorkerDesk::Add(AttemptStream* stream) {
  MutexLock lock(&mutex_);
  const StreamId id(next_stream_++);
  streams_[id] = stream;
  return id;
}

void WorkerDesk::Remove(StreamId id) {
  MutexLock lock(&mutex_);
  streams_.erase(id);
}

void WorkerDesk::Closed(StreamId id) {
  {
    MutexLock lock(&closed_mutex_);
    closed_.push_back(id);
  }
  bell_->Ring();
}

WorkerStatus WorkerDesk::status() const {
  MutexLock lock(&status_mutex_);
  return status_;
}

std::unique_ptr<grpc::Service> MakeWorkerService(WorkerDesk* desk) {
  return std::make_unique<WorkerService>(desk);
}

}  // namespace baton::server
