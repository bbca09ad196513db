// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The control connections of one process: accepts, dials and dials again, carries frames.
//
// Knows nothing of what frames mean.  Each peer that is dialled has at most one connection;
// after a loss the next attempt waits for Release (the old data path is gone too) and a
// growing pause with jitter.  Who dials us says first what the connection is: its first bytes
// are a frame's, and make it a link, or a flow's, and it is handed on.
//
// Thread:     the reactor's.  Ownership: the poller outlives it.
// Bounds:     links_max connections, those that said nothing yet (connect_max at most) included;
//             per connection what socket_connection.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "kv_transfer/link_io.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/socket_connection.h"
#include "kv_transfer/socket_poller.h"

namespace baton::kv {

struct SocketEvent {
  enum class Kind : uint8_t { kOpened, kFrame, kLost, kFlow } kind = Kind::kOpened;
  LinkId link;
  std::string dialled;  // kOpened: the name of the target; none: it dialled us
  std::vector<uint8_t> frame;
  absl::Status why;
  Fd flow;             // kFlow: no link, a connection that began as one (flow_wire.h)
  uint64_t token = 0;  // and the token that it named
};

// Pause before attempt `failures` + 1: 50 ms doubling to 1 s, a quarter of it by chance.
absl::Duration DialPause(uint32_t failures, Random& random);

struct DialTarget {
  std::string name;
  HostPort address;
};

class SocketLinks {
 public:
  struct Options {
    std::optional<SocketAddress> listen;
    std::vector<DialTarget> dial;
    uint32_t links_max = 256;
    uint64_t seed = 0;
    absl::Duration connect_max = absl::Seconds(2);
  };
  static absl::StatusOr<std::unique_ptr<SocketLinks>> Create(const Options& options,
                                                             SocketPoller& poller);
  ~SocketLinks();

  uint16_t port() const { return port_; }
  // True if the key is one of ours.
  bool Handle(const ReadyFd& ready, absl::Time now);
  void Tick(absl::Time now);
  absl::Time NextDeadline(absl::Time now) const;
  std::vector<SocketEvent> TakeEvents() { return std::exchange(events_, {}); }
  bool has_events() const { return !events_.empty(); }

  // A connection that cannot take it is lost: kLost follows, unless Close comes first.
  void Send(LinkId link, std::vector<uint8_t> frame);
  // Of the other end.
  absl::StatusOr<SocketAddress> PeerAddress(LinkId link) const;
  // No event of the link follows.
  void Close(LinkId link);
  // After Close: the peer, if we dial it, may be dialled again.  `good`: the link had been up.
  void Release(LinkId link, bool good, absl::Time now);

  uint64_t dials() const { return dials_; }
  // Why the last attempt failed; empty: none did since the last connection.
  const std::string& dial_error() const { return dial_error_; }
  uint64_t refused() const { return refused_; }

  // For the factory.
  SocketLinks(const Options& options, SocketPoller& poller)
      : options_(options), poller_(poller), random_(options.seed) {}

 private:
  struct Connection {
    explicit Connection(Fd fd) : socket(std::move(fd)) {}
    SocketConnection socket;
    bool lost = false;
    bool polls_write = false;
  };
  struct Dial {
    enum class State : uint8_t { kWaiting, kLookup, kConnecting, kLinked };
    DialTarget target;
    State state = State::kWaiting;
    absl::Time at = absl::InfinitePast();  // next attempt, or when this one is given up
    std::unique_ptr<AddressLookup> lookup;
    Fd fd;
    LinkId link;
    uint32_t failures = 0;
  };

  // Accepted, and not yet known for what it is.
  struct Unnamed {
    Fd fd;
    std::vector<uint8_t> first;  // what it said so far
    absl::Time until;
  };

  void AcceptAll(absl::Time now);
  void ReadFirst(uint64_t index);
  void PauseListener(absl::Time now);
  LinkId Open(Fd fd, Dial* dial);
  void AddFrames(LinkId link, std::vector<std::vector<uint8_t>> frames);
  // Whether frames came; what ended the reading, if anything did.
  std::pair<bool, absl::Status> Receive(LinkId link, Connection& connection);
  void Lose(LinkId link, const absl::Status& why);
  void LoseAfterLastWords(LinkId link, const absl::Status& why);
  void UpdateInterest(LinkId link, Connection& connection);
  void Advance(size_t index, absl::Time now);
  void DialFailed(Dial& dial, const absl::Status& why, absl::Time now);
  void Connected(size_t index, absl::Time now);

  const Options options_;
  SocketPoller& poller_;
  Random random_;
  Fd listener_;
  uint16_t port_ = 0;
  absl::Time listen_again_ = absl::InfiniteFuture();
  std::vector<Dial> dials_to_;
  absl::btree_map<LinkId, Connection> connections_;
  absl::btree_map<uint64_t, Unnamed> unnamed_;
  uint64_t last_unnamed_ = 0;
  std::vector<SocketEvent> events_;
  uint64_t last_link_ = 0;
  uint64_t dials_ = 0;
  std::string dial_error_;
  uint64_t refused_ = 0;
};

}  // namespace baton::kv
