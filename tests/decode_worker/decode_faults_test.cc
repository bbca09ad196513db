// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What may happen to a decode attempt in each of its states: it ends once, says why, owns
// nothing afterwards, and what a peer may still write stays in quarantine (K2, K9).
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "tests/decode_worker/rig.h"

namespace baton::decode {
namespace {

using fakes::Prompt;

enum class At { kWaiting, kLanding, kPrompt, kRunning };

// Brings stream 1 into the state; in kWaiting another sequence fills the pool.
StreamId BringTo(Rig& rig, At at) {
  switch (at) {
    case At::kWaiting:
      rig.RunHere(50, Prompt(490, 400));
      return rig.Reserve(1, Prompt(100));
    case At::kLanding:
      return rig.Reserve(1, Prompt(100));
    case At::kPrompt:
      return rig.RunHere(1, Prompt(100));
    case At::kRunning: {
      const StreamId stream = rig.Reserve(1, Prompt(100));
      rig.Commit(rig.TicketOf(stream));
      return stream;
    }
  }
  return StreamId();
}

struct Fault {
  std::string name;
  std::function<void(Rig&, StreamId)> happen;
  absl::StatusCode code = absl::StatusCode::kOk;  // kOk: the stream is gone, nothing is said
  Failure counted = Failure::kCancelled;          // for a landing
};

const std::vector<Fault>& Faults() {
  static const std::vector<Fault> faults = {
      {"cancel", [](Rig& rig, StreamId stream) { rig.Close(stream); }},
      {"lease lost", [](Rig& rig, StreamId) { rig.Tick(absl::Seconds(2)); },
       absl::StatusCode::kUnavailable, Failure::kLease},
      {"deadline passed",
       [](Rig& rig, StreamId) {
         for (int i = 0; i < 61; ++i) {
           rig.Alive();
           rig.Tick(absl::Seconds(1));
         }
       },
       absl::StatusCode::kDeadlineExceeded, Failure::kExpired},
      {"drain ran out",
       [](Rig& rig, StreamId) {
         rig.worker.Receive(StartDrain{});
         for (int i = 0; i < 31; ++i) {
           rig.Alive();
           rig.Tick(absl::Seconds(1));
         }
       },
       absl::StatusCode::kUnavailable, Failure::kDrained},
  };
  return faults;
}

TEST_CASE("every fault in every state: one ending, the reason, and quarantine for landings",
          "[decode_worker]") {
  for (const Fault& fault : Faults()) {
    for (const At at : {At::kWaiting, At::kLanding, At::kPrompt, At::kRunning}) {
      INFO(fault.name << " in state " << static_cast<int>(at));
      Rig rig;
      const StreamId stream = BringTo(rig, at);
      if (at == At::kPrompt || at == At::kRunning) REQUIRE(rig.engine.running.has_value());
      const uint32_t used = rig.blocks().used;
      fault.happen(rig, stream);
      CHECK(rig.heard.Code(stream) == fault.code);
      if (at == At::kLanding) {
        CHECK(rig.Failures(fault.counted) == 1);
        CHECK(rig.blocks().quarantined == 7);
        CHECK(rig.transport.revoked.size() == 1);
        CHECK((rig.worker.metrics().reservations_expired == 1) ==
              (fault.counted == Failure::kExpired));
      }
      if (at == At::kPrompt || at == At::kRunning) {
        CHECK(rig.blocks().used == used);  // the engine still uses them
      }
      rig.RunAll();
      rig.transport.QuietAll();
      rig.Tick();
      CHECK(rig.OwnsNothing());
      CHECK(rig.worker.metrics().running == 0);
      CHECK(rig.worker.Status().attempts == 0);
      CHECK(rig.heard.All<Ended>(stream).size() == (fault.code == absl::StatusCode::kOk ? 0 : 1));
    }
  }
}

TEST_CASE("Revoke before the first token: revoked, and only Quiet frees the blocks",
          "[decode_worker]") {
  for (const At at : {At::kWaiting, At::kLanding, At::kPrompt}) {
    INFO("state " << static_cast<int>(at));
    Rig rig;
    const StreamId stream = BringTo(rig, at);
    rig.Say(stream, Revoke{});
    const auto settled = rig.heard.All<Settled>(stream);
    REQUIRE(settled.size() == 1);
    CHECK(!settled[0].committed);
    CHECK(rig.heard.Code(stream) == absl::StatusCode::kCancelled);
    if (at == At::kLanding) {
      CHECK(rig.blocks().quarantined == 7);
      rig.Tick(absl::Seconds(1));
      CHECK(rig.blocks().quarantined == 7);  // a time-out is not quiescence
    }
    rig.RunAll();
    rig.transport.QuietAll();
    rig.Tick();
    CHECK(rig.OwnsNothing());
  }
}

TEST_CASE("Revoke after the first token: committed wins and the answer goes on",
          "[decode_worker]") {
  Rig rig;
  const StreamId stream = BringTo(rig, At::kRunning);
  rig.Say(stream, Revoke{});
  const auto settled = rig.heard.All<Settled>(stream);
  REQUIRE(settled.size() == 1);
  CHECK(settled[0].committed);
  rig.RunAll();
  CHECK(rig.heard.All<Token>(stream).size() == 4);
  rig.Say(stream, Revoke{});
  CHECK(rig.Stales(Stale::kStream) == 1);
}

TEST_CASE("a Commit that is visible when Revoke is read wins", "[decode_worker]") {
  Rig rig;
  const StreamId stream = BringTo(rig, At::kLanding);
  rig.transport.Commit(rig.transport.CommitFor(rig.TicketOf(stream), 2, rig.layout.block_bytes()));
  rig.Say(stream, Revoke{});
  CHECK(rig.heard.All<Settled>(stream).at(0).committed);
  CHECK(rig.transport.revoked.empty());
}

TEST_CASE("the writer's failure or a broken link ends its landings, and says so",
          "[decode_worker]") {
  for (const bool link : {false, true}) {
    Rig rig;
    const StreamId stream = BringTo(rig, At::kLanding);
    const Generation generation = rig.TicketOf(stream);
    const kv::WriterFailed failed{generation, absl::UnavailableError("x")};
    const kv::PeerDown down{kWriter, absl::UnavailableError("x"), true};
    if (link) {
      rig.transport.Say(down);
    } else {
      rig.transport.Say(failed);
    }
    rig.Tick();
    CHECK(rig.heard.Code(stream) == absl::StatusCode::kUnavailable);
    CHECK(rig.blocks().quarantined == 7);
    CHECK(rig.Failures(link ? Failure::kWriterLost : Failure::kWriterFailed) == 1);
    rig.transport.Say(failed);  // late
    rig.Tick();
    CHECK(rig.Stales(Stale::kWriterFailed) == 1);
    rig.transport.QuietAll();
    rig.Tick();
    CHECK(rig.OwnsNothing());
  }
}

TEST_CASE("an attempt for another life of this worker is refused, and may be tried again",
          "[decode_worker]") {
  Rig rig;
  for (const std::optional<WorkerRef>& writer :
       {std::optional(kWriter), std::optional<WorkerRef>()}) {
    const StreamId stream(writer ? 1 : 2);
    rig.worker.Receive(StreamOpened{
        stream, Reserve{fakes::Attempt(stream.value()), Incarnation(kSelf.incarnation.value() + 1),
                        Prompt(40), absl::Seconds(9), writer, 0}});
    rig.Tick();
    CHECK(rig.heard.Code(stream) == absl::StatusCode::kUnavailable);
  }
  CHECK(rig.transport.grants.empty());
  CHECK(rig.OwnsNothing());
}

TEST_CASE("a writer without a link gets no ticket", "[decode_worker]") {
  Rig rig;
  const StreamId stale = rig.Reserve(1, Prompt(40), WorkerRef{"prefill-0", Incarnation(8)});
  CHECK(rig.heard.Code(stale) == absl::StatusCode::kUnavailable);
  const StreamId wrong_name = rig.Reserve(2, Prompt(40), WorkerRef{"other", kWriter.incarnation});
  CHECK(rig.heard.Code(wrong_name) == absl::StatusCode::kUnavailable);
  CHECK(rig.transport.grants.empty());
  CHECK(rig.OwnsNothing());
  const StreamId here = rig.Reserve(3, Prompt(40), WorkerRef{"prefill-0", Incarnation(8)}, 512);
  CHECK(rig.heard.All<Reserved>(here).size() == 1);  // it needs no link
}

TEST_CASE("a writer that dies just after its Commit takes nothing back", "[decode_worker]") {
  Rig rig;
  const StreamId stream = BringTo(rig, At::kLanding);
  rig.transport.Commit(rig.transport.CommitFor(rig.TicketOf(stream), 2, rig.layout.block_bytes()));
  rig.transport.Say(kv::PeerDown{kWriter, absl::UnavailableError("x"), true});
  rig.Tick();
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(stream) != nullptr);
}

TEST_CASE("a Commit that does not match its ticket starts nothing (K3, K4)", "[decode_worker]") {
  const std::vector<std::function<void(kv::Commit&)>> changes = {
      [](kv::Commit& c) { c.attempt.attempt = 2; },
      [](kv::Commit& c) { c.writer = Incarnation(9); },
      [](kv::Commit& c) { c.blocks -= 1; },
      [](kv::Commit& c) { c.layers = 1; },
      [](kv::Commit& c) { c.bytes += 1; },
      [](kv::Commit& c) { c.first_index = 1; },
      [](kv::Commit& c) { c.first_tokens.clear(); },
      [](kv::Commit& c) { c.first_tokens.push_back({3}); },
      [](kv::Commit& c) { c.first_tokens[0].id = 100000; },
      [](kv::Commit& c) { c.first_tokens[0].id = -1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    INFO("change " << i);
    Rig rig;
    const StreamId stream = BringTo(rig, At::kLanding);
    kv::Commit commit = rig.transport.CommitFor(rig.TicketOf(stream), 2, rig.layout.block_bytes());
    changes[i](commit);
    rig.transport.Commit(commit);
    rig.Tick();
    CHECK(rig.heard.Code(stream) == absl::StatusCode::kUnavailable);
    CHECK(rig.Failures(Failure::kBadCommit) == 1);
    CHECK(!rig.engine.running.has_value());
    CHECK(rig.OwnsNothing());  // the grant is closed: nothing more lands
  }
}

TEST_CASE("messages that name nothing alive are dropped and counted (K4)", "[decode_worker]") {
  Rig rig;
  const StreamId stream = BringTo(rig, At::kLanding);
  const kv::Commit commit =
      rig.transport.CommitFor(rig.TicketOf(stream), 2, rig.layout.block_bytes());
  rig.Close(stream);
  rig.transport.Say(kv::CommitArrived{commit});  // late
  rig.transport.Say(kv::Quiet{Generation(77)});
  rig.Tick();
  CHECK(rig.Stales(Stale::kCommit) == 1);
  CHECK(rig.Stales(Stale::kQuiet) == 1);
  CHECK(rig.blocks().quarantined == 7);
  rig.transport.QuietAll();
  rig.Tick();
  rig.transport.Say(kv::CommitArrived{commit});  // again, after Quiet
  kv::Commit foreign = commit;
  foreign.key = {Incarnation(1), Generation(1)};
  rig.transport.Say(kv::CommitArrived{foreign});
  rig.Tick();
  CHECK(rig.Stales(Stale::kCommit) == 3);
  CHECK(rig.OwnsNothing());
}

TEST_CASE("what was computed is shared, the rest of a cancelled prompt is not", "[decode_worker]") {
  Rig rig({.batch_tokens = 16});
  const StreamId first = rig.RunHere(1, Prompt(70));
  rig.Step();
  rig.Close(first);
  rig.RunAll();
  const StreamId second = rig.RunHere(2, Prompt(70));
  CHECK(rig.heard.All<Reserved>(second).at(0).cached_tokens == 16);
}

TEST_CASE("KV of another numeric class is used but never shared (K6)", "[decode_worker]") {
  Rig rig;
  const WorkerRef other{"prefill-1", Incarnation(11)};
  rig.transport.Say(kv::PeerUp{other, {.transport = "fake", .mixed_numerics = true}});
  const StreamId stream = rig.Reserve(1, Prompt(100), other);
  rig.Commit(rig.TicketOf(stream));
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(stream) != nullptr);
  CHECK(rig.blocks().free == rig.layout.blocks);
}

TEST_CASE("a decode that was declared dead tells everyone and wants to exit (rule 7)",
          "[decode_worker]") {
  Rig rig;
  const StreamId landing = BringTo(rig, At::kLanding);
  const StreamId running = rig.RunHere(2, Prompt(20));
  CHECK(rig.worker.fatal().ok());
  rig.transport.Say(kv::MustExit{absl::UnavailableError("prefill-0 declared us dead")});
  rig.Tick();
  CHECK(rig.heard.Code(landing) == absl::StatusCode::kUnavailable);
  CHECK(rig.heard.Code(running) == absl::StatusCode::kUnavailable);
  CHECK(!rig.worker.fatal().ok());
  CHECK(rig.heard.Code(rig.RunHere(3, Prompt(20))) == absl::StatusCode::kUnavailable);
}

TEST_CASE("a second stream for a living attempt is refused", "[decode_worker]") {
  Rig rig;
  const StreamId first = rig.Reserve(1, Prompt(40));
  rig.worker.Receive(StreamOpened{StreamId(2), Reserve{fakes::Attempt(1), kSelf.incarnation,
                                                       Prompt(40), absl::Seconds(9), kWriter, 0}});
  rig.Tick();
  CHECK(rig.heard.Code(StreamId(2)) == absl::StatusCode::kInternal);
  rig.Commit(rig.TicketOf(first));
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(first) != nullptr);
}

TEST_CASE("a message of the wrong role or a bad sequence is the sender's fault",
          "[decode_worker]") {
  Rig rig;
  rig.worker.Receive(StreamOpened{StreamId(1), Prefill{}});
  rig.Tick();
  CHECK(rig.heard.Code(StreamId(1)) == absl::StatusCode::kInvalidArgument);
  Sequence bad = Prompt(40);
  bad.prompt[3] = -4;
  CHECK(rig.heard.Code(rig.Reserve(2, bad)) == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("a failed model step ends its sequences with the engine's reason", "[decode_worker]") {
  Rig rig;
  const StreamId a = rig.RunHere(1, Prompt(40));
  rig.engine.Finish(0, absl::InternalError("device lost"));
  rig.Tick();
  CHECK(rig.heard.Code(a) == absl::StatusCode::kInternal);
  CHECK(rig.OwnsNothing());
}

TEST_CASE("a full mailbox refuses streams but never loses a closing", "[decode_worker]") {
  Rig rig({.inputs_max = 1});
  const StreamId first = rig.Reserve(1, Prompt(40));
  rig.Alive();
  rig.worker.Receive(StreamOpened{StreamId(2), Reserve{fakes::Attempt(2), kSelf.incarnation,
                                                       Prompt(20), absl::Seconds(9), kWriter, 0}});
  rig.worker.Receive(StreamClosed{first});
  rig.Tick();
  CHECK(rig.heard.Code(StreamId(2)) == absl::StatusCode::kResourceExhausted);
  CHECK(rig.blocks().quarantined == 3);
}

TEST_CASE("draining hands back who waits, finishes who runs, refuses who comes",
          "[decode_worker]") {
  Rig rig;
  const StreamId waiting = BringTo(rig, At::kWaiting);
  rig.worker.Receive(StartDrain{});
  rig.Tick();
  CHECK(rig.heard.Code(waiting) == absl::StatusCode::kUnavailable);
  CHECK(rig.heard.Last<Ended>(waiting)->preempted);
  CHECK(rig.heard.Code(rig.RunHere(3, Prompt(20))) == absl::StatusCode::kUnavailable);
  CHECK(!rig.worker.drained());
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(StreamId(50)) != nullptr);
  CHECK(rig.worker.drained());
}

}  // namespace
}  // namespace baton::decode
