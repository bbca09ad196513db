// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The writer's half, rule by rule.
#include "base/crc32c.h"
#include "tests/kv_transfer/core_harness.h"

namespace baton::kv {
namespace {

constexpr uint64_t kOwner = 100, kWriter = 200;

struct Writer : Harness<WriterCore> {
  explicit Writer(const WriterCore::Options& options = {})
      : Harness(options, MakeHello(Role::kPrefill, "prefill-0", kWriter, 2), uint64_t{42}) {}
  void Write(uint64_t id, const Ticket& ticket, uint32_t layer) {
    std::vector<WritePiece> pieces;
    for (uint32_t i = 0; i < ticket.blocks.size(); ++i) pieces.push_back({i, i});
    core.Write(WriteId(id), ticket.key, layer, pieces);
  }
  void EndWrite(size_t index) {
    core.WriteEnded(io.posted.at(index).second.header.write, absl::OkStatus());
  }
  absl::Status Refused(const Ticket& ticket) {
    core.Accept(ticket);
    const auto ended = Take<PushEnded>();
    return ended.empty() ? absl::OkStatus() : ended[0].why;
  }
};

Hello Owner(uint64_t incarnation = kOwner, std::string name = "decode-0", uint32_t pid = 1) {
  return MakeHello(Role::kDecode, std::move(name), incarnation, pid);
}

TEST_CASE("rule 1: a ticket of an owner incarnation that the link is not of is refused") {
  Writer writer;
  writer.Up(kLink1, Owner());
  CHECK(absl::IsUnavailable(writer.Refused(MakeTicket(kOwner + 1, 1, kWriter))));
  CHECK(absl::IsUnavailable(writer.Refused(MakeTicket(kOwner, 1, kWriter + 1))));
  CHECK(absl::IsInvalidArgument(writer.Refused(MakeTicket(kOwner, 1, kWriter, {8}))));
  CHECK(writer.core.counters().stale_tickets == 3);
  CHECK(writer.Refused(MakeTicket(kOwner, 1, kWriter)).ok());
}

TEST_CASE("rule 2: Revoke is idempotent and each one is answered") {
  Writer writer;
  writer.Up(kLink1, Owner());
  for (int i = 0; i < 3; ++i) writer.Frame(kLink1, RevokeFrame{Generation(1), Generation(1)});
  CHECK(writer.io.Sent<QuietFrame>(kLink1).size() == 3);
}

TEST_CASE("rule 4: rebirth waits for writes to every owner, not only to the one that asks") {
  Writer writer;
  writer.Up(kLink1, Owner());
  writer.Up(kLink2, Owner(kOwner + 1, "decode-1", 9));
  const Ticket mine = MakeTicket(kOwner, 1, kWriter), other = MakeTicket(kOwner + 1, 1, kWriter);
  writer.core.Accept(mine);
  writer.core.Accept(other);
  writer.Write(1, mine, 0);
  writer.Write(2, other, 0);
  writer.Frame(kLink1, DeclaredDead{Incarnation(kWriter)});
  CHECK(writer.Take<PushEnded>().size() == 2);
  writer.EndWrite(0);
  CHECK(writer.Take<Reborn>().empty());
  CHECK(writer.io.Sent<QuietFrame>(kLink1).empty());
  writer.EndWrite(1);
  const auto reborn = writer.Take<Reborn>();
  REQUIRE(reborn.size() == 1);
  CHECK(reborn[0].incarnation != Incarnation(kWriter));
  const auto quiet = writer.io.Sent<QuietFrame>(kLink1);
  REQUIRE(quiet.size() == 1);
  CHECK(!quiet[0].generation.has_value());
  CHECK(writer.io.Closed(kLink1));
  CHECK(writer.io.Closed(kLink2));
  CHECK(writer.core.self().self.incarnation == reborn[0].incarnation);
  CHECK(writer.Take<WriteDone>().size() == 2);
}

TEST_CASE("rule 4: while it drains a writer takes neither links nor tickets") {
  Writer writer;
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 0);
  writer.Frame(kLink1, DeclaredDead{Incarnation(kWriter)});
  writer.core.LinkOpened(kLink2, "", writer.now);
  CHECK(writer.io.Closed(kLink2));
  writer.Take<PushEnded>();
  CHECK(absl::IsUnavailable(writer.Refused(MakeTicket(kOwner, 2, kWriter))));
}

// The owner says as much before the link is up (Heartbeat.lowest_open); this does not wait for it.
TEST_CASE("K7: a reborn writer refuses a ticket of its earlier incarnation") {
  Writer writer;
  writer.Up(kLink1, Owner());
  writer.Frame(kLink1, DeclaredDead{Incarnation(kWriter)});
  const auto reborn = writer.Take<Reborn>();
  REQUIRE(reborn.size() == 1);
  writer.Take<PeerDown>();
  writer.Up(kLink2, Owner());
  CHECK(absl::IsUnavailable(writer.Refused(MakeTicket(kOwner, 1, kWriter))));
  CHECK(writer.Refused(MakeTicket(kOwner, 2, reborn[0].incarnation.value())).ok());
}

TEST_CASE("rule 11: accepting a ticket closes its generation") {
  Writer writer;
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  CHECK(writer.Refused(ticket).ok());
  writer.core.Abandon(ticket.key, absl::CancelledError("cancelled"));
  CHECK(absl::IsCancelled(writer.Refused(ticket)));
}

TEST_CASE("rule 13: a push ends with its connection and its ticket is used up") {
  Writer writer;
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 0);
  writer.Lose(kLink1);
  CHECK(absl::IsUnavailable(writer.Take<PushEnded>().at(0).why));
  writer.Up(kLink2, Owner());
  writer.EndWrite(0);
  CHECK(writer.Take<WriteDone>().size() == 1);
  writer.core.SendCommit(CommitOf(ticket, writer.core.self().layout));
  CHECK(writer.io.Sent<Commit>(kLink2).empty());
  CHECK(absl::IsCancelled(writer.Refused(ticket)));
}

TEST_CASE("K11: Quiet waits for posted writes, and what waits is never posted") {
  WriterCore::Options options;
  options.writes_in_flight_max = 1;
  Writer writer(options);
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 0);
  writer.Write(2, ticket, 1);
  REQUIRE(writer.io.posted.size() == 1);
  writer.Frame(kLink1, RevokeFrame{Generation(1), Generation(2)});
  CHECK(absl::IsCancelled(writer.Take<PushEnded>().at(0).why));
  const auto dropped = writer.Take<WriteDone>();
  REQUIRE(dropped.size() == 1);
  CHECK(dropped[0].id == WriteId(2));
  CHECK(writer.io.Sent<QuietFrame>(kLink1).empty());
  writer.EndWrite(0);
  CHECK(writer.io.Sent<QuietFrame>(kLink1).size() == 1);
  CHECK(writer.io.posted.size() == 1);
  CHECK(absl::IsCancelled(writer.Refused(ticket)));
}

TEST_CASE("K11: a generation is closed by Revoke though its ticket was never seen") {
  Writer writer;
  writer.Up(kLink1, Owner());
  writer.Frame(kLink1, RevokeFrame{Generation(5), Generation(3)});
  CHECK(absl::IsCancelled(writer.Refused(MakeTicket(kOwner, 5, kWriter))));
  CHECK(absl::IsCancelled(writer.Refused(MakeTicket(kOwner, 2, kWriter))));  // below the lowest
  CHECK(writer.Refused(MakeTicket(kOwner, 3, kWriter)).ok());
}

TEST_CASE("K11: the record of closed generations survives a reconnection") {
  Writer writer;
  writer.Up(kLink1, Owner());
  writer.Frame(kLink1, RevokeFrame{Generation(5), Generation(1)});
  writer.Lose(kLink1);
  writer.Up(kLink2, Owner());
  CHECK(absl::IsCancelled(writer.Refused(MakeTicket(kOwner, 5, kWriter))));
}

TEST_CASE("K11: the record is bounded, and what it forgets it refuses") {
  WriterCore::Options options;
  options.closed_max = 4;
  Writer writer(options);
  writer.Up(kLink1, Owner());
  for (uint64_t g = 10; g < 30; g += 2) {
    writer.Frame(kLink1, RevokeFrame{Generation(g), Generation(1)});
  }
  for (uint64_t g = 1; g <= 20; ++g) {
    CHECK(absl::IsCancelled(writer.Refused(MakeTicket(kOwner, g, kWriter))));
  }
  CHECK(writer.Refused(MakeTicket(kOwner, 21, kWriter)).ok());
}

TEST_CASE("K5: bytes and writes in flight are bounded, and a large write goes alone") {
  const uint64_t piece = Writer().core.self().layout.block_bytes();
  WriterCore::Options options;
  options.bytes_in_flight_max = 2 * piece;
  options.writes_in_flight_max = 3;
  Writer writer(options);
  writer.Up(kLink1, Owner());
  const Ticket small = MakeTicket(kOwner, 1, kWriter, {0});
  const Ticket large = MakeTicket(kOwner, 2, kWriter, {1, 2, 3});
  writer.core.Accept(small);
  writer.core.Accept(large);
  writer.Write(1, small, 0);
  writer.Write(2, large, 0);
  writer.Write(3, small, 1);
  CHECK(writer.io.posted.size() == 1);  // in order: the large one does not fit yet
  CHECK(writer.core.bytes_in_flight() == piece);
  writer.EndWrite(0);
  CHECK(writer.io.posted.size() == 2);
  CHECK(writer.core.bytes_in_flight() == 3 * piece);
  writer.EndWrite(1);
  CHECK(writer.io.posted.size() == 3);
  CHECK(writer.core.writes_waiting() == 0);
}

TEST_CASE("K5: beyond its bound a waiting write is refused, not kept") {
  WriterCore::Options options;
  options.writes_in_flight_max = 1;
  options.writes_waiting_max = 1;
  Writer writer(options);
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter), next = MakeTicket(kOwner, 2, kWriter, {4});
  writer.core.Accept(ticket);
  writer.core.Accept(next);
  writer.Write(1, ticket, 0);
  writer.Write(2, ticket, 1);
  writer.Write(3, next, 0);
  const auto done = writer.Take<WriteDone>();
  REQUIRE(done.size() == 1);
  CHECK(absl::IsResourceExhausted(done[0].status));
}

TEST_CASE("K7: an owner incarnation that was replaced does not come back") {
  Writer writer;
  writer.Up(kLink1, Owner());
  writer.Lose(kLink1);
  writer.Up(kLink2, Owner(kOwner + 1, "decode-0", 8));
  writer.Lose(kLink2);
  writer.Hi(kLink3, Owner());
  CHECK(writer.io.Closed(kLink3));
  const auto refused = writer.io.Sent<HelloRefused>(kLink3);
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].field == "incarnation");
}

TEST_CASE("path A: neighbouring blocks of a layer are one copy") {
  Writer writer;
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter, {4, 5, 1});
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 1);
  REQUIRE(writer.io.posted.size() == 1);
  const DataWrite& write = writer.io.posted[0].second;
  const Layout layout = writer.core.self().layout;
  const uint64_t piece = layout.block_bytes();
  REQUIRE(write.copies.size() == 2);
  CHECK(write.copies[0] == Copy{layout.offset(1, 0), layout.offset(1, 4), 2 * piece});
  CHECK(write.copies[1] == Copy{layout.offset(1, 2), layout.offset(1, 1), piece});
  CHECK(write.bytes == 3 * piece);
}

TEST_CASE("path B: a write is done when the owner says that it landed") {
  Writer writer;
  writer.Up(kLink1, Owner(), 'B');
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 0);
  const uint64_t number = writer.io.posted.at(0).second.header.write;
  SECTION("landed") {
    writer.EndWrite(0);
    CHECK(writer.Take<WriteDone>().empty());
    writer.Frame(kLink1, WriteResult{number, true});
    CHECK(writer.Take<WriteDone>().at(0).status.ok());
  }
  SECTION("landed before the source is free") {
    writer.Frame(kLink1, WriteResult{number, true});
    CHECK(writer.Take<WriteDone>().empty());
    writer.EndWrite(0);
    CHECK(writer.Take<WriteDone>().at(0).status.ok());
  }
  SECTION("refused") {
    writer.Frame(kLink1, WriteResult{number, false});
    writer.EndWrite(0);
    CHECK(absl::IsCancelled(writer.Take<WriteDone>().at(0).status));
  }
  SECTION("link lost before the answer") {
    writer.EndWrite(0);
    writer.Lose(kLink1);
    CHECK(absl::IsUnavailable(writer.Take<WriteDone>().at(0).status));
  }
}

TEST_CASE("sums go out when the bytes are visible on path A, with the bytes on path B") {
  const auto sum_of = [](const Writer& writer, uint32_t layer, BlockIndex block) {
    const Layout& layout = writer.core.self().layout;
    return Crc32c(absl::MakeConstSpan(writer.pool)
                      .subspan(layout.offset(layer, block), layout.block_bytes()));
  };
  for (const char path : {'A', 'B'}) {
    Writer writer;
    for (size_t i = 0; i < writer.pool.size(); ++i) writer.pool[i] = static_cast<uint8_t>(i / 3);
    writer.Up(kLink1, Owner(), path);
    const Ticket ticket = MakeTicket(kOwner, 1, kWriter, {3, 4, 7});
    writer.core.Accept(ticket);
    writer.Write(1, ticket, 1);  // from blocks 0, 1, 2: two runs, as the targets are
    const std::vector<uint32_t> sums = {sum_of(writer, 1, 0), sum_of(writer, 1, 1),
                                        sum_of(writer, 1, 2)};
    const DataHeader posted = writer.io.posted.at(0).second.header;
    CHECK(writer.io.Sent<WrittenFrame>(kLink1).empty());
    writer.EndWrite(0);
    const auto written = writer.io.Sent<WrittenFrame>(kLink1);
    if (path == 'B') {
      CHECK(posted.sums == sums);
      CHECK(written.empty());
      continue;
    }
    CHECK(posted.sums.empty());
    REQUIRE(written.size() == 1);
    CHECK(written[0].header.sums == sums);
    CHECK(written[0].header.targets == posted.targets);
    CHECK(written[0].header.write == posted.write);
  }
}

TEST_CASE("no sums are said of a write that failed, or whose push has ended") {
  Writer writer;
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 0);
  writer.Write(2, ticket, 1);
  writer.core.WriteEnded(writer.io.posted.at(0).second.header.write, absl::UnavailableError("no"));
  writer.Frame(kLink1, RevokeFrame{Generation(1), Generation(2)});
  writer.EndWrite(1);
  CHECK(writer.io.Sent<WrittenFrame>(kLink1).empty());
}

TEST_CASE("one push in N has sums, by turns with each owner, and its Commit says so") {
  for (const uint32_t every : {0u, 1u, 3u}) {
    WriterCore::Options options;
    options.check_one_in = every;
    Writer writer(options);
    writer.Up(kLink1, Owner());
    writer.Up(kLink2, Owner(kOwner + 1, "decode-1", 9));
    size_t ended = 0;
    for (uint64_t push = 0; push < 7; ++push) {
      for (const LinkId link : {kLink1, kLink2}) {
        const uint64_t owner = link == kLink1 ? kOwner : kOwner + 1;
        const Ticket ticket = MakeTicket(owner, push + 1, kWriter);
        writer.io.Clear();
        writer.core.Accept(ticket);
        for (uint32_t layer = 0; layer < 2; ++layer) writer.Write(ended + 1, ticket, layer);
        for (int layer = 0; layer < 2; ++layer) writer.EndWrite(ended++);
        writer.core.SendCommit(CommitOf(ticket, writer.core.self().layout));
        const bool summed = every > 0 && push % every == 0;
        CHECK(writer.io.Sent<WrittenFrame>(link).size() == (summed ? 2 : 0));
        CHECK(writer.io.Sent<Commit>(link).at(0).summed == summed);
      }
    }
  }
}

TEST_CASE("whom we did not mean is refused before it replaces its own link") {
  Writer writer;
  writer.Up(kLink1, Owner());
  const std::string answers = Owner().self.worker;
  writer.core.LinkOpened(kLink2, "decode-9", writer.now);
  CHECK(writer.io.Sent<Hello>(kLink2).at(0).to == "decode-9");
  writer.Take<PeerDown>();
  writer.Frame(kLink2, Owner());
  CHECK(writer.io.Sent<HelloRefused>(kLink2).at(0).field == "worker");
  CHECK(!writer.io.Closed(kLink1));
  const auto downs = writer.Take<PeerDown>();
  REQUIRE(downs.size() == 1);
  CHECK(downs[0].peer.worker == "decode-9");
  CHECK(downs[0].why.message().find(answers) != std::string::npos);
}

// ── what writes take ──────────────────────────────────────────────────────────────────

constexpr uint64_t kPieceBytes = 256;  // of MakeHello's layout

LinkCost ProbedCost() {
  return {.latency = absl::Microseconds(10),
          .per_operation = absl::Microseconds(1),
          .bandwidth = 1e6,
          .sums_bandwidth = 2e6};
}

// As Up, with what the probe found.
void UpMeasured(Writer& writer, char path) {
  writer.Hi(kLink1, Owner());
  writer.core.DataReady(kLink1, {.transport = "fake", .data_path = path, .cost = ProbedCost()});
  writer.Frame(kLink1, Ready{.transport = "fake", .data_path = path, .cost = ProbedCost()});
  REQUIRE(writer.Take<PeerUp>().size() == 1);
}

// One write after the other, each of which takes so long.
void WriteFor(Writer& writer, absl::Duration took, uint64_t first, uint64_t last) {
  for (uint64_t generation = first; generation <= last; ++generation) {
    const Ticket ticket = MakeTicket(kOwner, generation, kWriter, {3, 5});
    writer.core.Accept(ticket);
    writer.Write(generation, ticket, 0);
    writer.io.now += took;
    writer.EndWrite(writer.io.posted.size() - 1);
    writer.core.Abandon(ticket.key, absl::CancelledError("measured"));
  }
}

TEST_CASE("writes keep the cost of their link true, and heartbeats say it") {
  Writer writer({.check_one_in = 0});
  UpMeasured(writer, 'A');
  // 512 bytes in two runs at half the bandwidth that the probe found.
  const absl::Duration took = absl::Microseconds(10 + 2 + 1024);
  WriteFor(writer, took, 1, 60);
  const LinkInfo info = writer.core.links().at(0).info;
  CHECK(info.cost.bandwidth == Approx(0.5e6).epsilon(0.05));
  CHECK(info.cost.per_operation == absl::Microseconds(1));
  CHECK(info.measured == writer.io.now);
  writer.now = writer.io.now;
  writer.io.Clear();
  writer.Pass(absl::Milliseconds(200));
  const auto beats = writer.io.Sent<Heartbeat>(kLink1);
  REQUIRE(beats.size() == 1);
  CHECK(beats[0].link.cost == info.cost);
  CHECK(beats[0].link.age == absl::Milliseconds(200));
  CHECK(beats[0].link.in_flight_bytes == 0);
}

TEST_CASE("a write that fails says nothing of its link") {
  Writer writer({.check_one_in = 0});
  UpMeasured(writer, 'A');
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 0);
  writer.io.now += absl::Seconds(5);
  writer.core.WriteEnded(writer.io.posted.at(0).second.header.write, absl::UnavailableError("no"));
  CHECK(writer.core.links().at(0).info.cost == ProbedCost());
}

TEST_CASE("a write that has sums is told from one that has none") {
  Writer writer({.check_one_in = 1});
  UpMeasured(writer, 'A');
  WriteFor(writer, absl::Microseconds(10 + 2 + 512 + 256), 1, 20);
  const LinkInfo info = writer.core.links().at(0).info;
  CHECK(info.cost.bandwidth == Approx(1e6).epsilon(0.01));  // it was as predicted
  CHECK(info.cost.sums_bandwidth == Approx(2e6).epsilon(0.01));
  for (const WriteDone& done : writer.Take<WriteDone>()) {
    CHECK(done.work.summed_bytes == done.work.bytes);
  }
}

TEST_CASE("on path B a write takes until the owner has answered") {
  Writer writer({.check_one_in = 0});
  UpMeasured(writer, 'B');
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 0);
  const uint64_t number = writer.io.posted.at(0).second.header.write;
  writer.core.WriteEnded(number, absl::OkStatus());
  CHECK(writer.core.links().at(0).info.in_flight_bytes == kPieceBytes);
  writer.io.now += absl::Microseconds(10 + 1 + 384);
  writer.now = writer.io.now;
  writer.Frame(kLink1, WriteResult{number, true});
  const LinkInfo info = writer.core.links().at(0).info;
  CHECK(info.in_flight_bytes == 0);
  CHECK(info.cost.bandwidth < 1e6);
  CHECK(info.cost.bandwidth > 256 / 384e-6);  // by a part of what this one says
  CHECK(info.measured == writer.io.now);
}

TEST_CASE("what has become of a link is told once a second, and only if it changed") {
  Writer writer({.check_one_in = 0});
  UpMeasured(writer, 'A');
  for (int i = 0; i < 20; ++i) {
    writer.Frame(kLink1, Heartbeat{});
    writer.Pass(absl::Milliseconds(200));
  }
  CHECK(writer.Take<PeerMeasured>().empty());
  WriteFor(writer, absl::Milliseconds(1), 1, 1);
  writer.now = writer.io.now;
  writer.Frame(kLink1, Heartbeat{});
  writer.Pass(absl::Milliseconds(200));
  const auto told = writer.Take<PeerMeasured>();
  REQUIRE(told.size() == 1);
  CHECK(told[0].peer == Owner().self);
  CHECK(told[0].link.cost == writer.core.links().at(0).info.cost);
  int more = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    WriteFor(writer, absl::Milliseconds(1), 2 + i, 2 + i);
    writer.now = writer.io.now;
    writer.Frame(kLink1, Heartbeat{});
    writer.Pass(absl::Milliseconds(200));
    more += static_cast<int>(writer.Take<PeerMeasured>().size());
  }
  CHECK(more >= 3);
  CHECK(more <= 4);
}

}  // namespace
}  // namespace baton::kv
