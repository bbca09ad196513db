// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Hello, pairing, readiness and silence (K6, K7).
#include "tests/kv_transfer/core_harness.h"

namespace baton::kv {
namespace {

Hello OwnerHello(uint64_t incarnation = 100, uint32_t pid = 1) {
  return MakeHello(Role::kDecode, "decode-0", incarnation, pid);
}
Hello WriterHello(uint64_t incarnation = 200, uint32_t pid = 2) {
  return MakeHello(Role::kPrefill, "prefill-0", incarnation, pid);
}

struct Owner : Harness<OwnerCore> {
  explicit Owner(const OwnerCore::Options& options = {}) : Harness(options, OwnerHello()) {}
};

TEST_CASE("K6: a refusal names the field that differs") {
  const auto refused = [](auto change) {
    Hello theirs = WriterHello();
    change(theirs);
    const auto refusal = CheckPair(OwnerHello(), theirs, false);
    return refusal ? refusal->field : std::string();
  };
  CHECK(refused([](Hello&) {}).empty());
  CHECK(refused([](Hello& h) { h.layout.blocks = 99; }).empty());
  CHECK(refused([](Hello& h) { h.protocol = 1; }) == "protocol");
  CHECK(refused([](Hello& h) { h.role = Role::kDecode; }) == "role");
  CHECK(refused([](Hello& h) { h.self.worker = "decode-0"; }) == "worker");
  CHECK(refused([](Hello& h) { h.self.incarnation = Incarnation(); }) == "incarnation");
  CHECK(refused([](Hello& h) { h.model_fingerprint = 1; }) == "model");
  CHECK(refused([](Hello& h) { h.layout.layers = 3; }) == "layout.layers");
  CHECK(refused([](Hello& h) { h.layout.kv_heads = 3; }) == "layout.kv_heads");
  CHECK(refused([](Hello& h) { h.layout.head_dim = 3; }) == "layout.head_dim");
  CHECK(refused([](Hello& h) { h.layout.element_type = 3; }) == "layout.element_type");
  CHECK(refused([](Hello& h) { h.layout.scale_bytes = 4; }) == "layout.scale_bytes");
  CHECK(refused([](Hello& h) { h.layout.blocks = 0; }) == "layout.blocks");
  CHECK(refused([](Hello& h) { h.numeric_class = "other"; }) == "numeric class");
}

TEST_CASE("K6: mixed numeric classes pair only when allowed, and the link says so") {
  Hello other = WriterHello();
  other.numeric_class = "other";
  Owner strict;
  strict.Hi(kLink1, other);
  CHECK(strict.io.Sent<HelloRefused>(kLink1).at(0).field == "numeric class");
  CHECK(strict.io.Closed(kLink1));
  const auto down = strict.Take<PeerDown>();
  REQUIRE(down.size() == 1);
  CHECK(absl::IsFailedPrecondition(down[0].why));

  OwnerCore::Options options;
  options.link.allow_mixed_numerics = true;
  Owner lenient(options);
  lenient.Hi(kLink1, other);
  lenient.core.DataReady(kLink1, {.transport = "t", .data_path = 'A'});
  lenient.Frame(kLink1, Ready{.transport = "t", .data_path = 'A'});
  CHECK(lenient.Take<PeerUp>().at(0).link.mixed_numerics);
}

TEST_CASE("a link whose data path does not come up says why, whether or not for good") {
  for (const absl::Status& why : {absl::UnavailableError("no RDMA connection"),
                                  absl::FailedPreconditionError("slower than demanded")}) {
    Owner owner;
    owner.Hi(kLink1, WriterHello());
    owner.core.DataFailed(kLink1, why);
    CHECK(owner.io.Closed(kLink1));
    const auto down = owner.Take<PeerDown>();
    REQUIRE(down.size() == 1);
    CHECK(down[0].why == why);
    CHECK(!down[0].declared_dead);
    CHECK(down[0].peer == WriterHello().self);
  }
}

TEST_CASE("a link is up when both data paths are ready, in either order") {
  Owner owner;
  owner.Hi(kLink1, WriterHello());
  CHECK(owner.io.Sent<Hello>(kLink1).size() == 1);
  const Ready theirs{.transport = "posix", .data_path = 'A', .bandwidth_bytes_per_second = 5e9};
  const LinkInfo ours{.transport = "posix", .data_path = 'A'};
  SECTION("theirs first") {
    owner.Frame(kLink1, theirs);
    CHECK(owner.Take<PeerUp>().empty());
    owner.core.DataReady(kLink1, ours);
  }
  SECTION("ours first") {
    owner.core.DataReady(kLink1, ours);
    CHECK(owner.Take<PeerUp>().empty());
    owner.Frame(kLink1, theirs);
  }
  const auto up = owner.Take<PeerUp>();
  REQUIRE(up.size() == 1);
  CHECK(up[0].link.bandwidth_bytes_per_second == 5e9);  // the writer measured
  CHECK(up[0].peer.incarnation == Incarnation(200));
}

TEST_CASE("two sides that chose different data paths do not pair") {
  Owner owner;
  owner.Hi(kLink1, WriterHello());
  owner.core.DataReady(kLink1, {.transport = "posix", .data_path = 'A'});
  owner.Frame(kLink1, Ready{.transport = "tcp", .data_path = 'B'});
  CHECK(owner.io.Closed(kLink1));
  CHECK(owner.Take<PeerUp>().empty());
}

TEST_CASE("heartbeats go out every 200 ms with the role loop's ticks") {
  Owner owner;
  owner.Up(kLink1, WriterHello());
  owner.io.Clear();
  for (uint64_t i = 0; i < 10; ++i) owner.Pass(absl::Milliseconds(100), 1000 + i);
  const auto beats = owner.io.Sent<Heartbeat>(kLink1);
  CHECK(beats.size() == 5);
  CHECK(beats.back().ticks == 1009);
}

TEST_CASE("a peer silent for 2 s is declared dead, one that only speaks slowly is not") {
  Owner owner;
  owner.Up(kLink1, WriterHello());
  for (int i = 0; i < 50; ++i) {
    owner.Pass(absl::Milliseconds(100));
    if (i % 15 == 0) owner.Frame(kLink1, Heartbeat{});
  }
  CHECK(owner.Take<PeerDown>().empty());
  for (int i = 0; i < 20; ++i) owner.Pass(absl::Milliseconds(100));
  const auto down = owner.Take<PeerDown>();
  REQUIRE(down.size() == 1);
  CHECK(down[0].declared_dead);
  CHECK(owner.core.counters().declared_dead == 1);
}

TEST_CASE("a process that was stopped itself does not blame its peers") {
  // Its peers' frames wait unread in the socket; the first Tick comes before them.
  Owner owner;
  owner.Up(kLink1, WriterHello());
  owner.Pass(absl::Milliseconds(100));
  owner.Pass(absl::Minutes(5));
  CHECK(owner.Take<PeerDown>().empty());
  owner.Frame(kLink1, Heartbeat{});
  owner.Pass(absl::Milliseconds(100));
  CHECK(owner.Take<PeerDown>().empty());
}

TEST_CASE("a wedged peer, alive but not ticking, is seen") {
  Owner owner;
  owner.Up(kLink1, WriterHello());
  owner.Frame(kLink1, Heartbeat{.ticks = 5});
  const absl::Time stuck = owner.now;
  for (int i = 0; i < 30; ++i) {
    owner.Pass(absl::Milliseconds(100));
    owner.Frame(kLink1, Heartbeat{.ticks = 5});
  }
  const auto views = owner.core.links();
  REQUIRE(views.size() == 1);
  CHECK(views[0].ticks_changed == stuck);
  CHECK(views[0].heard == owner.now);
}

TEST_CASE("a later connection of the same process replaces the earlier one") {
  Owner owner;
  owner.Up(kLink1, WriterHello());
  owner.Up(kLink2, WriterHello());
  CHECK(owner.io.Closed(kLink1));
  CHECK(!owner.io.Closed(kLink2));
  CHECK(owner.Take<PeerDown>().size() == 1);
}

TEST_CASE("who means somebody else is refused before it replaces its own link") {
  Owner owner;
  owner.Up(kLink1, WriterHello());
  Hello lost = WriterHello();
  lost.to = "decode-9";
  owner.Hi(kLink2, lost);
  CHECK(owner.io.Sent<HelloRefused>(kLink2).at(0).message.find("decode-9") != std::string::npos);
  CHECK(!owner.io.Closed(kLink1));
  CHECK(owner.Take<PeerDown>().empty());
}

TEST_CASE("another process under a name that is alive is refused") {
  Owner owner;
  owner.Up(kLink1, WriterHello());
  owner.Hi(kLink2, WriterHello(201, 3));
  CHECK(owner.io.Sent<HelloRefused>(kLink2).at(0).field == "worker");
  CHECK(owner.io.Closed(kLink2));
  CHECK(!owner.io.Closed(kLink1));
}

TEST_CASE("a known incarnation from another process is refused") {
  Owner owner;
  owner.Up(kLink1, WriterHello());
  owner.Lose(kLink1);
  owner.Hi(kLink2, WriterHello(200, 3));
  CHECK(owner.io.Sent<HelloRefused>(kLink2).at(0).field == "incarnation");
}

TEST_CASE("strangers cost a connection for 2 s at most") {
  Owner owner;
  owner.core.LinkOpened(kLink1, "", owner.now);
  SECTION("silent") {
    for (int i = 0; i < 20; ++i) owner.Pass(absl::Milliseconds(100));
  }
  SECTION("no Hello first") { owner.Frame(kLink1, Heartbeat{}); }
  SECTION("noise") {
    owner.core.FrameArrived(kLink1, std::vector<uint8_t>{3, 0, 0, 0, 99, 1, 2}, owner.now);
    CHECK(owner.core.counters().malformed_frames == 1);
  }
  SECTION("a frame that is the owner's to send") {
    owner.Frame(kLink1, WriterHello());
    owner.Frame(kLink1, RevokeFrame{});
  }
  SECTION("Hello twice") {
    owner.Frame(kLink1, WriterHello());
    owner.Frame(kLink1, WriterHello());
  }
  CHECK(owner.io.Closed(kLink1));
}

TEST_CASE("a data path that never comes up ends the link") {
  Owner owner;
  owner.Hi(kLink1, WriterHello());
  for (int i = 0; i < 201; ++i) {
    owner.Pass(absl::Milliseconds(100));
    if (!owner.io.Closed(kLink1)) owner.Frame(kLink1, Heartbeat{});
  }
  CHECK(owner.io.Closed(kLink1));
}

TEST_CASE("the number of connections is bounded") {
  OwnerCore::Options options;
  options.link.links_max = 2;
  Owner owner(options);
  for (const LinkId link : {kLink1, kLink2, kLink3}) owner.core.LinkOpened(link, "", owner.now);
  CHECK(!owner.io.Closed(kLink2));
  CHECK(owner.io.Closed(kLink3));
}

}  // namespace
}  // namespace baton::kv
