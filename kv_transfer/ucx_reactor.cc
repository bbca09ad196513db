// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_reactor.h"

#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/ensure.h"
#include "base/status_macros.h"
#include "kv_transfer/ucx_message_path.h"

namespace baton::kv {
namespace {

constexpr uint64_t kUcxKey = uint64_t{5} << 56;
constexpr int kProgressMax = 32;
// Between two looks at what is under way, before the thread sleeps.
constexpr absl::Duration kSpin = absl::Microseconds(20);
// UCX's event descriptor is known to miss events; nothing under way waits longer for that.
constexpr absl::Duration kBusyWaitMax = absl::Milliseconds(1);
constexpr absl::Duration kIdleWaitMax = absl::Milliseconds(100);
constexpr absl::Duration kPublishEvery = absl::Milliseconds(50);
constexpr absl::Duration kCloseWaitMax = absl::Milliseconds(500);
// Until the end of a peer counts although others keep the sockets busy.
constexpr absl::Duration kEndWaitMax = absl::Milliseconds(100);
constexpr uint8_t kDamage = 0x10;
constexpr size_t kCommandsMax = 1u << 20;  // far above what the cores accept

uint8_t TypeOf(absl::Span<const uint8_t> frame) { return frame.size() > 4 ? frame[4] : 0; }

}  // namespace

absl::StatusOr<std::unique_ptr<UcxReactor>> UcxReactor::Create(Parts parts) {
  ASSIGN_OR_RETURN(SocketPoller poller, SocketPoller::Create());
  const SocketLinks::Options sockets = parts.sockets;
  auto reactor = std::make_unique<UcxReactor>(std::move(parts), std::move(poller));
  ASSIGN_OR_RETURN(reactor->sockets_, SocketLinks::Create(sockets, reactor->poller_));
  return reactor;
}

UcxReactor::UcxReactor(Parts parts, SocketPoller poller)
    : role_(parts.role),
      damage_one_in_(parts.damage_one_in),
      bell_(parts.bell),
      ticks_(parts.ticks),
      poller_(std::move(poller)),
      region_(std::move(parts.region)),
      memory_(std::move(parts.memory)),
      rdma_(std::move(parts.rdma)),
      messages_(std::move(parts.messages)) {
  for (UcxWorker* worker : {memory_.get(), rdma_.get(), messages_.get()}) {
    if (worker == nullptr) continue;
    workers_.push_back(worker);
    poller_.Add(worker->event_fd(), kUcxKey, true, false);
  }
  const ProcessId process = parts.hello.process;
  const absl::Span<uint8_t> memory = region_.memory();
  if (role_ == Role::kDecode) {
    owner_paths_ = std::make_unique<UcxOwnerPaths>(parts.policy, process, region_,
                                                   std::move(parts.listener), poller_, *this);
    owner_ = std::make_unique<OwnerCore>(OwnerCore::Options{.link = parts.link},
                                         std::move(parts.hello), memory, *this);
    owner_paths_->SetCore(owner_.get());
    core_ = owner_.get();
    if (messages_ != nullptr) {
      messages_->OnMessage(
          kMessageId, [this](auto header, auto payload) { owner_paths_->OnData(header, payload); });
    }
  } else {
    const UcxWriterPaths::Workers workers = {memory_.get(), rdma_.get(), messages_.get()};
    writer_paths_ =
        std::make_unique<UcxWriterPaths>(parts.policy, process, workers, region_, poller_, *this);
    writer_ = std::make_unique<WriterCore>(
        WriterCore::Options{.link = parts.link, .check_one_in = parts.check_one_in},
        std::move(parts.hello), parts.seed, memory, *this);
    core_ = writer_.get();
  }
}

// Memory before its worker, workers before the paths whose operations they end.
UcxReactor::~UcxReactor() {
  CloseEverything();
  region_ = UcxRegion();
  if (owner_paths_ != nullptr) owner_paths_->StopListening();
  for (UcxWorker* worker : std::exchange(workers_, {})) poller_.Remove(worker->event_fd());
  memory_.reset();
  rdma_.reset();
  messages_.reset();
}

void UcxReactor::Run() {
  absl::Duration wait = absl::ZeroDuration();
  while (!stopping_.load()) {
    ready_.clear();
    poller_.Wait(wait, ready_);
    const absl::Time now = clock_.Now();
    const bool ends = owner_paths_ != nullptr && owner_paths_->has_ends();
    if (!ends) ends_since_ = now;
    bool active = HandleReady(now) || ends;
    sockets_->Tick(now);
    const bool heard = HandleSockets(now);
    active |= heard;
    // A turn without news of any socket comes after the last words of those that have exited.
    if (ends && (!heard || now - ends_since_ >= kEndWaitMax)) {
      owner_paths_->TellEnds();
      RunLater();
    }
    active |= RunCommands();
    active |= Progress();
    active |= StepPaths(now);
    active |= !later_.empty();
    RunLater();
    if (now >= core_->NextDeadline()) {
      core_->Tick(now, ticks_ == nullptr ? 0 : ticks_->load());
      RunLater();
    }
    active |= sockets_->has_events();
    Publish(now);
    wait = Idle(active, now);
  }
  RunCommands();  // the last Commit of a writer that drained may still wait here
}

void UcxReactor::Stop() {
  stopping_.store(true);
  poller_.Wake();
}

bool UcxReactor::HandleReady(absl::Time now) {
  bool any = false;
  for (const ReadyFd& ready : ready_) {
    if (ready.key == kUcxKey) continue;  // it only ends the wait
    any = true;
    if (sockets_->Handle(ready, now)) continue;
    if (owner_paths_ != nullptr) owner_paths_->Handle(ready);
    if (writer_paths_ != nullptr) writer_paths_->Handle(ready);
  }
  return any;
}

bool UcxReactor::HandleSockets(absl::Time now) {
  bool any = false;
  while (sockets_->has_events()) {
    any = true;
    std::vector<SocketEvent> events = sockets_->TakeEvents();
    // A frame may answer what the role loop has just asked for: a Commit under a grant that still
    // waits to be run.  What was asked before the frame was read is done before it.
    RunCommands();
    for (SocketEvent& event : events) {
      switch (event.kind) {
        case SocketEvent::Kind::kOpened:
          core_->LinkOpened(event.link, event.dialled, now);
          break;
        case SocketEvent::Kind::kLost:
          core_->LinkLost(event.link, event.why);
          break;
        case SocketEvent::Kind::kFlow:
          if (owner_paths_ != nullptr) owner_paths_->AddFlow(std::move(event.flow), event.token);
          break;
        case SocketEvent::Kind::kFrame:
          TakePathMessage(event.link, event.frame, now);
          core_->FrameArrived(event.link, event.frame, now);
          break;
      }
    }
    RunLater();
  }
  return any;
}

// The core sees the frame too, as a sign of life.
bool UcxReactor::TakePathMessage(LinkId link, absl::Span<const uint8_t> frame, absl::Time now) {
  static const uint8_t kPathType = TypeOf(EncodeFrame(DataPathMessage{}));
  if (TypeOf(frame) != kPathType) return false;
  const absl::StatusOr<Frame> decoded = DecodeFrame(frame);
  if (!decoded.ok()) return false;  // the core ends the link
  const auto message = DecodePathMessage(std::get<DataPathMessage>(*decoded).bytes);
  if (!message.ok()) {
    later_.push_back([this, link, why = message.status()] { core_->LinkLost(link, why); });
    return true;
  }
  if (owner_paths_ != nullptr) owner_paths_->OnMessage(link, *message);
  if (writer_paths_ != nullptr) writer_paths_->OnMessage(link, *message, now);
  return true;
}

bool UcxReactor::RunCommands() {
  return TakeCommands([this] { RunLater(); });
}

bool UcxReactor::TakeCommands(absl::FunctionRef<void()> after_each) {
  std::vector<UcxCommand> commands;
  {
    MutexLock lock(&mutex_);
    commands.swap(commands_);
  }
  for (const UcxCommand& command : commands) {
    Run(command);
    after_each();
  }
  return !commands.empty();
}

void UcxReactor::Run(const UcxCommand& command) {
  if (const auto* grant = std::get_if<GrantCommand>(&command)) {
    owner_->Grant(grant->ticket);
  } else if (const auto* revoke = std::get_if<RevokeCommand>(&command)) {
    owner_->Revoke(revoke->generation);
  } else if (const auto* accept = std::get_if<AcceptCommand>(&command)) {
    writer_->Accept(accept->ticket);
  } else if (const auto* write = std::get_if<WriteCommand>(&command)) {
    writer_->Write(write->id, write->key, write->layer, write->pieces);
  } else if (const auto* commit = std::get_if<Commit>(&command)) {
    writer_->SendCommit(*commit);
  } else if (const auto* abandon = std::get_if<AbandonCommand>(&command)) {
    writer_->Abandon(abandon->key, abandon->why);
  }
}

bool UcxReactor::Progress() {
  bool any = false;
  for (UcxWorker* worker : workers_) {
    for (int i = 0; i < kProgressMax && worker->Progress(); ++i) any = true;
  }
  return any;
}

bool UcxReactor::StepPaths(absl::Time now) {
  const auto tell = [this](LinkId link, bool fenced) {
    later_.push_back([this, link, fenced] { Closed(link, fenced); });
  };
  if (owner_paths_ != nullptr) {
    const bool moved = owner_paths_->Step();
    for (const auto& [link, fenced] : owner_paths_->TakeClosed()) tell(link, fenced);
    return moved;
  }
  const bool moved = writer_paths_->Step(now);
  for (const LinkId link : writer_paths_->TakeClosed()) tell(link, true);
  return moved;
}

bool UcxReactor::PathsBusy() const {
  return writer_paths_ != nullptr ? writer_paths_->busy() : owner_paths_->busy();
}

void UcxReactor::RunLater() {
  while (!later_.empty()) {
    for (auto& call : std::exchange(later_, {})) call();
  }
}

void UcxReactor::Publish(absl::Time now) {
  std::vector<TransportEvent> events;
  core_->Poll(events);
  for (const TransportEvent& event : events) {
    if (std::holds_alternative<PeerUp>(event) || std::holds_alternative<PeerDown>(event)) {
      links_changed_ = true;
    }
  }
  if (links_changed_ || now - published_ >= kPublishEvery) PublishLinks(now);
  if (events.empty()) return;
  {
    MutexLock lock(&mutex_);
    for (TransportEvent& event : events) events_.push_back(std::move(event));
  }
  if (bell_ != nullptr) bell_->Ring();
}

void UcxReactor::PublishLinks(absl::Time now) {
  published_ = now;
  links_changed_ = false;
  std::vector<UcxLinkStatus> links;
  for (const LinkView& view : core_->links()) {
    UcxLinkStatus status;
    status.view = view;
    const auto traffic = traffic_.find(view.link);
    if (traffic != traffic_.end()) {
      status.bytes = traffic->second.bytes;
      status.writes = traffic->second.writes;
    }
    if (owner_paths_ != nullptr) status.bytes = owner_paths_->bytes_landed(view.link);
    links.push_back(std::move(status));
  }
  UcxTransportCounters counters;
  counters.protocol = core_->counters();
  counters.connections_refused = sockets_->refused();
  counters.dials = sockets_->dials();
  counters.dial_error = sockets_->dial_error();
  counters.bytes_written = bytes_written_;
  if (owner_paths_ != nullptr) {
    counters.messages_refused = owner_paths_->messages_refused();
    counters.bytes_landed = owner_paths_->bytes_landed();
    counters.compared = owner_->compared();
  }
  if (messages_ != nullptr) counters.messages_refused += messages_->messages_refused();
  MutexLock lock(&mutex_);
  links_ = std::move(links);
  counters_ = counters;
}

absl::Duration UcxReactor::Idle(bool active, absl::Time now) {
  const bool busy = PathsBusy();
  if (active) {
    last_active_ = now;
    return absl::ZeroDuration();
  }
  // Between the layers of a push the next Write is near: sleeping would cost it a wake-up.
  const bool pushing = writer_ != nullptr && writer_->pushes() > 0;
  if ((busy || pushing) && now - last_active_ < kSpin) {
    sched_yield();
    return absl::ZeroDuration();
  }
  poller_.PrepareToWait();
  bool commands = false;
  {
    MutexLock lock(&mutex_);
    commands = !commands_.empty();
  }
  if (commands || stopping_.load() || !ArmWorkers()) {
    poller_.DoNotWait();
    return absl::ZeroDuration();
  }
  const absl::Time deadline = std::min(core_->NextDeadline(), sockets_->NextDeadline(now));
  const absl::Duration wait = std::min(deadline - now, busy ? kBusyWaitMax : kIdleWaitMax);
  return std::max(wait, absl::ZeroDuration());
}

bool UcxReactor::ArmWorkers() {
  for (UcxWorker* worker : workers_) {
    if (!worker->Arm()) return false;
  }
  return true;
}

void UcxReactor::CloseEverything() {
  for (const LinkView& view : core_->links()) {
    if (writer_paths_ != nullptr) writer_paths_->Close(view.link);
    if (owner_paths_ != nullptr) (void)owner_paths_->Close(view.link);
  }
  const absl::Time give_up = clock_.Now() + kCloseWaitMax;
  while (PathsBusy() && clock_.Now() < give_up) {
    Progress();
    if (writer_paths_ != nullptr) (void)writer_paths_->TakeClosed();
  }
  later_.clear();
}

// ── asked from other threads ────────────────────────────────────────────────────────

void UcxReactor::Push(UcxCommand command) {
  {
    MutexLock lock(&mutex_);
    ENSURE(commands_.size() < kCommandsMax);
    commands_.push_back(std::move(command));
  }
  poller_.Wake();
}

void UcxReactor::TakeEvents(std::vector<TransportEvent>& events) {
  MutexLock lock(&mutex_);
  for (TransportEvent& event : events_) events.push_back(std::move(event));
  events_.clear();
}

std::vector<UcxLinkStatus> UcxReactor::Links() const {
  MutexLock lock(&mutex_);
  return links_;
}

UcxTransportCounters UcxReactor::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
}

// ── LinkIo ──────────────────────────────────────────────────────────────────────────

void UcxReactor::Send(LinkId link, std::vector<uint8_t> frame) {
  sockets_->Send(link, std::move(frame));
}

void UcxReactor::Close(LinkId link, const absl::Status&) {
  later_.push_back([this, link] { DoClose(link); });
}

void UcxReactor::DoClose(LinkId link) {
  sockets_->Close(link);
  if (writer_paths_ != nullptr) return writer_paths_->Close(link);  // TakeClosed goes on
  const std::optional<bool> fenced = owner_paths_->Close(link);
  if (fenced.has_value()) Closed(link, *fenced);  // else TakeClosed goes on
}

void UcxReactor::Closed(LinkId link, bool fenced) {
  links_changed_ = true;
  core_->DataClosed(link, fenced);
  const auto traffic = traffic_.find(link);
  const bool good = traffic != traffic_.end() && traffic->second.was_up;
  if (traffic != traffic_.end()) traffic_.erase(traffic);
  sockets_->Release(link, good, clock_.Now());
}

void UcxReactor::Prepare(LinkId link, const Hello& peer) {
  if (owner_paths_ != nullptr) owner_paths_->Prepare(link, peer);
  if (writer_paths_ != nullptr) writer_paths_->Prepare(link, peer);
}

void UcxReactor::Post(LinkId link, DataWrite write) {
  PostedWrite& posted = posted_[write.header.write];
  posted = {link, write.bytes};
  if (damage_one_in_ > 0 && write.header.write % damage_one_in_ == 0) {
    posted.damaged = region_.pool() + write.copies.back().source_offset;
    *posted.damaged ^= kDamage;
  }
  writer_paths_->Post(link, std::move(write));
}

absl::Time UcxReactor::Now() const { return clock_.Now(); }

// ── PathHost ────────────────────────────────────────────────────────────────────────

void UcxReactor::SendPath(LinkId link, const PathMessage& message) {
  sockets_->Send(link, EncodeFrame(DataPathMessage{Encode(message)}));
}

void UcxReactor::PathReady(LinkId link, const LinkInfo& info) {
  later_.push_back([this, link, info] {
    traffic_[link].was_up = true;
    links_changed_ = true;
    core_->DataReady(link, info);
  });
}

void UcxReactor::PathFailed(LinkId link, const absl::Status& why) {
  later_.push_back([this, link, why] { core_->DataFailed(link, why); });
}

void UcxReactor::PathBroken(LinkId link, const absl::Status& why) {
  later_.push_back([this, link, why] { core_->LinkLost(link, why); });
}

void UcxReactor::TakeGrants() {
  TakeCommands([] {});
}

absl::StatusOr<SocketAddress> UcxReactor::PeerAddress(LinkId link) const {
  return sockets_->PeerAddress(link);
}

void UcxReactor::WriteEnded(uint64_t write, const absl::Status& status) {
  later_.push_back([this, write, status] {
    const auto posted = posted_.find(write);
    ENSURE(posted != posted_.end());
    const auto [link, bytes, damaged] = posted->second;
    posted_.erase(posted);
    if (damaged != nullptr) *damaged ^= kDamage;
    if (status.ok()) {
      const auto traffic = traffic_.find(link);
      if (traffic != traffic_.end()) {
        traffic->second.bytes += bytes;
        ++traffic->second.writes;
      }
      bytes_written_ += bytes;
    }
    writer_->WriteEnded(write, status);
  });
}

}  // namespace baton::kv
