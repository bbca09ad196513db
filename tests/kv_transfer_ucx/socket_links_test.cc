// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Connections that break: nothing that the peer had said is lost, whoever notices first.
#include "kv_transfer/socket_links.h"

#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "kv_transfer/flow_wire.h"
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
    absl::SleepFor(absl::Milliseconds(1));
  }
  void TurnUntil(size_t count) {
    const absl::Time end = clock.Now() + absl::Seconds(10);
    while (events.size() < count && clock.Now() < end) Turn();
    REQUIRE(events.size() == count);
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
  void PeerSays(const Frame& frame) { PeerSends(EncodeFrame(frame)); }
  void PeerSends(const std::vector<uint8_t>& bytes) {
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
  pair.TurnUntil(3);
  CHECK(pair.Kinds() == std::vector{Kind::kOpened, Kind::kFrame, Kind::kLost});
}

TEST_CASE("a peer's last frame is read also when sending notices its end first") {
  Pair pair;
  pair.PeerSays(Heartbeat{.ticks = 6});
  pair.TurnUntil(2);
  pair.PeerSays(Heartbeat{.ticks = 7});
  pair.peer.Close();
  // The first may still leave; its answer is that nobody is there.
  for (int i = 0; i < 100 && !pair.links->has_events(); ++i) {
    pair.links->Send(pair.link, EncodeFrame(Heartbeat{.ticks = 1}));
    std::vector<ReadyFd> unread;
    pair.poller->Wait(absl::Milliseconds(1), unread);
  }
  pair.Turn();
  CHECK(pair.Kinds() == std::vector{Kind::kOpened, Kind::kFrame, Kind::kFrame, Kind::kLost});
}

TEST_CASE("a connection that begins as a flow is handed on with what comes behind") {
  Pair pair;
  std::vector<uint8_t> bytes = EncodeFlowPreamble(77);
  const std::vector<uint8_t> first(bytes.begin(), bytes.begin() + 3);
  pair.PeerSends(first);
  for (int i = 0; i < 3; ++i) pair.Turn();
  CHECK(pair.events.empty());
  bytes.erase(bytes.begin(), bytes.begin() + 3);
  bytes.push_back(42);
  pair.PeerSends(bytes);
  pair.TurnUntil(1);
  REQUIRE(pair.events[0].kind == Kind::kFlow);
  CHECK(pair.events[0].token == 77);
  uint8_t behind = 0;
  CHECK(::recv(pair.events[0].flow.get(), &behind, 1, 0) == 1);
  CHECK(behind == 42);
}

TEST_CASE("who connects and says nothing is given up") {
  Pair pair;
  pair.Turn();
  const absl::Time deadline = pair.links->NextDeadline(pair.clock.Now());
  CHECK(deadline < pair.clock.Now() + absl::Seconds(3));
  pair.links->Tick(deadline);
  CHECK(pair.links->refused() == 1);
  uint8_t byte = 0;
  ssize_t got = -1;
  for (int i = 0; i < 1000 && got < 0; ++i) {
    got = ::recv(pair.peer.get(), &byte, 1, 0);
    absl::SleepFor(absl::Milliseconds(1));
  }
  CHECK(got == 0);
  CHECK(pair.events.empty());
}

}  // namespace
}  // namespace baton::kv
