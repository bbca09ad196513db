// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_writer_paths.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/ensure.h"
#include "base/status_macros.h"
#include "kv_transfer/socket_path.h"
#include "kv_transfer/ucx_memory_path.h"
#include "kv_transfer/ucx_message_path.h"
#include "kv_transfer/ucx_process.h"

namespace baton::kv {
namespace {

const DataPathOffer* FindOffer(const Hello& peer, char path) {
  for (const DataPathOffer& offer : peer.offers) {
    if (offer.path == path) return &offer;
  }
  return nullptr;
}

absl::string_view NameOf(char proposal) {
  return proposal == 'A'   ? "memory writes"
         : proposal == 'R' ? "RDMA"
         : proposal == 'S' ? "sockets"
                           : "messages over UCX";
}

absl::StatusOr<MemoryOffer> DecodeOffer(const DataPathOffer& offer, const Hello& peer) {
  ASSIGN_OR_RETURN(MemoryOffer memory, DecodeMemoryOffer(offer.blob));
  if (memory.pool_bytes != peer.layout.pool_bytes()) {
    return absl::InvalidArgumentError("the peer's offer does not fit its layout");
  }
  return memory;
}

constexpr uint64_t kFlowKey = uint64_t{7} << 56;
constexpr int kFlowKeyBits = 8;  // of one path's flows
static_assert(SocketPath::kFlows < (1u << kFlowKeyBits));

}  // namespace

void UcxWriterPaths::Prepare(LinkId link, const Hello& peer) {
  Link& fresh = links_[link];
  fresh.peer = peer;
  TryNext(link, fresh);
}

// Proposes the path behind the one tried last.
void UcxWriterPaths::TryNext(LinkId id, Link& link) {
  absl::Status opened;
  do {
    const size_t next = link.trying == '?' ? 0 : kProposals.find(link.trying) + 1;
    if (next == kProposals.size()) {
      link.state = State::kFailed;
      const std::string why =
          absl::StrCat("no data path to ", link.peer.self.worker, ": ", link.tried);
      PathMessage failed{.step = PathStep::kMeasured};
      failed.text = why;
      failed.number = link.came_close ? 1 : 0;
      host_.SendPath(id, failed);
      return host_.PathFailed(id, NoPath(failed));
    }
    link.trying = kProposals[next];
    opened = Open(id, link);
    if (!opened.ok()) NoteTried(link, opened);
  } while (!opened.ok());
  link.state = State::kProposed;
  PathMessage proposal{.step = PathStep::kPropose, .path = link.trying};
  if (link.trying == 'R') proposal.number = workers_.rdma->client();
  host_.SendPath(id, proposal);
}

void UcxWriterPaths::NoteTried(Link& link, const absl::Status& why) {
  absl::StrAppend(&link.tried, link.tried.empty() ? "" : "; ", NameOf(link.trying), ": ",
                  why.message());
}

absl::Status UcxWriterPaths::Open(LinkId id, Link& link) {
  if (link.trying == 'A') return OpenMemory(id, link);
  if (link.trying == 'R') return OpenRdma(id, link);
  if (link.trying == 'S') return OpenSockets(id, link);
  return OpenMessages(link);
}

absl::Status UcxWriterPaths::OpenMemory(LinkId id, Link& link) {
  if (!policy_.allow_memory) {
    return absl::FailedPreconditionError(absl::StrCat(
        "excluded by kv_transfer.", policy_.require_rdma ? "require_rdma" : "transport"));
  }
  const DataPathOffer* offer = FindOffer(link.peer, 'A');
  if (offer == nullptr || workers_.memory == nullptr) {
    return absl::UnavailableError(offer == nullptr ? "not offered by the peer" : "not had here");
  }
  if (link.peer.process.boot_id != self_.boot_id) {
    return absl::UnavailableError("the peer is on another host");
  }
  const bool others = policy_.allow_sockets || policy_.allow_messages;
  if (others && link.peer.net_namespace != policy_.net_namespace) {
    return absl::UnavailableError(
        "the peer is in another network namespace (kv_transfer.transport: shm overrides this)");
  }
  ASSIGN_OR_RETURN(const MemoryOffer memory, DecodeOffer(*offer, link.peer));
  // UCX before 1.19 crashes on the key of a dead process.
  if (SharesPids(self_, link.peer.process) && !IsAlive(link.peer.process)) {
    return absl::UnavailableError("the peer's process is gone");
  }
  ASSIGN_OR_RETURN(link.path, UcxMemoryPath::Open(*workers_.memory, memory, pool_, region_.probe(),
                                                  id, host_));
  return absl::OkStatus();
}

absl::Status UcxWriterPaths::OpenRdma(LinkId id, Link& link) {
  const DataPathOffer* offer = FindOffer(link.peer, 'R');
  if (offer == nullptr || workers_.rdma == nullptr) {
    return absl::UnavailableError(offer == nullptr ? "not offered by the peer" : "not had here");
  }
  ASSIGN_OR_RETURN(const MemoryOffer memory, DecodeOffer(*offer, link.peer));
  ASSIGN_OR_RETURN(const uint16_t port, RdmaPort(memory));
  ASSIGN_OR_RETURN(const SocketAddress owner, host_.PeerAddress(id));
  link.path = UcxMemoryPath::OverRdma(*workers_.rdma, owner.WithPort(port), memory, pool_,
                                      region_.probe(), id, host_);
  return absl::OkStatus();
}

absl::Status UcxWriterPaths::OpenSockets(LinkId id, Link& link) {
  if (!policy_.allow_sockets) {
    return absl::FailedPreconditionError("excluded by kv_transfer.transport");
  }
  if (FindOffer(link.peer, 'S') == nullptr) {
    return absl::UnavailableError("not offered by the peer");
  }
  ASSIGN_OR_RETURN(const SocketAddress owner, host_.PeerAddress(id));
  const uint64_t key = kFlowKey | (++last_key_ << kFlowKeyBits);
  link.path = std::make_unique<SocketPath>(owner, pool_, region_.probe(), key, poller_, host_);
  return absl::OkStatus();
}

absl::Status UcxWriterPaths::OpenMessages(Link& link) {
  if (!policy_.allow_messages) {
    return absl::FailedPreconditionError("excluded by kv_transfer.transport");
  }
  const DataPathOffer* offer = FindOffer(link.peer, 'B');
  if (offer == nullptr || workers_.messages == nullptr) {
    return absl::UnavailableError(offer == nullptr ? "not offered by the peer" : "not had here");
  }
  if (offer->blob.empty()) return absl::InvalidArgumentError("the peer's offer is empty");
  ASSIGN_OR_RETURN(link.path, UcxMessagePath::Open(*workers_.messages, offer->blob, pool_,
                                                   region_.probe(), host_));
  return absl::OkStatus();
}

void UcxWriterPaths::Retire(Link& link) {
  if (link.path == nullptr) return;
  link.path->Close();
  link.retired.push_back(std::move(link.path));
}

void UcxWriterPaths::NotThis(LinkId id, Link& link, const absl::Status& why) {
  EndMeasure(id);
  NoteTried(link, why);
  Retire(link);
  TryNext(id, link);
}

void UcxWriterPaths::OnMessage(LinkId id, const PathMessage& message, absl::Time now) {
  const auto found = links_.find(id);
  if (found == links_.end() || found->second.path == nullptr) return;
  Link& link = found->second;
  if (message.step != PathStep::kAnswer) return link.path->OnMessage(message, now);
  if (link.state != State::kProposed || message.path != link.trying) return;
  if (!message.ok) return NotThis(id, link, absl::UnavailableError(message.text));
  link.state = State::kAgreed;
  link.token = message.number;
  MeasureNext(now);
}

void UcxWriterPaths::MeasureNext(absl::Time now) {
  if (measuring_.has_value()) return;
  for (auto& [id, link] : links_) {
    if (link.state != State::kAgreed) continue;
    measuring_ = id;
    region_.TouchProbe();
    link.state = State::kMeasuring;
    return link.path->Begin(link.token, now);
  }
}

void UcxWriterPaths::EndMeasure(LinkId id) {
  if (measuring_ != id) return;
  measuring_.reset();
  region_.ForgetProbe();
}

// What has become of the measurement, or of a path that was up.
void UcxWriterPaths::Judge(LinkId id, Link& link) {
  const auto& result = link.path->result();
  if (!result.has_value()) return;
  if (link.state == State::kUp && !result->ok()) {
    link.state = State::kFailed;
    return host_.PathBroken(id, result->status());
  }
  if (link.state != State::kMeasuring) return;
  if (!result->ok()) {
    link.came_close = true;
    return NotThis(id, link, result->status());
  }
  EndMeasure(id);
  LinkInfo info = (*result)->info;
  // Of messages the owner compares each before it says that it has landed.
  info.cost.sums_bandwidth = sums_bandwidth_ / (info.data_path == 'A' ? 1 : 2);
  info.link_class = ClassOf(info.transport);
  info.expected = ExpectedClass(policy_, self_, link.peer);
  info.tried = link.tried;
  PathMessage measured{.step = PathStep::kMeasured, .path = link.trying, .ok = true};
  measured.text = info.transport;
  measured.cost = info.cost;
  host_.SendPath(id, measured);
  const absl::Status allowed = CheckPolicy(policy_, link.peer.self, info);
  link.state = allowed.ok() ? State::kUp : State::kFailed;
  if (!allowed.ok()) return host_.PathFailed(id, allowed);
  host_.PathReady(id, info);
}

void UcxWriterPaths::Post(LinkId id, DataWrite write) {
  const auto found = links_.find(id);
  ENSURE(found != links_.end());
  Link& link = found->second;
  if (link.state != State::kUp) {
    return host_.WriteEnded(write.header.write, absl::UnavailableError("the data path broke"));
  }
  link.path->Post(std::move(write));
}

void UcxWriterPaths::Close(LinkId id) {
  Link& link = links_[id];  // perhaps never prepared
  link.state = State::kClosing;
  EndMeasure(id);
  Retire(link);
}

bool UcxWriterPaths::Step(absl::Time now) {
  bool moved = false;
  MeasureNext(now);
  for (auto& [id, link] : links_) {
    if (link.path == nullptr) continue;
    moved |= link.path->Step(now);
    Judge(id, link);
  }
  return moved;
}

bool UcxWriterPaths::Handle(const ReadyFd& ready) {
  for (auto& [id, link] : links_) {
    if (link.path != nullptr && link.path->Handle(ready)) return true;
  }
  return false;
}

bool UcxWriterPaths::busy() const {
  for (const auto& [id, link] : links_) {
    if (link.path != nullptr && link.path->busy()) return true;
    if (!link.retired.empty()) return true;
  }
  return false;
}

std::vector<LinkId> UcxWriterPaths::TakeClosed() {
  std::vector<LinkId> closed;
  for (auto it = links_.begin(); it != links_.end();) {
    auto& retired = it->second.retired;
    retired.erase(std::remove_if(retired.begin(), retired.end(),
                                 [](const auto& path) { return path->closed().has_value(); }),
                  retired.end());
    if (it->second.state == State::kClosing && retired.empty()) {
      closed.push_back(it->first);
      it = links_.erase(it);
    } else {
      ++it;
    }
  }
  return closed;
}

}  // namespace baton::kv
