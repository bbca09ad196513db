// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The checks of transport_contract.h.
#include "tests/kv_transfer/transport_contract.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/kv_transfer/naive_conversion.h"

namespace baton::kv::contract {

void Scene::Poll() {
  pair_.owner().Poll(of_owner);
  if (writer_answers) pair_.writer().Poll(of_writer);
  for (const TransportEvent& event : of_owner) {
    if (const auto* up = std::get_if<PeerUp>(&event)) writer_ref = up->peer;
  }
  for (const TransportEvent& event : of_writer) {
    if (const auto* up = std::get_if<PeerUp>(&event)) owner_ref = up->peer;
  }
}

void Scene::Until(const std::string& what, const std::function<bool()>& done) {
  Poll();
  for (int step = 0; step < pair_.steps_in_30_seconds() && !done(); ++step) {
    pair_.Step();
    Poll();
  }
  INFO("waiting for: " << what);
  REQUIRE(done());
}

void Scene::Wait(double share) {
  for (int step = 0; step < pair_.steps_in_30_seconds() * share; ++step) {
    pair_.Step();
    Poll();
  }
}

void Scene::UntilUp() {
  const int owner_had = owner_ups(), writer_had = writer_ups();
  Until("both sides up", [&] { return owner_ups() > owner_had && writer_ups() > writer_had; });
}

Ticket Scene::MakeTicket(std::vector<BlockIndex> blocks) {
  Ticket ticket;
  ticket.key = {owner_ref.incarnation, Generation(++last_generation_)};
  ticket.writer = writer_ref.incarnation;
  ticket.attempt = {{Incarnation(7), 1}, ++last_attempt_};
  ticket.tokens = static_cast<uint32_t>(blocks.size()) * kBlockTokens;
  ticket.blocks = std::move(blocks);
  return ticket;
}

void Scene::Fill(BlockIndex block, uint32_t salt) {
  const Layout layout = pair_.writer_layout();
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    uint8_t* at = pair_.writer_pool() + layout.offset(layer, block);
    for (uint64_t i = 0; i < layout.block_bytes(); ++i) {
      at[i] = static_cast<uint8_t>(salt * 31 + layer * 7 + block * 13 + i * (salt + 1));
    }
  }
}

void Scene::WriteAll(const Ticket& ticket) {
  std::vector<WritePiece> pieces;
  for (uint32_t i = 0; i < ticket.blocks.size(); ++i) pieces.push_back({i, i});
  for (uint32_t layer = 0; layer < pair_.writer_layout().layers; ++layer) {
    pair_.writer().Write(WriteId(++last_write_), ticket.key, layer, pieces);
    ++writes;
  }
}

Commit Scene::CommitOf(const Ticket& ticket) const {
  const Layout layout = pair_.owner_layout();
  Commit commit;
  commit.key = ticket.key;
  commit.writer = ticket.writer;
  commit.attempt = ticket.attempt;
  commit.blocks = static_cast<uint32_t>(ticket.blocks.size());
  commit.layers = layout.layers;
  commit.bytes = uint64_t{commit.blocks} * commit.layers * layout.block_bytes();
  commit.first_tokens = {{.id = 42}};
  return commit;
}

void Scene::CheckPools(const Ticket& ticket) const {
  const Layout from = pair_.writer_layout(), to = pair_.owner_layout();
  for (uint32_t layer = 0; layer < from.layers; ++layer) {
    for (uint32_t i = 0; i < ticket.blocks.size(); ++i) {
      const uint8_t* source = pair_.writer_pool() + from.offset(layer, i);
      const uint8_t* target = pair_.owner_pool() + to.offset(layer, ticket.blocks[i]);
      const std::vector<uint8_t> expected =
          naive::Converted(from, to, {source}, std::vector<uint8_t>(to.block_bytes()));
      REQUIRE(std::memcmp(expected.data(), target, expected.size()) == 0);
    }
  }
}

std::vector<uint8_t> Scene::OwnerBytes() const {
  const uint8_t* pool = pair_.owner_pool();
  return {pool, pool + pair_.owner_layout().pool_bytes()};
}

absl::Status Scene::end_of(GrantKey key) const {
  for (const TransportEvent& event : of_writer) {
    const auto* ended = std::get_if<PushEnded>(&event);
    if (ended != nullptr && ended->key == key) return ended->why;
  }
  return absl::OkStatus();
}

void Scene::PushWhole(std::vector<BlockIndex> blocks, uint32_t salt) {
  for (uint32_t i = 0; i < blocks.size(); ++i) Fill(i, salt);
  const Ticket ticket = MakeTicket(std::move(blocks));
  const int had = done();
  pair_.owner().Grant(ticket);
  pair_.writer().Accept(ticket);
  WriteAll(ticket);
  const int all = had + static_cast<int>(pair_.writer_layout().layers);
  Until("all writes done", [&] { return done() == all; });
  REQUIRE(ends(ticket.key) == 0);
  pair_.writer().SendCommit(CommitOf(ticket));
  Until("commit", [&] { return commits(ticket.key.generation) == 1; });
  CheckPools(ticket);
}

namespace {

void LinkComesUp(Scene& s) {
  CHECK(s.owner_ref.incarnation != Incarnation());
  CHECK(s.writer_ref.incarnation != Incarnation());
  CHECK(s.owner_ref.worker != s.writer_ref.worker);
  const auto* up = std::get_if<PeerUp>(&s.of_owner.front());
  REQUIRE(up != nullptr);
  CHECK((up->link.data_path == 'A' || up->link.data_path == 'B'));
  CHECK(!up->link.transport.empty());
  CHECK(up->link.cost.bandwidth > 0);
}

void PushLands(Scene& s) {
  s.PushWhole({5, 6, 2}, 1);
  s.Wait(0.01);
  CHECK(s.commits(Generation(1)) == 1);
  CHECK(s.quiets(Generation(1)) == 0);
  CHECK(s.done_ok() == s.writes);
}

void PushesFollowEachOther(Scene& s) {
  for (uint32_t salt = 1; salt <= 5; ++salt) s.PushWhole({salt, (salt + 3) % 8}, salt);
  CHECK(s.done_ok() == s.writes);
}

const PeerMeasured* LastMeasured(const std::vector<TransportEvent>& events) {
  const PeerMeasured* last = nullptr;
  for (const TransportEvent& event : events) {
    if (const auto* measured = std::get_if<PeerMeasured>(&event)) last = measured;
  }
  return last;
}

void WritesMeasureTheLink(Scene& s) {
  s.PushWhole({5, 6, 2}, 1);
  s.Until("both ends are told the same", [&] {
    const PeerMeasured* owner = LastMeasured(s.of_owner);
    const PeerMeasured* writer = LastMeasured(s.of_writer);
    if (owner == nullptr || writer == nullptr) return false;
    CHECK(owner->peer == s.writer_ref);
    CHECK(writer->peer == s.owner_ref);
    CHECK(owner->link.transport == writer->link.transport);
    const LinkCost &a = owner->link.cost, &b = writer->link.cost;
    return a.bandwidth == b.bandwidth &&
           absl::AbsDuration(a.latency - b.latency) <= absl::Nanoseconds(1);
  });
}

// Two pushes at once: each write completes exactly once and each Commit names its own bytes.
void PushesOverlap(Scene& s) {
  s.Fill(0, 3);
  s.Fill(1, 4);
  const Ticket first = s.MakeTicket({1, 4}), second = s.MakeTicket({3, 7});
  for (const Ticket& ticket : {first, second}) {
    s.pair().owner().Grant(ticket);
    s.pair().writer().Accept(ticket);
  }
  s.WriteAll(second);
  s.WriteAll(first);
  s.Until("writes", [&] { return s.done() == s.writes; });
  s.pair().writer().SendCommit(s.CommitOf(first));
  s.pair().writer().SendCommit(s.CommitOf(second));
  s.Until("commits", [&] {
    return s.commits(first.key.generation) == 1 && s.commits(second.key.generation) == 1;
  });
  s.CheckPools(first);
  s.CheckPools(second);
}

// K2: after Quiet the block may be another's; a late write would be silent wrong output.
void NothingLandsAfterQuiet(Scene& s) {
  s.Fill(0, 9);
  s.Fill(1, 9);
  for (int round = 0; round < 5; ++round) {
    const Ticket ticket = s.MakeTicket({2, 3});
    s.pair().owner().Grant(ticket);
    s.pair().writer().Accept(ticket);
    s.WriteAll(ticket);
    if (round % 2 == 1) s.pair().Step();
    s.pair().owner().Revoke(ticket.key.generation);
    s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
    const std::vector<uint8_t> before = s.OwnerBytes();
    s.Until("the writer's end", [&] { return s.ends(ticket.key) == 1 && s.done() == s.writes; });
    s.Wait(0.02);
    CHECK(s.OwnerBytes() == before);
    CHECK(s.commits(ticket.key.generation) == 0);
    CHECK(s.quiets(ticket.key.generation) == 1);
    CHECK(absl::IsCancelled(s.end_of(ticket.key)));
  }
}

void UnusedGrantBecomesQuiet(Scene& s) {
  const Ticket ticket = s.MakeTicket({1});
  s.pair().owner().Grant(ticket);
  s.pair().owner().Revoke(ticket.key.generation);
  s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
}

// K11: Prefill may arrive after everything about its ticket is over.
void LateAcceptIsRefused(Scene& s) {
  const Ticket ticket = s.MakeTicket({1});
  s.pair().owner().Grant(ticket);
  s.pair().owner().Revoke(ticket.key.generation);
  s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
  s.Wait(0.01);  // path B is quiet before the writer heard of the Revoke
  s.pair().writer().Accept(ticket);
  s.Until("refusal", [&] { return s.ends(ticket.key) == 1; });
  CHECK(absl::IsCancelled(s.end_of(ticket.key)));
}

void TicketIsAcceptedOnce(Scene& s) {
  s.Fill(0, 2);
  const Ticket ticket = s.MakeTicket({6});
  s.pair().owner().Grant(ticket);
  s.pair().writer().Accept(ticket);
  s.WriteAll(ticket);
  s.Until("writes", [&] { return s.done() == s.writes; });
  s.pair().writer().SendCommit(s.CommitOf(ticket));
  s.Until("commit", [&] { return s.commits(ticket.key.generation) == 1; });
  s.pair().writer().Accept(ticket);
  s.Until("refusal", [&] { return s.ends(ticket.key) == 1; });
  CHECK(absl::IsCancelled(s.end_of(ticket.key)));
}

void ForeignTicketsAreRefused(Scene& s) {
  Ticket other_owner = s.MakeTicket({1});
  other_owner.key.owner = Incarnation(12345);
  Ticket other_writer = s.MakeTicket({1});
  other_writer.writer = Incarnation(12345);
  Ticket outside = s.MakeTicket({s.pair().owner_layout().blocks});
  for (const Ticket& ticket : {other_owner, other_writer, outside}) {
    s.pair().writer().Accept(ticket);
  }
  s.Until("refusals", [&] {
    return s.ends(other_owner.key) == 1 && s.ends(other_writer.key) == 1 &&
           s.ends(outside.key) == 1;
  });
  CHECK(absl::IsUnavailable(s.end_of(other_owner.key)));
  CHECK(absl::IsUnavailable(s.end_of(other_writer.key)));
  CHECK(absl::IsInvalidArgument(s.end_of(outside.key)));
}

void WritesAfterTheEndFail(Scene& s) {
  const Ticket ticket = s.MakeTicket({1});
  s.pair().owner().Grant(ticket);
  s.pair().writer().Accept(ticket);
  s.pair().owner().Revoke(ticket.key.generation);
  s.Until("end", [&] { return s.ends(ticket.key) == 1; });
  s.WriteAll(ticket);
  s.Until("writes", [&] { return s.done() == s.writes; });
  CHECK(s.done_ok() == 0);
  s.pair().writer().SendCommit(s.CommitOf(ticket));
  s.Wait(0.01);
  CHECK(s.commits(ticket.key.generation) == 0);
}

void AbandonTellsTheOwner(Scene& s) {
  const Ticket ticket = s.MakeTicket({1, 2});
  s.pair().owner().Grant(ticket);
  s.pair().writer().Accept(ticket);
  s.WriteAll(ticket);
  s.pair().writer().Abandon(ticket.key, absl::CancelledError("no longer wanted"));
  s.Until("failure", [&] { return s.failures(ticket.key.generation) == 1; });
  s.pair().owner().Revoke(ticket.key.generation);
  s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
  s.Until("writes", [&] { return s.done() == s.writes; });
  CHECK(s.ends(ticket.key) == 0);
  s.PushWhole({1, 2}, 8);
}

// A Revoke and a Commit that cross: one outcome, and after Revoke it is Quiet.
void RevokeBeatsACommitOnItsWay(Scene& s) {
  const Ticket ticket = s.MakeTicket({1});
  s.pair().owner().Grant(ticket);
  s.pair().writer().Accept(ticket);
  s.WriteAll(ticket);
  s.Until("writes", [&] { return s.done() == s.writes; });
  s.pair().writer().SendCommit(s.CommitOf(ticket));
  s.pair().owner().Revoke(ticket.key.generation);
  s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
  s.Wait(0.01);
  CHECK(s.commits(ticket.key.generation) == 0);
  CHECK(s.quiets(ticket.key.generation) == 1);
}

void BreakFailsThePush(Scene& s) {
  const Ticket ticket = s.MakeTicket({1, 2});
  s.pair().owner().Grant(ticket);
  s.pair().writer().Accept(ticket);
  s.WriteAll(ticket);
  if (!s.pair().Cause(Fault::kBreakLink)) return;
  s.Until("both told",
          [&] { return s.failures(ticket.key.generation) == 1 && s.ends(ticket.key) == 1; });
  s.pair().owner().Revoke(ticket.key.generation);
  s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
  s.Until("writes", [&] { return s.done() == s.writes; });
  s.Until("up again", [&] { return s.owner_ups() == 2 && s.writer_ups() == 2; });
  s.PushWhole({2, 1}, 5);
}

// The ticket is in the front end's hands while the link breaks and comes back.
void TicketDiesWithItsConnection(Scene& s) {
  const Ticket ticket = s.MakeTicket({1});
  s.pair().owner().Grant(ticket);
  if (!s.pair().Cause(Fault::kBreakLink)) return;
  s.Until("up again", [&] { return s.owner_ups() == 2 && s.writer_ups() == 2; });
  CHECK(s.failures(ticket.key.generation) == 1);
  s.pair().writer().Accept(ticket);
  s.WriteAll(ticket);
  s.Until("refusal", [&] { return s.ends(ticket.key) == 1 && s.done() == s.writes; });
  CHECK(s.done_ok() == 0);
  s.pair().owner().Revoke(ticket.key.generation);
  s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
}

// K7, rules 3-5: a writer that was stopped for too long comes back as another incarnation.
void StoppedWriterIsReborn(Scene& s) {
  const Ticket ticket = s.MakeTicket({1, 2});
  s.pair().owner().Grant(ticket);
  s.pair().writer().Accept(ticket);
  s.WriteAll(ticket);
  const Incarnation before = s.writer_ref.incarnation;
  s.writer_answers = false;
  if (!s.pair().Cause(Fault::kStopWriter)) return;
  s.Until("declared dead", [&] { return s.owner_downs() == 1; });
  CHECK(s.failures(ticket.key.generation) == 1);
  s.pair().owner().Revoke(ticket.key.generation);
  s.Wait(0.02);
  REQUIRE(s.pair().Cause(Fault::kWakeWriter));
  s.writer_answers = true;
  s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
  s.Until("reborn", [&] { return s.reborn() == 1; });
  s.Until("up again", [&] { return s.owner_ups() == 2 && s.writer_ups() == 2; });
  CHECK(s.writer_ref.incarnation != before);
  CHECK(s.done() == s.writes);
  s.PushWhole({1, 2}, 6);
}

void DeadWriterIsFenced(Scene& s) {
  const Ticket ticket = s.MakeTicket({1, 2});
  s.pair().owner().Grant(ticket);
  s.pair().writer().Accept(ticket);
  s.WriteAll(ticket);
  s.writer_answers = false;
  if (!s.pair().Cause(Fault::kKillWriter)) return;
  s.Until("failure", [&] { return s.failures(ticket.key.generation) == 1; });
  s.pair().owner().Revoke(ticket.key.generation);
  s.Until("quiet", [&] { return s.quiets(ticket.key.generation) == 1; });
  const std::vector<uint8_t> before = s.OwnerBytes();
  s.Wait(0.02);
  CHECK(s.OwnerBytes() == before);
  CHECK(s.owner_downs() == 1);
}

// Rule 1: tickets and keys of an owner's earlier life mean nothing in the next.
void RestartedOwnerKnowsNoOldTicket(Scene& s) {
  const Ticket ticket = s.MakeTicket({1});
  s.pair().owner().Grant(ticket);
  s.pair().writer().Accept(ticket);
  s.WriteAll(ticket);
  const Incarnation before = s.owner_ref.incarnation;
  if (!s.pair().Cause(Fault::kRestartOwner)) return;
  s.Until("end", [&] { return s.ends(ticket.key) == 1 && s.done() == s.writes; });
  s.Until("up again", [&] { return s.owner_ups() == 2 && s.writer_ups() == 2; });
  CHECK(s.owner_ref.incarnation != before);
  const Ticket old = [&] {
    Ticket copy = ticket;
    copy.key.generation = Generation(999);
    return copy;
  }();
  s.pair().writer().Accept(old);
  s.Until("refusal", [&] { return s.ends(old.key) == 1; });
  s.PushWhole({1}, 4);
}

}  // namespace

const std::vector<Check>& Checks() {
  static const std::vector<Check> checks = {
      {"a link comes up, measured, on both sides", LinkComesUp},
      {"a push lands byte for byte and its Commit arrives once", PushLands},
      {"pushes follow each other over the same blocks", PushesFollowEachOther},
      {"what writes take is told at both ends", WritesMeasureTheLink},
      {"two pushes overlap: each ends by itself", PushesOverlap},
      {"K2: nothing lands after Quiet, whenever Revoke came", NothingLandsAfterQuiet},
      {"a grant that nobody used becomes quiet", UnusedGrantBecomesQuiet},
      {"K11: a ticket that was revoked is refused later", LateAcceptIsRefused},
      {"rule 11: a ticket is accepted once", TicketIsAcceptedOnce},
      {"rule 1: tickets of other incarnations and other pools are refused",
       ForeignTicketsAreRefused},
      {"writes and Commit after the end of a push do nothing", WritesAfterTheEndFail},
      {"an abandoned push is reported to the owner", AbandonTellsTheOwner},
      {"a Revoke that crosses a Commit wins", RevokeBeatsACommitOnItsWay},
      {"rule 13: a push does not survive its connection", BreakFailsThePush},
      {"a ticket does not survive the connection it was granted under",
       TicketDiesWithItsConnection},
      {"K7: a writer stopped for too long comes back under a new incarnation",
       StoppedWriterIsReborn},
      {"K2: a dead writer's blocks come back through the fence", DeadWriterIsFenced},
      {"rule 1: a restarted owner knows no old ticket", RestartedOwnerKnowsNoOldTicket},
  };
  return checks;
}

void RunContract(const std::function<std::unique_ptr<TransportPair>()>& make) {
  for (const Check& check : Checks()) {
    DYNAMIC_SECTION(check.what) {
      const std::unique_ptr<TransportPair> pair = make();
      Scene scene(*pair);
      scene.UntilUp();
      check.run(scene);
    }
  }
}

}  // namespace baton::kv::contract
