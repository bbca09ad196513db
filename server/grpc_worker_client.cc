// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/grpc_worker_client.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <thread>

#include "absl/container/flat_hash_map.h"
#include "base/ensure.h"
#include "base/lease.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/this_thread.h"
#include "proto/worker.grpc.pb.h"
#include "server/convert.h"
#include "server/grpc_status.h"

namespace baton::server {
namespace {

namespace pb = worker::v1;
using router::ClientEvent;
using router::StreamLost;
using router::StreamSaid;
using router::WorkerGone;
using router::WorkerIndex;
using router::WorkerSaid;

constexpr size_t kEventsMax = 65536;
// Between heartbeats, or attempts at one, to a worker that is not ready: it may be any moment.
constexpr absl::Duration kHeartbeatUnready = absl::Milliseconds(100);

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetMaxSendMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Each message would be followed by a ping and its answer, to size windows that tokens never
  // fill.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// The events on their way to the owner, what workers said last, and how many calls are open.
class Inbox {
 public:
  Inbox(Bell* bell, size_t workers) : bell_(bell), statuses_(workers) {}

  void Push(ClientEvent event) {
    {
      MutexLock lock(&mutex_);
      if (const auto* said = std::get_if<WorkerSaid>(&event)) {
        statuses_[said->worker.value()] = said->status;
      } else if (const auto* gone = std::get_if<WorkerGone>(&event)) {
        statuses_[gone->worker.value()].reset();
      }
      events_.push_back(std::move(event));
    }
    bell_->Ring();
  }
  bool Full() const {
    MutexLock lock(&mutex_);
    return events_.size() >= kEventsMax;
  }
  std::vector<ClientEvent> Take() {
    MutexLock lock(&mutex_);
    return std::exchange(events_, {});
  }
  std::vector<std::optional<WorkerStatus>> Statuses() const {
    MutexLock lock(&mutex_);
    return statuses_;
  }
  void CallBegan() {
    MutexLock lock(&mutex_);
    ++calls_;
  }
  void CallEnded() {
    MutexLock lock(&mutex_);
    --calls_;
    no_calls_.NotifyAll();
  }
  void AwaitNoCalls() {
    MutexLock lock(&mutex_);
    while (calls_ > 0) no_calls_.Wait(&mutex_);
  }

 private:
  Bell* const bell_;
  mutable Mutex mutex_;
  std::vector<ClientEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<WorkerStatus>> statuses_ ABSL_GUARDED_BY(mutex_);
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  CondVar no_calls_;
};

// One Attempt stream.  Owned by two: gRPC (until OnDone) and the owner's table (until Close or
// its last event was polled).
class AttemptCall final : public grpc::ClientBidiReactor<pb::ToWorker, pb::FromWorker> {
 public:
  AttemptCall(StreamId id, Inbox* inbox) : id_(id), inbox_(inbox) {}

  void Start(pb::Worker::Stub* stub, const ToWorker& first, std::shared_ptr<AttemptCall> self) {
    self_ = std::move(self);
    inbox_->CallBegan();
    stub->async()->Attempt(&context_, this);
    AddHold();  // until the read side is over: Send may write from outside of reactions
    StartRead(&incoming_);
    Send(first);
    StartCall();
  }

  void Send(const ToWorker& message) {
    MutexLock lock(&mutex_);
    if (over_ || closing_) return;
    outgoing_.emplace_back();
    ToProto(message, &outgoing_.back());
    WriteLocked();
  }

  // Ends our side behind what was sent before; the worker takes that for a cancel.
  void Close() {
    {
      MutexLock lock(&mutex_);
      silent_ = true;
      closing_ = true;
      WriteLocked();
    }
    ReadOn();
  }
  // For the end of the process: waits for nobody.
  void Cancel() {
    Close();
    context_.TryCancel();
  }

  // Takes up reading again if the inbox was full.
  void ReadOn() {
    {
      MutexLock lock(&mutex_);
      if (!std::exchange(parked_, false)) return;
    }
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        MutexLock lock(&mutex_);
        over_ = true;
      }
      RemoveHold();
      return;
    }
    absl::StatusOr<FromWorker> message = FromProto(incoming_);
    {
      MutexLock lock(&mutex_);
      if (!message.ok()) {
        broken_ = message.status();
        context_.TryCancel();
      } else if (!silent_) {
        silent_ =
            std::holds_alternative<Finished>(*message) || std::holds_alternative<Ended>(*message);
        inbox_->Push(StreamSaid{id_, *std::move(message)});
      }
      if (inbox_->Full() && !silent_) {
        parked_ = true;
        return;
      }
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    outgoing_.pop_front();
    if (ok) WriteLocked();
  }

  void OnDone(const grpc::Status& status) override {
    {
      MutexLock lock(&mutex_);
      if (!silent_) inbox_->Push(StreamLost{id_, Why(status)});
      silent_ = true;
    }
    Inbox* const inbox = inbox_;
    self_.reset();  // may delete this
    inbox->CallEnded();
  }

 private:
  absl::Status Why(const grpc::Status& status) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!broken_.ok()) return absl::InternalError(broken_.message());
    if (status.ok()) return absl::UnavailableError("the worker ended the stream silently");
    return FromGrpc(status);
  }
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || over_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    } else if (closing_ && !std::exchange(writes_done_, true)) {
      StartWritesDone();
    }
  }

  const StreamId id_;
  Inbox* const inbox_;
  grpc::ClientContext context_;
  std::shared_ptr<AttemptCall> self_;
  pb::FromWorker incoming_;
  Mutex mutex_;
  std::deque<pb::ToWorker> outgoing_ ABSL_GUARDED_BY(mutex_);  // a handful: open, revoke
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;    // reading ended
  bool silent_ ABSL_GUARDED_BY(mutex_) = false;  // no further events
  bool parked_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

// One Session stream.  gRPC's until OnDone; the heartbeat thread holds it meanwhile.
class SessionCall final : public grpc::ClientBidiReactor<pb::Heartbeat, pb::WorkerStatus> {
 public:
  SessionCall(WorkerIndex worker, Incarnation self, Inbox* inbox) : worker_(worker), inbox_(inbox) {
    heartbeat_.set_frontend(self.value());
  }

  void Start(pb::Worker::Stub* stub, std::shared_ptr<SessionCall> self) {
    self_ = std::move(self);
    inbox_->CallBegan();
    stub->async()->Session(&context_, this);
    AddHold();
    StartRead(&status_);
    StartCall();
  }
  // Sends a heartbeat; false if the stream is over.  One that cannot be sent because the last
  // is still on its way is left out.
  bool Beat() {
    MutexLock lock(&mutex_);
    if (over_) return false;
    if (!writing_) {
      writing_ = true;
      heartbeat_.set_number(heartbeat_.number() + 1);
      StartWrite(&heartbeat_);
    }
    return true;
  }
  void Cancel() { context_.TryCancel(); }
  // What the worker said last.
  bool ready() const { return ready_; }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        MutexLock lock(&mutex_);
        over_ = true;
      }
      RemoveHold();
      return;
    }
    absl::StatusOr<WorkerStatus> status = FromProto(status_);
    if (status.ok() && !inbox_->Full()) {
      ready_ = status->ready;
      inbox_->Push(WorkerSaid{worker_, *std::move(status)});
    }
    StartRead(&status_);
  }
  void OnWriteDone(bool) override {
    MutexLock lock(&mutex_);
    writing_ = false;
  }
  void OnDone(const grpc::Status&) override {
    Inbox* const inbox = inbox_;
    inbox->Push(WorkerGone{worker_});
    self_.reset();  // may delete this
    inbox->CallEnded();
  }

 private:
  const WorkerIndex worker_;
  Inbox* const inbox_;
  grpc::ClientContext context_;
  std::shared_ptr<SessionCall> self_;
  pb::Heartbeat heartbeat_;
  pb::WorkerStatus status_;
  std::atomic<bool> ready_{false};
  Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

struct Worker {
  std::unique_ptr<pb::Worker::Stub> stub;
  std::shared_ptr<SessionCall> session;  // the heartbeat thread's, like the rest
  absl::Duration until_beat;
};

}  // namespace

class GrpcWorkerClient::Impl {
 public:
  Impl(const std::vector<std::string>& addresses, Incarnation self, Bell* bell)
      : self_(self), inbox_(bell, addresses.size()) {
    for (const std::string& address : addresses) {
      Worker worker;
      worker.stub = pb::Worker::NewStub(MakeChannel(address));
      workers_.push_back(std::move(worker));
    }
    heart_ = std::thread([this] {
      NameThisThread("heartbeat");
      BeatUntilStopped();
    });
  }

  ~Impl() {
    stopping_ = true;
    stop_bell_.Ring();
    heart_.join();
    for (auto& [id, call] : calls_) call->Cancel();
    calls_.clear();
    inbox_.AwaitNoCalls();
  }

  StreamId Open(WorkerIndex worker, const ToWorker& first) {
    ENSURE(worker.value() < workers_.size());
    const StreamId id(next_stream_++);
    auto call = std::make_shared<AttemptCall>(id, &inbox_);
    calls_[id] = call;
    AttemptCall* const raw = call.get();
    raw->Start(workers_[worker.value()].stub.get(), first, std::move(call));
    return id;
  }
  void Send(StreamId stream, const ToWorker& message) {
    const auto found = calls_.find(stream);
    if (found != calls_.end()) found->second->Send(message);
  }
  void Close(StreamId stream) {
    const auto found = calls_.find(stream);
    if (found == calls_.end()) return;
    found->second->Close();
    calls_.erase(found);
  }

  std::vector<std::optional<WorkerStatus>> Statuses() const { return inbox_.Statuses(); }

  void Poll(std::vector<ClientEvent>& events) {
    std::vector<ClientEvent> taken = inbox_.Take();
    for (ClientEvent& event : taken) {
      if (!StillWanted(event)) continue;
      events.push_back(std::move(event));
    }
    if (taken.size() >= kEventsMax) {
      for (auto& [id, call] : calls_) call->ReadOn();
    }
  }

 private:
  // Drops events of streams that were closed while these were on their way; forgets streams
  // that have had their last word.
  bool StillWanted(const ClientEvent& event) {
    StreamId id;
    bool last = true;
    if (const auto* said = std::get_if<StreamSaid>(&event)) {
      id = said->stream;
      last = std::holds_alternative<Finished>(said->message) ||
             std::holds_alternative<Ended>(said->message);
    } else if (const auto* lost = std::get_if<StreamLost>(&event)) {
      id = lost->stream;
    } else {
      return true;
    }
    const auto found = calls_.find(id);
    if (found == calls_.end()) return false;
    if (last) calls_.erase(found);
    return true;
  }

  void BeatUntilStopped() {
    absl::Duration wait;
    do {
      wait = BeatAll(wait);
      stop_bell_.Wait(wait);
    } while (!stopping_);
    for (Worker& worker : workers_) {
      if (worker.session != nullptr) worker.session->Cancel();
      worker.session.reset();
    }
  }

  // Those whose turn it is, `passed` after the last call; returns when to call again.
  absl::Duration BeatAll(absl::Duration passed) {
    absl::Duration next = kHeartbeatInterval;
    for (size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      worker.until_beat -= passed;
      if (worker.until_beat <= absl::ZeroDuration()) {
        BeatOne(i);
        worker.until_beat = worker.session->ready() ? kHeartbeatInterval : kHeartbeatUnready;
      }
      next = std::min(next, worker.until_beat);
    }
    return next;
  }

  // A new stream in place of one that ended; how often that leads to a connection's being
  // tried is the channel's business.
  void BeatOne(size_t index) {
    Worker& worker = workers_[index];
    if (worker.session != nullptr && worker.session->Beat()) return;
    worker.session =
        std::make_shared<SessionCall>(WorkerIndex(static_cast<uint32_t>(index)), self_, &inbox_);
    worker.session->Start(worker.stub.get(), worker.session);
    worker.session->Beat();
  }

  const Incarnation self_;
  Inbox inbox_;
  std::vector<Worker> workers_;
  Bell stop_bell_;
  std::atomic<bool> stopping_{false};
  std::thread heart_;
  // The owner's.
  uint64_t next_stream_ = 1;
  absl::flat_hash_map<StreamId, std::shared_ptr<AttemptCall>> calls_;
};

GrpcWorkerClient::GrpcWorkerClient(const std::vector<std::string>& addresses, Incarnation self,
                                   Bell* bell)
    : impl_(std::make_unique<Impl>(addresses, self, bell)) {}
GrpcWorkerClient::~GrpcWorkerClient() = default;

StreamId GrpcWorkerClient::Open(WorkerIndex worker, ToWorker first) {
  return impl_->Open(worker, first);
}
void GrpcWorkerClient::Send(StreamId stream, ToWorker message) { impl_->Send(stream, message); }
void GrpcWorkerClient::Close(StreamId stream) { impl_->Close(stream); }
void GrpcWorkerClient::Poll(std::vector<ClientEvent>& events) { impl_->Poll(events); }
std::vector<std::optional<WorkerStatus>> GrpcWorkerClient::Statuses() const {
  return impl_->Statuses();
}

}  // namespace baton::server
