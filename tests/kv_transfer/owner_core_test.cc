// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The owner's half, rule by rule: each test is a trace in which leaving the rule out goes wrong.
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "tests/kv_transfer/core_harness.h"

namespace baton::kv {
namespace {

constexpr uint64_t kOwner = 100, kWriter = 200;

struct Owner : Harness<OwnerCore> {
  explicit Owner(const OwnerCore::Options& options = {})
      : Harness(options, MakeHello(Role::kDecode, "decode-0", kOwner, 1)) {}
  Layout layout() const { return core.self().layout; }
  // The header of one piece, with the sum of what the pool holds there.
  DataHeader Summed(const Ticket& ticket, uint64_t write, uint32_t layer, uint32_t target) const {
    DataHeader header = HeaderOf(ticket, write, layer, {target});
    const auto block = absl::MakeConstSpan(pool).subspan(
        layout().offset(layer, ticket.blocks[target]), layout().block_bytes());
    header.sums = {Crc32c(block)};
    return header;
  }
};

Hello Writer(uint64_t incarnation = kWriter, uint32_t pid = 2) {
  return MakeHello(Role::kPrefill, "prefill-0", incarnation, pid);
}

TEST_CASE("rule 2: after a reconnection Revoke is said again for what is still quarantined") {
  // The first Revoke was lost with the connection: without a second no Quiet would ever come.
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  owner.core.Revoke(Generation(1));
  CHECK(owner.io.Sent<RevokeFrame>(kLink1).size() == 1);
  owner.Lose(kLink1);
  owner.Hi(kLink2, Writer());
  const auto repeated = owner.io.Sent<RevokeFrame>(kLink2);
  REQUIRE(repeated.size() == 1);
  CHECK(repeated[0].generation == Generation(1));
  CHECK(!owner.IsQuiet(1));
  owner.Frame(kLink2, QuietFrame{Generation(1)});
  CHECK(owner.IsQuiet(1));
  CHECK(owner.core.grants() == 0);
}

TEST_CASE("rule 3: a returning incarnation is told that it was declared dead, and no more") {
  Owner owner;
  owner.Up(kLink1, Writer());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  owner.core.Grant(ticket);
  owner.Pass(absl::Seconds(1));  // a first tick, then silence
  owner.Pass(absl::Seconds(1));
  const auto downs = owner.Take<PeerDown>();
  REQUIRE(downs.size() == 1);
  CHECK(downs[0].declared_dead);
  REQUIRE(owner.Take<WriterFailed>().size() == 1);
  owner.core.Revoke(Generation(1));
  CHECK(!owner.IsQuiet(1));

  owner.Hi(kLink2, Writer());
  const auto dead = owner.io.Sent<DeclaredDead>(kLink2);
  REQUIRE(dead.size() == 1);
  CHECK(dead[0].incarnation == Incarnation(kWriter));
  CHECK(owner.io.prepared == std::vector<LinkId>{kLink1});
  CHECK(owner.io.Sent<RevokeFrame>(kLink2).empty());
  owner.Frame(kLink2, CommitOf(ticket, owner.layout()));
  CHECK(owner.core.counters().stale_commits == 1);
  CHECK(owner.Take<CommitArrived>().empty());
  owner.Frame(kLink2, QuietFrame{});
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("rule 5: a new incarnation of the same process is Quiet for its earlier ones") {
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  owner.core.Revoke(Generation(1));
  owner.Lose(kLink1);
  owner.Hi(kLink2, Writer(kWriter + 1));
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("rule 5: another process with the writer's name fences nothing") {
  // The old process may be stopped, with a copy into our memory half done.
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  owner.core.Revoke(Generation(1));
  owner.Lose(kLink1);
  owner.Hi(kLink2, Writer(kWriter + 1, /*pid=*/3));
  CHECK(!owner.IsQuiet(1));
  owner.core.ProcessExited(Writer().process);
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("rule 6: a new incarnation ends the tickets of the earlier one") {
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  owner.Lose(kLink1);
  CHECK(owner.Take<WriterFailed>().size() == 1);
  owner.Hi(kLink2, Writer(kWriter + 1));
  CHECK(owner.Take<WriterFailed>().empty());  // once
  owner.core.Revoke(Generation(1));
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("rule 7: an owner that was declared dead must exit") {
  Owner owner;
  owner.Hi(kLink2, Writer(kWriter + 7, /*pid=*/8));  // a stranger that only said hello
  owner.Frame(kLink2, DeclaredDead{Incarnation(kOwner)});
  CHECK(owner.Take<MustExit>().empty());
  owner.Lose(kLink2);
  owner.Up(kLink1, Writer());
  owner.Frame(kLink1, DeclaredDead{Incarnation(kOwner + 1)});
  CHECK(owner.Take<MustExit>().empty());
  owner.Frame(kLink1, DeclaredDead{Incarnation(kOwner)});
  CHECK(owner.Take<MustExit>().size() == 1);
}

TEST_CASE("rule 12: a message that is landing keeps its block quarantined until it has landed") {
  Owner owner;
  owner.Up(kLink1, Writer(), 'B');
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  owner.core.Grant(ticket);
  const uint64_t bytes = owner.layout().block_bytes();
  REQUIRE(owner.core.CheckArrival(kLink1, HeaderOf(ticket, 1, 0), bytes).ok());
  owner.core.Revoke(Generation(1));
  CHECK(!owner.IsQuiet(1));
  CHECK(!owner.core.CheckArrival(kLink1, HeaderOf(ticket, 2, 1), bytes).ok());
  CHECK(owner.core.counters().stale_arrivals == 1);
  owner.Frame(kLink1, QuietFrame{Generation(1)});  // no fence on path B
  CHECK(!owner.IsQuiet(1));
  owner.core.Landed(kLink1, 1);
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("rule 12: a landing ends with its connection, once that is torn down") {
  Owner owner;
  owner.Up(kLink1, Writer(), 'B');
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  owner.core.Grant(ticket);
  const uint64_t bytes = owner.layout().block_bytes();
  REQUIRE(owner.core.CheckArrival(kLink1, HeaderOf(ticket, 1, 0), bytes).ok());
  owner.Lose(kLink1);
  owner.core.Revoke(Generation(1));
  CHECK(!owner.IsQuiet(1));
  owner.core.DataClosed(kLink1, true);
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("rule 13, K3: on path B a Commit counts only with all its bytes landed") {
  Owner owner;
  owner.Up(kLink1, Writer(), 'B');
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  owner.core.Grant(ticket);
  const uint64_t bytes = owner.layout().block_bytes();
  for (uint32_t layer = 0; layer < 2; ++layer) {
    REQUIRE(owner.core.CheckArrival(kLink1, HeaderOf(ticket, layer + 1, layer), bytes).ok());
  }
  owner.core.Landed(kLink1, 1);
  SECTION("a layer is still landing") {
    owner.Frame(kLink1, CommitOf(ticket, owner.layout()));
    CHECK(owner.Take<CommitArrived>().empty());
    CHECK(owner.Take<WriterFailed>().size() == 1);
    CHECK(owner.core.counters().refused_commits == 1);
  }
  SECTION("all is there") {
    owner.core.Landed(kLink1, 2);
    owner.Frame(kLink1, CommitOf(ticket, owner.layout()));
    CHECK(owner.Take<CommitArrived>().size() == 1);
    CHECK(owner.core.grants() == 0);
  }
}

TEST_CASE("rule 13: a Commit after a reconnection is dropped") {
  Owner owner;
  owner.Up(kLink1, Writer());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  owner.core.Grant(ticket);
  owner.Lose(kLink1);
  owner.Up(kLink2, Writer());
  owner.Frame(kLink2, CommitOf(ticket, owner.layout()));
  CHECK(owner.Take<CommitArrived>().empty());
  CHECK(owner.core.counters().stale_commits == 1);
}

TEST_CASE("rule 14: what a worker may still write is counted over all its incarnations") {
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter, {0, 1}));
  owner.core.Revoke(Generation(1));
  owner.Lose(kLink1);
  owner.Up(kLink2, Writer(kWriter + 1, /*pid=*/3));
  owner.core.Grant(MakeTicket(kOwner, 2, kWriter + 1, {2, 3, 4}));
  const auto held = owner.core.held();
  REQUIRE(held.contains("prefill-0"));
  CHECK(held.at("prefill-0").open_blocks == 3);
  CHECK(held.at("prefill-0").quarantined_blocks == 2);
}

TEST_CASE("K2: on shared memory only the writer's Quiet or its exit ends a quarantine") {
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  owner.core.Revoke(Generation(1));
  for (int i = 0; i < 7200; ++i) owner.Pass(absl::Seconds(1));  // a time-out is not quiescence
  CHECK(owner.io.Closed(kLink1));
  owner.core.DataClosed(kLink1, /*fenced=*/false);
  CHECK(!owner.IsQuiet(1));
  owner.core.ProcessExited(Writer().process);
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("K2: a closed endpoint is the fence where the driver says so") {
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  owner.core.Grant(MakeTicket(kOwner, 2, kWriter, {4}));
  owner.core.Revoke(Generation(1));
  owner.Lose(kLink1);
  owner.core.DataClosed(kLink1, /*fenced=*/true);
  CHECK(owner.IsQuiet(1));
  // Generation 2 was open; its ticket may still travel.  The next connection closes it before
  // it can be accepted, so the fence holds for it too.
  owner.core.Revoke(Generation(2));
  CHECK(owner.IsQuiet(2));
  owner.io.Clear();
  owner.Hi(kLink2, Writer());
  const auto first = owner.io.Sent<Heartbeat>(kLink2);
  REQUIRE(!first.empty());
  CHECK(first[0].lowest_open == Generation(3));
}

TEST_CASE("K2: a grant made while the link was down is still fenced like any other") {
  // The writer may not have noticed the loss: it accepts the ticket and writes.
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.Lose(kLink1);
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  CHECK(owner.Take<WriterFailed>().size() == 1);
  owner.core.Revoke(Generation(1));
  CHECK(!owner.IsQuiet(1));
  owner.Hi(kLink2, Writer());
  owner.Frame(kLink2, QuietFrame{Generation(1)});
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("K2: a grant made while the next link is coming up is fenced as that link needs it") {
  // The last link was of path B; the one that comes up is of path A, and may bring the ticket.
  Owner owner;
  owner.Up(kLink1, Writer(), 'B');
  owner.Lose(kLink1);
  owner.Hi(kLink2, Writer());
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  owner.core.Revoke(Generation(1));
  CHECK(!owner.IsQuiet(1));
  CHECK(owner.io.Sent<RevokeFrame>(kLink2).size() == 1);
  owner.Frame(kLink2, QuietFrame{Generation(1)});
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("K2: a grant made after the last path B link was lost needs no fence") {
  Owner owner;
  owner.Up(kLink1, Writer(), 'B');
  owner.Lose(kLink1);
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));
  owner.core.Revoke(Generation(1));
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("K3: a Commit that names other bytes than the grant's is refused") {
  Owner owner;
  owner.Up(kLink1, Writer());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter, {1, 2});
  owner.core.Grant(ticket);
  Commit commit = CommitOf(ticket, owner.layout());
  SECTION("fewer blocks") { commit.blocks = 1; }
  SECTION("fewer layers") { commit.layers = 1; }
  SECTION("fewer bytes") { commit.bytes -= 1; }
  SECTION("no first token") { commit.first_tokens.clear(); }
  owner.Frame(kLink1, commit);
  CHECK(owner.Take<CommitArrived>().empty());
  CHECK(owner.Take<WriterFailed>().size() == 1);
  CHECK(owner.core.counters().refused_commits == 1);
}

TEST_CASE("K4: messages that name nothing alive are dropped and counted") {
  Owner owner;
  owner.Up(kLink1, Writer());
  const Ticket ticket = MakeTicket(kOwner, 5, kWriter);
  owner.core.Grant(ticket);
  Commit commit = CommitOf(ticket, owner.layout());
  SECTION("another attempt") { commit.attempt.attempt = 2; }
  SECTION("another generation") { commit.key.generation = Generation(4); }
  SECTION("another owner") { commit.key.owner = Incarnation(1); }
  SECTION("another writer") { commit.writer = Incarnation(1); }
  SECTION("a revoked grant") { owner.core.Revoke(Generation(5)); }
  owner.Frame(kLink1, commit);
  CHECK(owner.Take<CommitArrived>().empty());
  CHECK(owner.core.counters().stale_commits == 1);
  owner.Frame(kLink1, QuietFrame{Generation(99)});
  CHECK(owner.core.counters().stale_quiets == 1);
  owner.Frame(kLink1, WriterFailedFrame{Generation(98), absl::StatusCode::kInternal, ""});
  CHECK(owner.core.counters().stale_failures == 1);
  CHECK(!owner.io.Closed(kLink1));
}

TEST_CASE("K4: path B lands only what the grant names") {
  Owner owner;
  owner.Up(kLink1, Writer(), 'B');
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter, {6, 7});
  owner.core.Grant(ticket);
  uint64_t bytes = owner.layout().block_bytes();
  DataHeader header = HeaderOf(ticket, 1, 0);
  const auto good = owner.core.CheckArrival(kLink1, header, bytes);
  REQUIRE(good.ok());
  CHECK(good->offsets == std::vector<uint64_t>{owner.layout().offset(0, 6)});
  header.write = 2;
  header.layer = 1;
  SECTION("another generation") { header.key.generation = Generation(2); }
  SECTION("another attempt") { header.attempt.attempt = 9; }
  SECTION("another writer") { header.writer = Incarnation(3); }
  SECTION("a layer that is not there") { header.layer = 2; }
  SECTION("a block that is not there") { header.targets = {2}; }
  SECTION("a length that does not fit") { bytes += 1; }
  SECTION("a piece that was written before") { header.layer = 0; }
  SECTION("a number that is in use") { header.write = 1; }
  CHECK(!owner.core.CheckArrival(kLink1, header, bytes).ok());
  CHECK(owner.core.counters().stale_arrivals == 1);
  const auto answers = owner.io.Sent<WriteResult>(kLink1);
  REQUIRE(answers.size() == 1);
  CHECK(!answers[0].landed);
}

TEST_CASE("K3: on path A a piece without the bytes of its sum breaks the grant, with every name") {
  Owner owner;
  owner.Up(kLink1, Writer());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter, {3, 6});
  owner.core.Grant(ticket);
  for (const uint8_t where : {0, 1}) owner.pool[owner.layout().offset(1, 6) + where] = 9;
  owner.Frame(kLink1, WrittenFrame{owner.Summed(ticket, 1, 0, 0)});
  DataHeader wrong = owner.Summed(ticket, 2, 1, 1);
  wrong.sums[0] ^= 1;
  CHECK(owner.Take<WriterFailed>().empty());
  owner.Frame(kLink1, WrittenFrame{wrong});
  const auto failed = owner.Take<WriterFailed>();
  REQUIRE(failed.size() == 1);
  CHECK(absl::IsDataLoss(failed[0].why));
  for (const char* name : {"block 6", "layer 1", "prefill-0", "over fake", "path A"}) {
    INFO(failed[0].why << " names " << name);
    CHECK(failed[0].why.message().find(name) != std::string::npos);
  }
  owner.Frame(kLink1, CommitOf(ticket, owner.layout()));
  CHECK(owner.Take<CommitArrived>().empty());
  CHECK(owner.core.counters().stale_commits == 1);
  const Compared count = owner.core.compared().at({"prefill-0", "fake", 'A'});
  CHECK(count.right == 1);
  CHECK(count.wrong == 1);
  owner.core.Revoke(Generation(1));
  CHECK(!owner.IsQuiet(1));  // what is damaged may still be written
}

TEST_CASE("K3: a Commit of a push with sums counts only when all of them were right") {
  for (const bool all : {false, true}) {
    Owner owner;
    owner.Up(kLink1, Writer());
    const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
    owner.core.Grant(ticket);
    owner.Frame(kLink1, WrittenFrame{owner.Summed(ticket, 1, 0, 0)});
    owner.Frame(kLink1, WrittenFrame{owner.Summed(ticket, 2, 0, 0)});  // twice is not two
    CHECK(owner.core.counters().stale_arrivals == 1);
    if (all) owner.Frame(kLink1, WrittenFrame{owner.Summed(ticket, 2, 1, 0)});
    Commit commit = CommitOf(ticket, owner.layout());
    commit.summed = true;
    owner.Frame(kLink1, commit);
    CHECK(owner.Take<CommitArrived>().size() == (all ? 1 : 0));
    CHECK(owner.core.counters().refused_commits == (all ? 0 : 1));
  }
}

TEST_CASE("K3, K4: sums under another grant, or outside it, are dropped") {
  Owner owner;
  owner.Up(kLink1, Writer());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  owner.core.Grant(ticket);
  DataHeader outside = owner.Summed(ticket, 1, 0, 0);
  outside.layer = 2;
  owner.Frame(kLink1, WrittenFrame{outside});
  outside = owner.Summed(ticket, 1, 0, 0);
  outside.targets = {1};
  owner.Frame(kLink1, WrittenFrame{outside});
  Ticket other = ticket;
  other.attempt.attempt = 7;
  owner.Frame(kLink1, WrittenFrame{owner.Summed(other, 1, 0, 0)});
  owner.core.Revoke(Generation(1));
  owner.Frame(kLink1, WrittenFrame{owner.Summed(ticket, 1, 0, 0)});
  CHECK(owner.core.counters().stale_arrivals == 4);
  CHECK(owner.Take<WriterFailed>().empty());
  CHECK(owner.core.compared().empty());
}

TEST_CASE("K3: on path B a message that arrived damaged did not land") {
  Owner owner;
  owner.Up(kLink1, Writer(), 'B');
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  owner.core.Grant(ticket);
  const uint64_t bytes = owner.layout().block_bytes();
  REQUIRE(owner.core.CheckArrival(kLink1, owner.Summed(ticket, 1, 0, 0), bytes).ok());
  owner.core.Landed(kLink1, 1);
  REQUIRE(owner.core.CheckArrival(kLink1, owner.Summed(ticket, 2, 1, 0), bytes).ok());
  owner.pool[owner.layout().offset(1, ticket.blocks[0]) + 5] ^= 0x20;  // on its way
  owner.core.Landed(kLink1, 2);
  const auto answers = owner.io.Sent<WriteResult>(kLink1);
  REQUIRE(answers.size() == 2);
  CHECK(answers[0].landed);
  CHECK(!answers[1].landed);
  CHECK(absl::IsDataLoss(owner.Take<WriterFailed>().at(0).why));
  CHECK(owner.core.compared().at({"prefill-0", "fake", 'B'}).wrong == 1);
  owner.core.Revoke(Generation(1));
  CHECK(owner.IsQuiet(1));  // no landing is under way
}

TEST_CASE("what was compared is counted by link, but not without bound") {
  Owner owner;
  uint64_t right = 0;
  for (uint32_t life = 0; life < OwnerCore::kComparedMax + 2; ++life) {
    const LinkId link(life + 1);
    const Hello peer = MakeHello(Role::kPrefill, absl::StrCat("p", life), kWriter + life, life + 9);
    owner.Up(link, peer);
    const Ticket ticket = MakeTicket(kOwner, life + 1, kWriter + life);
    owner.core.Grant(ticket);
    owner.Frame(link, WrittenFrame{owner.Summed(ticket, 1, 0, 0)});
    owner.core.Revoke(ticket.key.generation);
    owner.Lose(link);
    owner.core.DataClosed(link, true);
  }
  CHECK(owner.core.compared().size() == OwnerCore::kComparedMax + 1);
  for (const auto& [over, count] : owner.core.compared()) right += count.right;
  CHECK(right == OwnerCore::kComparedMax + 2);
  CHECK(owner.core.compared().at({"others", "fake", 'A'}).right == 2);
}

TEST_CASE("K7: a grant to an incarnation that was declared dead fails at once") {
  Owner owner;
  owner.Up(kLink1, Writer());
  owner.core.ProcessExited(Writer().process);
  CHECK(owner.io.Closed(kLink1));
  CHECK(owner.Take<PeerDown>()[0].declared_dead);
  owner.core.Grant(MakeTicket(kOwner, 1, kWriter));  // the role loop had not heard of it
  CHECK(owner.Take<WriterFailed>().size() == 1);
  owner.core.Revoke(Generation(1));
  CHECK(owner.IsQuiet(1));
}

TEST_CASE("a Revoke after the Commit is answered by Quiet, once") {
  Owner owner;
  owner.Up(kLink1, Writer());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter);
  owner.core.Grant(ticket);
  owner.Frame(kLink1, CommitOf(ticket, owner.layout()));
  owner.core.Revoke(Generation(1));
  CHECK(owner.Take<Quiet>().size() == 1);
}

TEST_CASE("Revoke names the lowest generation that is still open to that writer") {
  Owner owner;
  owner.Up(kLink1, Writer());
  for (uint64_t g = 1; g <= 4; ++g) {
    owner.core.Grant(MakeTicket(kOwner, g, kWriter, {static_cast<BlockIndex>(g)}));
  }
  owner.core.Revoke(Generation(1));
  owner.core.Revoke(Generation(3));
  owner.core.Revoke(Generation(2));
  owner.core.Revoke(Generation(4));
  const auto revokes = owner.io.Sent<RevokeFrame>(kLink1);
  REQUIRE(revokes.size() == 4);
  CHECK(revokes[0].lowest_open == Generation(2));
  CHECK(revokes[1].lowest_open == Generation(2));
  CHECK(revokes[2].lowest_open == Generation(4));
  CHECK(revokes[3].lowest_open == Generation(5));
}

TEST_CASE("an incarnation is remembered as dead, but not without bound") {
  OwnerCore::Options options;
  options.dead_max = 3;
  Owner owner(options);
  for (uint64_t life = 0; life < 20; ++life) {
    const LinkId link(life + 1);
    owner.Up(link, Writer(kWriter + life, static_cast<uint32_t>(10 + life)));
    owner.core.ProcessExited(Writer(kWriter, static_cast<uint32_t>(10 + life)).process);
  }
  owner.Hi(LinkId(99), Writer(kWriter + 19, 29));
  CHECK(owner.io.Sent<DeclaredDead>(LinkId(99)).size() == 1);
}

}  // namespace
}  // namespace baton::kv
