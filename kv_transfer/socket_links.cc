// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/socket_links.h"

#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/status_macros.h"
#include "kv_transfer/flow_wire.h"

namespace baton::kv {
namespace {

constexpr int kLastReadsMax = 16;  // of a connection that broke

// Poller keys: what it is in the top byte, which one below.
constexpr uint64_t kListener = uint64_t{1} << 56;
constexpr uint64_t kConnection = uint64_t{2} << 56;
constexpr uint64_t kDial = uint64_t{3} << 56;
constexpr uint64_t kUnnamed = uint64_t{8} << 56;
constexpr uint64_t kIndexMask = (uint64_t{1} << 56) - 1;

constexpr absl::Duration kPauseMin = absl::Milliseconds(50);
constexpr absl::Duration kPauseMax = absl::Seconds(1);
constexpr absl::Duration kLookupPoll = absl::Milliseconds(5);
constexpr absl::Duration kListenerPause = absl::Milliseconds(100);
constexpr int kAcceptsMax = 16;

}  // namespace

absl::Duration DialPause(uint32_t failures, Random& random) {
  absl::Duration pause = kPauseMin * (1 << std::min<uint32_t>(failures, 10));
  pause = std::min(pause, kPauseMax);
  return pause * (0.75 + 0.25 * random.Unit());
}

absl::StatusOr<std::unique_ptr<SocketLinks>> SocketLinks::Create(const Options& options,
                                                                 SocketPoller& poller) {
  auto links = std::make_unique<SocketLinks>(options, poller);
  if (options.listen.has_value()) {
    ASSIGN_OR_RETURN(links->listener_, Listen(*options.listen));
    ASSIGN_OR_RETURN(const SocketAddress local, LocalAddress(links->listener_.get()));
    links->port_ = local.port();
    poller.Add(links->listener_.get(), kListener, true, false);
  }
  for (const DialTarget& target : options.dial) {
    links->dials_to_.emplace_back();
    links->dials_to_.back().target = target;
  }
  return links;
}

SocketLinks::~SocketLinks() {
  for (const auto& [link, connection] : connections_) {
    if (!connection.lost) poller_.Remove(connection.socket.fd());
  }
  for (const auto& [index, unnamed] : unnamed_) poller_.Remove(unnamed.fd.get());
  for (const Dial& dial : dials_to_) {
    if (dial.fd.open()) poller_.Remove(dial.fd.get());
  }
  if (listener_.open() && listen_again_ == absl::InfiniteFuture()) {
    poller_.Remove(listener_.get());
  }
}

bool SocketLinks::Handle(const ReadyFd& ready, absl::Time now) {
  const uint64_t index = ready.key & kIndexMask;
  const uint64_t kind = ready.key & ~kIndexMask;
  if (kind == kListener) {
    AcceptAll(now);
  } else if (kind == kDial) {
    Connected(index, now);
  } else if (kind == kUnnamed) {
    ReadFirst(index);
  } else if (kind == kConnection) {
    const LinkId link(index);
    const auto found = connections_.find(link);
    if (found == connections_.end() || found->second.lost) return true;
    if (ready.readable) {
      const absl::Status read = Receive(link, found->second).second;
      if (!read.ok()) {
        Lose(link, read);
        return true;
      }
    }
    const absl::Status sent = ready.writable ? found->second.socket.Flush() : absl::OkStatus();
    if (!sent.ok()) {
      LoseAfterLastWords(link, sent);
    } else {
      UpdateInterest(link, found->second);
    }
  } else {
    return false;
  }
  return true;
}

void SocketLinks::AcceptAll(absl::Time now) {
  for (int i = 0; i < kAcceptsMax; ++i) {
    absl::StatusOr<Fd> fd = kv::Accept(listener_.get());
    if (absl::IsNotFound(fd.status())) return;
    if (!fd.ok()) return PauseListener(now);  // out of descriptors, most likely
    if (connections_.size() + unnamed_.size() >= options_.links_max) {
      ++refused_;
      continue;
    }
    const uint64_t index = ++last_unnamed_;
    poller_.Add(fd->get(), kUnnamed | index, true, false);
    unnamed_.emplace(index, Unnamed{*std::move(fd), {}, now + options_.connect_max});
  }
}

void SocketLinks::ReadFirst(uint64_t index) {
  const auto found = unnamed_.find(index);
  if (found == unnamed_.end()) return;
  Unnamed& unnamed = found->second;
  // Not a byte more than says what it is: the rest is read by whom it is for.
  const absl::Status read = ReadUpTo(unnamed.fd.get(), kFlowPreambleBytes, unnamed.first);
  const std::optional<bool> flow = BeginsFlow(unnamed.first);
  const bool whole = unnamed.first.size() == kFlowPreambleBytes;
  const bool known = flow.has_value() && (!*flow || whole);
  if (read.ok() && !known) return;
  poller_.Remove(unnamed.fd.get());
  Unnamed named = std::move(unnamed);
  unnamed_.erase(found);
  if (!known) return;
  if (!*flow) {
    const LinkId link = Open(std::move(named.fd), nullptr);
    std::vector<std::vector<uint8_t>> frames;
    const absl::Status fed = connections_.find(link)->second.socket.Feed(named.first, frames);
    AddFrames(link, std::move(frames));
    if (!fed.ok()) Lose(link, fed);
    return;
  }
  const absl::StatusOr<uint64_t> token = DecodeFlowPreamble(named.first);
  if (!token.ok()) {
    ++refused_;
    return;
  }
  events_.push_back(
      {.kind = SocketEvent::Kind::kFlow, .flow = std::move(named.fd), .token = *token});
}

void SocketLinks::PauseListener(absl::Time now) {
  poller_.Remove(listener_.get());
  listen_again_ = now + kListenerPause;
  ++refused_;
}

LinkId SocketLinks::Open(Fd fd, Dial* dial) {
  const LinkId link(++last_link_);
  const int raw = fd.get();
  connections_.emplace(link, Connection(std::move(fd)));
  poller_.Add(raw, kConnection | link.value(), true, false);
  if (dial != nullptr) {
    dial->link = link;
    dial->state = Dial::State::kLinked;
  }
  const std::string name = dial == nullptr ? "" : dial->target.name;
  events_.push_back({.kind = SocketEvent::Kind::kOpened, .link = link, .dialled = name});
  return link;
}

void SocketLinks::AddFrames(LinkId link, std::vector<std::vector<uint8_t>> frames) {
  for (auto& frame : frames) {
    events_.push_back({.kind = SocketEvent::Kind::kFrame, .link = link, .frame = std::move(frame)});
  }
}

std::pair<bool, absl::Status> SocketLinks::Receive(LinkId link, Connection& connection) {
  std::vector<std::vector<uint8_t>> frames;
  const absl::Status status = connection.socket.Receive(frames);
  const bool any = !frames.empty();
  AddFrames(link, std::move(frames));
  return {any, status};
}

// Sending noticed that the connection broke.  What the peer had said before counts all the same:
// it may be a writer's Commit.
void SocketLinks::LoseAfterLastWords(LinkId link, const absl::Status& why) {
  Connection& connection = connections_.find(link)->second;
  for (int i = 0; i < kLastReadsMax; ++i) {
    const auto [more, status] = Receive(link, connection);
    if (!more || !status.ok()) break;
  }
  Lose(link, why);
}

void SocketLinks::Lose(LinkId link, const absl::Status& why) {
  Connection& connection = connections_.find(link)->second;
  if (connection.lost) return;
  connection.lost = true;
  poller_.Remove(connection.socket.fd());
  events_.push_back({.kind = SocketEvent::Kind::kLost, .link = link, .why = why});
}

void SocketLinks::UpdateInterest(LinkId link, Connection& connection) {
  const bool write = connection.socket.wants_write();
  if (write == connection.polls_write) return;
  connection.polls_write = write;
  poller_.Change(connection.socket.fd(), kConnection | link.value(), true, write);
}

void SocketLinks::Send(LinkId link, std::vector<uint8_t> frame) {
  const auto found = connections_.find(link);
  if (found == connections_.end() || found->second.lost) return;
  const absl::Status sent = found->second.socket.Send(std::move(frame));
  if (!sent.ok()) return LoseAfterLastWords(link, sent);
  UpdateInterest(link, found->second);
}

void SocketLinks::Close(LinkId link) {
  const auto found = connections_.find(link);
  if (found == connections_.end()) return;
  if (!found->second.lost) {
    (void)found->second.socket.Flush();  // the last word, if it needs no waiting
    poller_.Remove(found->second.socket.fd());
  }
  connections_.erase(found);
  events_.erase(std::remove_if(events_.begin(), events_.end(),
                               [&](const SocketEvent& event) { return event.link == link; }),
                events_.end());
}

absl::StatusOr<SocketAddress> SocketLinks::PeerAddress(LinkId link) const {
  const auto found = connections_.find(link);
  if (found == connections_.end()) return absl::UnavailableError("the link is gone");
  return kv::PeerAddress(found->second.socket.fd());
}

void SocketLinks::Release(LinkId link, bool good, absl::Time now) {
  for (Dial& dial : dials_to_) {
    if (dial.state != Dial::State::kLinked || dial.link != link) continue;
    if (good) dial.failures = 0;
    DialFailed(dial, absl::OkStatus(), now);
  }
}

void SocketLinks::DialFailed(Dial& dial, const absl::Status& why, absl::Time now) {
  if (!why.ok()) {
    dial_error_ =
        absl::StrCat(dial.target.address.host, ":", dial.target.address.port, ": ", why.message());
  }
  if (dial.fd.open()) {
    poller_.Remove(dial.fd.get());
    dial.fd.Close();
  }
  dial.lookup = nullptr;
  dial.state = Dial::State::kWaiting;
  dial.at = now + DialPause(dial.failures++, random_);
}

void SocketLinks::Advance(size_t index, absl::Time now) {
  Dial& dial = dials_to_[index];
  if (dial.state == Dial::State::kWaiting && now >= dial.at) {
    ++dials_;
    dial.lookup = std::make_unique<AddressLookup>(dial.target.address);
    dial.state = Dial::State::kLookup;
    dial.at = now + options_.connect_max;
  }
  if (dial.state == Dial::State::kLookup) {
    const auto answer = dial.lookup->Poll();
    if (!answer.has_value()) {
      if (now >= dial.at) DialFailed(dial, absl::UnavailableError("no answer to the look-up"), now);
      return;
    }
    if (!answer->ok()) return DialFailed(dial, answer->status(), now);
    dial.lookup = nullptr;
    absl::StatusOr<Fd> fd = StartConnect(**answer);
    if (!fd.ok()) return DialFailed(dial, fd.status(), now);
    dial.fd = *std::move(fd);
    dial.state = Dial::State::kConnecting;
    dial.at = now + options_.connect_max;
    poller_.Add(dial.fd.get(), kDial | index, false, true);
  } else if (dial.state == Dial::State::kConnecting && now >= dial.at) {
    DialFailed(dial, absl::UnavailableError("no answer"), now);
  }
}

void SocketLinks::Connected(size_t index, absl::Time now) {
  Dial& dial = dials_to_[index];
  if (dial.state != Dial::State::kConnecting) return;
  const absl::Status connected = ConnectResult(dial.fd.get());
  if (!connected.ok()) return DialFailed(dial, connected, now);
  dial_error_.clear();
  poller_.Remove(dial.fd.get());
  Open(std::move(dial.fd), &dial);
}

void SocketLinks::Tick(absl::Time now) {
  if (now >= listen_again_) {
    listen_again_ = absl::InfiniteFuture();
    poller_.Add(listener_.get(), kListener, true, false);
  }
  for (size_t i = 0; i < dials_to_.size(); ++i) Advance(i, now);
  // Those accepted first are given up first.
  while (!unnamed_.empty() && now >= unnamed_.begin()->second.until) {
    poller_.Remove(unnamed_.begin()->second.fd.get());
    unnamed_.erase(unnamed_.begin());
    ++refused_;
  }
}

absl::Time SocketLinks::NextDeadline(absl::Time now) const {
  absl::Time next = listen_again_;
  if (!unnamed_.empty()) next = std::min(next, unnamed_.begin()->second.until);
  for (const Dial& dial : dials_to_) {
    if (dial.state == Dial::State::kLookup) next = std::min(next, now + kLookupPoll);
    if (dial.state == Dial::State::kWaiting || dial.state == Dial::State::kConnecting) {
      next = std::min(next, dial.at);
    }
  }
  return next;
}

}  // namespace baton::kv
