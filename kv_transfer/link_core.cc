// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Hello, pairing, readiness, heartbeats and silence of links (K6; docs/kv_transfer.md, Links).
#include "kv_transfer/link_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "kv_transfer/conversion.h"

namespace baton::kv {
namespace {

// The writer measures; the owner reports what its peer found.
void Believe(const LinkInfo& said, LinkInfo& info) {
  info.transport = said.transport;
  info.data_path = said.data_path;
  info.cost = said.cost;
}

}  // namespace

LinkCore::LinkCore(const LinkOptions& options, Hello self, LinkIo& io)
    : link_options_(options), self_(std::move(self)), io_(io) {
  ENSURE(self_.self.incarnation != Incarnation());
  ENSURE(!self_.self.worker.empty());
  ENSURE(!CheckLayout(self_.layout).has_value());
  ENSURE(options.dead_after > options.heartbeat_interval);
}

void LinkCore::LinkOpened(LinkId id, const std::string& to, absl::Time now) {
  ENSURE(now >= now_);
  now_ = now;
  if (!accepts_links()) {
    io_.Close(id, absl::UnavailableError("draining before a new incarnation"));
    return;
  }
  if (links_.size() >= link_options_.links_max) {
    io_.Close(id, absl::ResourceExhaustedError("too many links"));
    return;
  }
  Link link;
  link.id = id;
  link.to = to;
  link.since = link.heard = link.said = link.ticks_changed = now;
  const bool fresh = links_.emplace(id, link).second;
  ENSURE(fresh);
  Hello hello = self_;
  hello.to = to;
  Send(link, hello);
}

void LinkCore::FrameArrived(LinkId id, absl::Span<const uint8_t> bytes, absl::Time now) {
  ENSURE(now >= now_);
  now_ = now;
  Link* link = Find(id);
  if (link == nullptr) return;  // closed by us; the rest of its stream means nothing
  auto frame = DecodeFrame(bytes);
  if (!frame.ok()) {
    ++counters_.malformed_frames;
    EndLink(id, frame.status());
    return;
  }
  link->heard = now;
  const bool hello = std::holds_alternative<Hello>(*frame);
  if (const auto* refused = std::get_if<HelloRefused>(&*frame)) {
    ++counters_.refused_hellos;
    if (link->peer) Emit(PeerDown{PeerOf(*link), absl::FailedPreconditionError(refused->message)});
    EndLink(id, absl::FailedPreconditionError(refused->message));
  } else if (hello != (link->state == LinkState::kHello)) {
    ++counters_.malformed_frames;  // Hello is the first frame, and only the first
    EndLink(id, absl::InvalidArgumentError("frame: Hello missing or repeated"));
  } else if (hello) {
    HelloArrived(id, std::get<Hello>(*frame));
  } else if (const auto* ready = std::get_if<Ready>(&*frame)) {
    ReadyArrived(*link, *ready);
  } else if (const auto* heartbeat = std::get_if<Heartbeat>(&*frame)) {
    if (heartbeat->ticks != link->ticks) link->ticks_changed = now;
    link->ticks = heartbeat->ticks;
    HeartbeatArrived(*link, *heartbeat);
  } else if (!std::holds_alternative<DataPathMessage>(*frame)) {
    Received(*link, *frame);
  }
}

void LinkCore::HelloArrived(LinkId id, const Hello& hello) {
  Link* link = Find(id);
  ENSURE(link != nullptr);
  if (const auto refusal = CheckPair(self_, hello, link_options_.pair)) {
    Emit(PeerDown{hello.self, absl::FailedPreconditionError(refusal->message)});
    Refuse(*link, *refusal);
    return;
  }
  // Before it could replace the link that this peer has under its own address.
  if (const std::optional<Refusal> refusal = CheckMeant(*link, hello)) {
    if (!link->to.empty()) {
      Emit(PeerDown{{link->to, Incarnation()}, absl::FailedPreconditionError(refusal->message)});
    }
    Refuse(*link, *refusal);
    return;
  }
  const auto same_name = [&](const auto& entry) {
    return entry.first != id && entry.second.peer &&
           entry.second.peer->self.worker == hello.self.worker;
  };
  const auto other = std::find_if(links_.begin(), links_.end(), same_name);
  if (other != links_.end()) {
    if (other->second.peer->process != hello.process) {
      Refuse(*link,
             {"worker", absl::StrCat("another process named ", hello.self.worker, " is alive")});
      return;
    }
    EndLink(other->first, absl::UnavailableError("replaced by a later connection"));
    link = Find(id);
    ENSURE(link != nullptr);
  }
  link->peer = hello;
  HelloAccepted(*link);
}

std::optional<Refusal> LinkCore::CheckMeant(const Link& link, const Hello& hello) const {
  if (!link.to.empty() && link.to != hello.self.worker) {
    return Refusal{"worker", absl::StrCat("the address of ", link.to, " is answered by ",
                                          hello.self.worker, ": check its `transfer`")};
  }
  if (!hello.to.empty() && hello.to != self_.self.worker) {
    return Refusal{"worker",
                   absl::StrCat("the peer means ", hello.to, ", this is ", self_.self.worker)};
  }
  return std::nullopt;
}

void LinkCore::Refuse(Link& link, const Refusal& refusal) {
  ++counters_.refused_hellos;
  Send(link, HelloRefused{refusal.field, refusal.message});
  EndLink(link.id, absl::FailedPreconditionError(refusal.message));
}

void LinkCore::Prepare(Link& link) {
  ENSURE(link.peer.has_value());
  ENSURE(link.state == LinkState::kHello);
  link.state = LinkState::kPreparing;
  link.since = now_;
  io_.Prepare(link.id, *link.peer);
}

void LinkCore::DataReady(LinkId id, const LinkInfo& info) {
  Link* link = Find(id);
  if (link == nullptr || link->state != LinkState::kPreparing) return;
  ENSURE(!link->data_ready);
  ENSURE(info.data_path == 'A' || info.data_path == 'B');
  link->data_ready = true;
  if (link->peer_ready && link->info.data_path != info.data_path) {
    EndLink(id, absl::InternalError("the two sides chose different data paths"));
    return;
  }
  const LinkInfo said = link->info;  // by the peer's Ready, if it came first
  link->info = info;
  link->info.measured = now_;
  if (link->peer_ready && self_.role == Role::kDecode) Believe(said, link->info);
  DescribePair(*link);
  Send(*link, Ready{.transport = info.transport, .data_path = info.data_path, .cost = info.cost});
  UpIfReady(*link);
}

void LinkCore::ReadyArrived(Link& link, const Ready& ready) {
  if (link.state != LinkState::kPreparing || link.peer_ready) return;
  link.peer_ready = true;
  if (link.data_ready && link.info.data_path != ready.data_path) {
    EndLink(link.id, absl::InternalError("the two sides chose different data paths"));
    return;
  }
  const LinkInfo said{
      .transport = ready.transport, .data_path = ready.data_path, .cost = ready.cost};
  if (!link.data_ready || self_.role == Role::kDecode) Believe(said, link.info);
  UpIfReady(link);
}

// What both hellos say of the pair.
void LinkCore::DescribePair(Link& link) const {
  link.info.mixed_numerics = MixedNumerics(self_, *link.peer);
  link.info.conversion =
      DescribeConversion(SourceOf(self_, *link.peer), TargetOf(self_, *link.peer));
}

void LinkCore::UpIfReady(Link& link) {
  if (!link.data_ready || !link.peer_ready) return;
  ENSURE(link.state == LinkState::kPreparing);
  link.state = LinkState::kUp;
  link.since = now_;
  link.told = link.info;
  link.told_at = now_;
  Emit(PeerUp{PeerOf(link), link.info});
}

void LinkCore::TellIfMeasured(Link& link, absl::Time now) {
  if (link.state != LinkState::kUp || now - link.told_at < link_options_.measured_every) return;
  const bool same = link.info.cost == link.told.cost && link.info.measured == link.told.measured &&
                    link.info.in_flight_bytes == link.told.in_flight_bytes;
  if (same) return;
  link.told = link.info;
  link.told_at = now;
  Emit(PeerMeasured{PeerOf(link), link.info});
}

void LinkCore::DataFailed(LinkId id, const absl::Status& why) {
  ENSURE(!why.ok());
  const Link* link = Find(id);
  if (link == nullptr) return;
  SayIfPreparing(*link, why);
  EndLink(id, why);
}

// That two processes agree and still have no link: nobody else would say so.
void LinkCore::SayIfPreparing(const Link& link, const absl::Status& why) {
  if (link.state != LinkState::kPreparing) return;
  PeerDown down{PeerOf(link), why};
  down.agreed = true;
  Emit(std::move(down));
}

void LinkCore::LinkLost(LinkId id, const absl::Status& why) {
  ENSURE(!why.ok());
  if (Find(id) != nullptr) EndLink(id, why);
}

void LinkCore::EndLink(LinkId id, const absl::Status& why, bool silent) {
  ENSURE(!why.ok());
  const auto it = links_.find(id);
  ENSURE(it != links_.end());
  const Link link = std::move(it->second);
  links_.erase(it);
  io_.Close(id, why);
  if (link.peer) LinkEnded(link, why, silent);
}

void LinkCore::ForgiveOwnAbsence(absl::Time now) {
  // If this process itself stood still (stopped, swapped out), its peers' frames wait unread:
  // the gap is not their silence.
  const absl::Duration gap = now - last_tick_;
  if (last_tick_ != absl::InfinitePast() && gap > link_options_.dead_after / 2) {
    for (auto& [id, link] : links_) {
      link.heard = std::min(now, link.heard + gap);
      if (link.moved < now) link.moved = std::min(now, link.moved + gap);
    }
  }
  last_tick_ = now;
}

void LinkCore::Tick(absl::Time now, uint64_t role_ticks) {
  ENSURE(now >= now_);
  now_ = now;
  ForgiveOwnAbsence(now);
  struct Ending {
    LinkId link;
    absl::Status why;
    bool silent = false;
  };
  std::vector<Ending> endings;
  for (auto& [id, link] : links_) {
    if (now - link.heard >= link_options_.dead_after) {
      endings.push_back({id, absl::UnavailableError("silent for too long"), true});
    } else if (link.state == LinkState::kPreparing &&
               now - link.since >= link_options_.prepare_max) {
      endings.push_back({id, absl::UnavailableError("the data path did not come up in time")});
    } else if (now - link.moved >= link_options_.stuck_after) {
      // Heartbeats pass, bytes do not: a half-dead data path.
      endings.push_back({id, absl::UnavailableError("writes do not end")});
    } else if (link.peer && now - link.said >= link_options_.heartbeat_interval) {
      link.said = now;
      Send(link,
           Heartbeat{.ticks = role_ticks, .lowest_open = LowestOpen(link), .link = Report(link)});
      TellIfMeasured(link, now);
    }
  }
  for (const Ending& ending : endings) {
    const Link* link = Find(ending.link);
    if (link == nullptr) continue;
    SayIfPreparing(*link, ending.why);
    EndLink(ending.link, ending.why, ending.silent);
  }
}

absl::Time LinkCore::NextDeadline() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [id, link] : links_) {
    next = std::min(next, link.heard + link_options_.dead_after);
    if (link.state == LinkState::kPreparing) {
      next = std::min(next, link.since + link_options_.prepare_max);
    }
    next = std::min(next, link.moved + link_options_.stuck_after);
    if (link.peer) next = std::min(next, link.said + link_options_.heartbeat_interval);
  }
  return next;
}

void LinkCore::Emit(TransportEvent event) { events_.push_back(std::move(event)); }

void LinkCore::Poll(std::vector<TransportEvent>& events) {
  events.insert(events.end(), std::make_move_iterator(events_.begin()),
                std::make_move_iterator(events_.end()));
  events_.clear();
}

std::vector<LinkView> LinkCore::links() const {
  std::vector<LinkView> views;
  for (const auto& [id, link] : links_) {
    if (!link.peer) continue;
    views.push_back({.link = id,
                     .state = link.state,
                     .peer = PeerOf(link),
                     .info = link.info,
                     .heard = link.heard,
                     .ticks = link.ticks,
                     .ticks_changed = link.ticks_changed});
  }
  return views;
}

LinkCore::Link* LinkCore::Find(LinkId id) {
  const auto it = links_.find(id);
  return it == links_.end() ? nullptr : &it->second;
}

LinkCore::Link* LinkCore::FindKnown(Incarnation peer) {
  for (auto& [id, link] : links_) {
    if (link.peer && link.peer->self.incarnation == peer) return &link;
  }
  return nullptr;
}

LinkCore::Link* LinkCore::FindUp(Incarnation peer) {
  Link* link = FindKnown(peer);
  return link != nullptr && link->state == LinkState::kUp ? link : nullptr;
}

}  // namespace baton::kv
