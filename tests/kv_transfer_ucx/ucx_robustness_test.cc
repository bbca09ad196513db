// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Strangers, garbage, slow readers and dead peers: the transport lives, stays small and lets go.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "base/random.h"
#include "kv_transfer/flow_wire.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/socket_connection.h"
#include "tests/kv_transfer_ucx/transport_pair.h"

namespace baton::kv {
namespace {

Fd ConnectTo(uint16_t port) {
  const SocketAddress to = *ResolveNow({"127.0.0.1", port});
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0);
  return fd;
}

void SendBytes(const Fd& fd, const std::vector<uint8_t>& bytes) {
  (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

uint64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Shared memory segments that this process has mapped.
int MappedSegments() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("SYSV") != std::string::npos || line.find("ucx_shm") != std::string::npos;
  }
  return count;
}

TEST_CASE("flows that name no link, or lie, are closed and harm no link") {
  Pair pair(TransportChoice::kTcp);
  pair.WaitUp();
  Random random(5);
  for (int i = 0; i < 50; ++i) {
    const Fd stranger = ConnectTo(pair.owner.transport->port());
    std::vector<uint8_t> bytes = EncodeFlowPreamble(random.Next());
    if (i % 2 == 1) bytes.resize(random.Below(bytes.size()));
    bytes.resize(bytes.size() + random.Below(300), 0xff);
    SendBytes(stranger, bytes);
  }
  const Ticket ticket = pair.MakeTicket(1, {3, 5, 7});
  pair.owner.transport->Grant(ticket);
  pair.Push(ticket);
  REQUIRE(WaitFor(absl::Seconds(10), [&] { return pair.owner.Find<CommitArrived>() != nullptr; }));
  CHECK(pair.Landed(ticket));
  CHECK(WaitFor(absl::Seconds(10),
                [&] { return pair.owner.transport->counters().messages_refused >= 25; }));
}

TEST_CASE("random bytes on the transfer port cost nothing and harm no link") {
  Pair pair(TransportChoice::kTcp);
  pair.WaitUp();
  Random random(7);
  const uint64_t before = ResidentBytes();
  std::vector<Fd> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(ConnectTo(pair.owner.transport->port()));
    std::vector<uint8_t> bytes(random.Below(3000));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Next());
    SendBytes(strangers.back(), bytes);
    if (random.Chance(0.5)) strangers.back().Close();
  }
  const Ticket ticket = pair.MakeTicket(1, {3, 4, 5});
  pair.owner.transport->Grant(ticket);
  pair.Push(ticket);
  REQUIRE(WaitFor(absl::Seconds(10), [&] { return pair.owner.Find<CommitArrived>() != nullptr; }));
  CHECK(pair.Landed(ticket));
  CHECK(pair.owner.Find<PeerDown>() == nullptr);
  CHECK(ResidentBytes() < before + (16u << 20));
}

TEST_CASE("a frame that never ends and a length that lies are bounded") {
  End owner;
  owner.Open(OwnerOptions(TransportChoice::kTcp, SmallLayout(8)));
  const uint64_t before = ResidentBytes();
  const Fd endless = ConnectTo(owner.transport->port());
  SendBytes(endless, {0xff, 0xff, 0x0f, 0x00, 1});  // just under the largest frame
  for (int i = 0; i < 64; ++i) SendBytes(endless, std::vector<uint8_t>(64 << 10, 5));
  const Fd liar = ConnectTo(owner.transport->port());
  SendBytes(liar, {0xff, 0xff, 0xff, 0xff, 1, 2, 3});
  uint8_t byte = 0;
  CHECK(::recv(liar.get(), &byte, 1, 0) >= 0);  // our Hello, or the end of the connection
  absl::SleepFor(absl::Milliseconds(300));
  CHECK(ResidentBytes() < before + (8u << 20));
  End writer;  // the owner still takes peers
  writer.Open(WriterOptions(TransportChoice::kTcp, SmallLayout(8), owner.transport->port()));
  CHECK(WaitFor(absl::Seconds(10), [&] { return writer.Find<PeerUp>() != nullptr; }));
}

TEST_CASE("more strangers than links are allowed do not keep a peer out for long") {
  End owner;
  owner.Open(OwnerOptions(TransportChoice::kTcp, SmallLayout(8)));
  std::vector<Fd> strangers;
  for (int i = 0; i < 300; ++i) strangers.push_back(ConnectTo(owner.transport->port()));
  End writer;
  writer.Open(WriterOptions(TransportChoice::kTcp, SmallLayout(8), owner.transport->port()));
  CHECK(WaitFor(absl::Seconds(10), [&] { return writer.Find<PeerUp>() != nullptr; }));
}

TEST_CASE("pools of different sizes pair, other shapes are refused with the field's name") {
  Pair pair(TransportChoice::kTcp, 64, 20);
  pair.WaitUp();
  End other;
  Layout layout = SmallLayout(20);
  layout.kv_heads = 4;
  auto options = WriterOptions(TransportChoice::kTcp, layout, pair.owner.transport->port());
  options.self = {"prefill-9", Incarnation(0xf9)};
  other.Open(options);
  REQUIRE(WaitFor(absl::Seconds(10), [&] { return other.Find<PeerDown>() != nullptr; }));
  const absl::Status why = other.Find<PeerDown>()->why;
  CHECK(absl::IsFailedPrecondition(why));
  CHECK(why.message().find("kv_heads") != std::string::npos);
}

// The writer is this process here, the owner the one that dies.
TEST_CASE("an address that leads to another worker is refused, and costs that one nothing") {
  Pair pair(TransportChoice::kTcp);
  pair.WaitUp();
  End other;
  auto options = WriterOptions(TransportChoice::kTcp, SmallLayout(8), pair.owner.transport->port());
  options.self = {"prefill-1", Incarnation(0xf1)};
  options.peers.push_back({"decode-1", options.peers[0].address});
  other.Open(options);
  REQUIRE(WaitFor(absl::Seconds(10), [&] {
    return other.Find<PeerUp>() != nullptr && other.Find<PeerDown>() != nullptr;
  }));
  const PeerDown& down = *other.Find<PeerDown>();
  CHECK(down.peer.worker == "decode-1");
  CHECK(down.why.message().find("decode-0") != std::string::npos);
  absl::SleepFor(absl::Milliseconds(500));
  other.transport->Poll(other.events);
  for (const TransportEvent& event : other.events) {
    const auto* lost = std::get_if<PeerDown>(&event);
    CHECK((lost == nullptr || lost->peer.worker == "decode-1"));
  }
}

TEST_CASE("a dead owner's memory is unmapped within a second") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto owner = UcxTransport::Create(OwnerOptions(TransportChoice::kShm, SmallLayout(64)));
    const uint16_t port = owner.ok() ? (*owner)->port() : 0;
    if (::write(ends[1], &port, sizeof port) != sizeof port) ::_exit(1);
    while (true) ::pause();
  }
  uint16_t port = 0;
  REQUIRE(::read(ends[0], &port, sizeof port) == sizeof port);
  ::kill(child, SIGSTOP);  // until the writer's own segments are counted
  End writer;
  writer.Open(WriterOptions(TransportChoice::kShm, SmallLayout(64), port));
  const int before = MappedSegments();
  ::kill(child, SIGCONT);
  REQUIRE(WaitFor(absl::Seconds(10), [&] { return writer.Find<PeerUp>() != nullptr; }));
  CHECK(MappedSegments() > before);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(WaitFor(absl::Seconds(1), [&] { return MappedSegments() <= before; }));
  CHECK(writer.Find<PeerDown>() != nullptr);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("a writer outlives an owner that comes and goes") {
  End writer;
  auto options = OwnerOptions(TransportChoice::kShm, SmallLayout(16));
  auto owner = UcxTransport::Create(options);
  REQUIRE(owner.ok());
  options.listen = absl::StrCat("127.0.0.1:", (*owner)->port());
  writer.Open(WriterOptions(TransportChoice::kShm, SmallLayout(16), (*owner)->port()));
  for (uint64_t life = 1; life <= 4; ++life) {
    REQUIRE(WaitFor(absl::Seconds(10), [&] { return writer.Find<PeerUp>() != nullptr; }));
    writer.events.clear();
    owner->reset();
    REQUIRE(WaitFor(absl::Seconds(10), [&] { return writer.Find<PeerDown>() != nullptr; }));
    writer.events.clear();
    options.self.incarnation = Incarnation(0xd0 + life);
    owner = UcxTransport::Create(options);
    REQUIRE(owner.ok());
  }
}

}  // namespace
}  // namespace baton::kv
