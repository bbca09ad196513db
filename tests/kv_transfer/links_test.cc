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

void ToInt8(Hello& hello) {
  hello.layout.element_type = ElementType::kInt8;
  hello.layout.scales = Scales::kPerRow;
}

struct Owner : Harness<OwnerCore> {
  explicit Owner(const OwnerCore::Options& options = {}) : Harness(options, OwnerHello()) {}
};

TEST_CASE("K6: a refusal names the field that differs") {
  const auto refused = [](auto change) {
    Hello theirs = WriterHello();
    change(theirs);
    const auto refusal = CheckPair(OwnerHello(), theirs, {});
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
  CHECK(refused([](Hello& h) { h.layout.version = 2; }) == "layout.version");
  CHECK(refused([](Hello& h) { h.layout.kind = LayoutKind::kMla; }) == "layout.kind");
  CHECK(refused([](Hello& h) { h.layout.layers_before = 3; }) == "layout.layers_before");
  CHECK(refused([](Hello& h) { h.layout.heads_after = 3; }) == "layout.heads_after");
  CHECK(refused([](Hello& h) { h.layout.block_tokens = 32; }) == "layout.block_tokens");
  CHECK(refused(ToInt8) == "layout.element_type");
  CHECK(refused([](Hello& h) { h.layout.element_type = ElementType(9); }) == "layout.element_type");
  CHECK(refused([](Hello& h) { h.layout.scales = Scales::kPerRow; }) == "layout.scales");
  CHECK(refused([](Hello& h) { h.layout.kv_order = KvOrder::kInner; }) == "layout.kv_order");
  CHECK(refused([](Hello& h) { h.layout.row_order = RowOrder::kTokenMajor; }) ==
        "layout.row_order");
  CHECK(refused([](Hello& h) {
          h.layout.blocks = 1u << 31, h.layout.layers = 4096, h.layout.kv_heads = 2048,
          h.layout.head_dim = 1024;
        }) == "layout.blocks");
  CHECK(refused([](Hello& h) { h.layout.blocks = 0; }) == "layout.blocks");
  CHECK(refused([](Hello& h) { h.numeric_class = "other"; }) == "numeric class");
}

TEST_CASE("K6: layouts that a writer can convert pair only when allowed, others never") {
  const auto refused = [](auto change, bool allow) {
    Hello theirs = WriterHello();
    change(theirs);
    const auto refusal = CheckPair(OwnerHello(), theirs, {.allow_conversion = allow});
    return refusal ? refusal->field : std::string();
  };
  CHECK(refused(ToInt8, true).empty());
  CHECK(refused([](Hello& h) { h.layout.kv_order = KvOrder::kInner; }, true).empty());
  CHECK(refused([](Hello& h) { h.layout.row_order = RowOrder::kTokenMajor; }, true).empty());
  CHECK(refused([](Hello& h) { h.layout.heads_after = 1; }, true) == "layout.heads_after");
  CHECK(refused([](Hello& h) { h.layout.layers = 1; }, true) == "layout.layers");
  CHECK(refused([](Hello& h) { h.layout.block_tokens = 32; }, true) == "layout.block_tokens");
  CHECK(refused([](Hello& h) { ToInt8(h), h.layout.head_dim = 8; }, true) == "layout.head_dim");
  CHECK(refused([](Hello& h) { h.layout.scales = Scales::kPerRow; }, true) == "layout.scales");
  CHECK(refused([](Hello& h) { ToInt8(h), h.numeric_class = "other"; }, true) == "numeric class");

  Hello theirs = WriterHello();
  ToInt8(theirs);
  const auto refusal = CheckPair(OwnerHello(), theirs, {});
  REQUIRE(refusal.has_value());
  CHECK(refusal->message.find("bf16") != std::string::npos);
  CHECK(refusal->message.find("int8") != std::string::npos);
  CHECK(refusal->message.find("kv_transfer.allow_conversion") != std::string::npos);
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
  CHECK(!down[0].agreed);

  OwnerCore::Options options;
  options.link.pair.allow_mixed_numerics = true;
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
    CHECK(down[0].agreed);
    CHECK(!down[0].declared_dead);
    CHECK(down[0].peer == WriterHello().self);
  }
}

TEST_CASE("a link is up when both data paths are ready, in either order") {
  Owner owner;
  owner.Hi(kLink1, WriterHello());
  CHECK(owner.io.Sent<Hello>(kLink1).size() == 1);
  const Ready theirs{.transport = "posix", .data_path = 'A', .cost = {.bandwidth = 5e9}};
  const LinkInfo ours{.transport = "posix", .data_path = 'A', .expected = "shm"};
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
  CHECK(up[0].link.cost.bandwidth == 5e9);  // the writer measured
  CHECK(up[0].link.expected == "shm");      // by our own configuration
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

TEST_CASE("a data path that never comes up ends the link, which says so") {
  Owner owner;
  owner.Hi(kLink1, WriterHello());
  for (int i = 0; i < 201; ++i) {
    owner.Pass(absl::Milliseconds(100));
    if (!owner.io.Closed(kLink1)) owner.Frame(kLink1, Heartbeat{});
  }
  CHECK(owner.io.Closed(kLink1));
  const auto down = owner.Take<PeerDown>();
  REQUIRE(down.size() == 1);
  CHECK(absl::IsUnavailable(down[0].why));
  CHECK(down[0].peer == WriterHello().self);
}

TEST_CASE("the number of connections is bounded") {
  OwnerCore::Options options;
  options.link.links_max = 2;
  Owner owner(options);
  for (const LinkId link : {kLink1, kLink2, kLink3}) owner.core.LinkOpened(link, "", owner.now);
  CHECK(!owner.io.Closed(kLink2));
  CHECK(owner.io.Closed(kLink3));
}

TEST_CASE("an owner believes what its writer says of the link, and tells it on") {
  Owner owner;
  owner.Up(kLink1, WriterHello());
  const LinkCost cost{.latency = absl::Microseconds(3), .bandwidth = 7e9};
  owner.now += absl::Seconds(1);
  owner.Frame(kLink1, Heartbeat{.ticks = 1, .link = {cost, absl::Milliseconds(300), 4096}});
  const LinkInfo info = owner.core.links().at(0).info;
  CHECK(info.cost == cost);
  CHECK(info.measured == owner.now - absl::Milliseconds(300));
  CHECK(info.in_flight_bytes == 4096);
  owner.Pass(absl::Milliseconds(200));
  const auto told = owner.Take<PeerMeasured>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].link.cost == cost);
  CHECK(told[0].peer == WriterHello().self);
  owner.Frame(kLink1, Heartbeat{.ticks = 2});  // nothing to say
  CHECK(owner.core.links().at(0).info.cost == cost);
}

TEST_CASE("of a link that is not up nothing is believed") {
  Owner owner;
  owner.Hi(kLink1, WriterHello());
  owner.Frame(kLink1, Heartbeat{.ticks = 1, .link = {{.bandwidth = 7e9}}});
  CHECK(owner.core.links().at(0).info.cost == LinkCost{});
  owner.Pass(absl::Milliseconds(1900));
  CHECK(owner.Take<PeerMeasured>().empty());
}

}  // namespace
}  // namespace baton::kv
