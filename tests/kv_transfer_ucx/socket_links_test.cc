// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Connections that break: nothing that the peer had said is lost, whoever notices first.
#include "kv_transfer/socket_links.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "base/clock.h"
#include "kv_transfer/frame.h"

namespace baton::kv {
namespace {

// Both ends in one process: the side under test, and a peer that only has a socket.
struct Pair {
  Pair() {
    auto made = SocketPoller::Create();
    REQUIRE(made.ok());
    poller = std::make_unique<SocketPoller>(*std::move(made));
    SocketLinks::Options options;
    options.listen = *ResolveNow({"127.0.0.1", 0});
    links = *SocketLinks::Create(options, *poller);
    peer = *StartConnect(*ResolveNow({"127.0.0.1", links->port()}));
    while (link == LinkId()) Turn();
  }
  void Turn() {
    std::vector<ReadyFd> ready;
    poller->Wait(absl::Milliseconds(10), ready);
    for (const ReadyFd& one : ready) links->Handle(one, clock.Now());
    for (SocketEvent& event : links->TakeEvents()) {
      link = event.link;
      events.push_back(std::move(event));
    }
  }
  void PeerSays(const Frame& frame) {
    const std::vector<uint8_t> bytes = EncodeFrame(frame);
    REQUIRE(::send(peer.get(), bytes.data(), bytes.size(), 0) ==
            static_cast<ssize_t>(bytes.size()));
  }
  std::vector<SocketEvent::Kind> Kinds() const {
    std::vector<SocketEvent::Kind> kinds;
    for (const SocketEvent& event : events) kinds.push_back(event.kind);
    return kinds;
  }

  RealClock clock;
  std::unique_ptr<SocketPoller> poller;
  std::unique_ptr<SocketLinks> links;
  Fd peer;
  LinkId link;
  std::vector<SocketEvent> events;
};

using Kind = SocketEvent::Kind;

TEST_CASE("a peer's last frame is read before its end is told") {
  Pair pair;
  pair.PeerSays(Heartbeat{.ticks = 7});
  pair.peer.Close();
  while (pair.events.size() < 3) pair.Turn();
  CHECK(pair.Kinds() == std::vector{Kind::kOpened, Kind::kFrame, Kind::kLost});
}

TEST_CASE("a peer's last frame is read also when sending notices its end first") {
  Pair pair;
  pair.PeerSays(Heartbeat{.ticks = 7});
  pair.peer.Close();
  // The first may still leave; its answer is that nobody is there.
  for (int i = 0; i < 100 && !pair.links->has_events(); ++i) {
    pair.links->Send(pair.link, EncodeFrame(Heartbeat{.ticks = 1}));
    std::vector<ReadyFd> unread;
    pair.poller->Wait(absl::Milliseconds(1), unread);
  }
  pair.Turn();
  CHECK(pair.Kinds() == std::vector{Kind::kOpened, Kind::kFrame, Kind::kLost});
}

}  // namespace
}  // namespace baton::kv
