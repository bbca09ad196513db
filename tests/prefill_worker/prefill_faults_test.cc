// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What may happen to a prefill attempt in each of its states: it ends once, says why, and its
// blocks outlive the engine's step and every posted write (K2, K9).
#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "tests/prefill_worker/rig.h"

namespace baton::prefill {
namespace {

using fakes::Prompt;

enum class At { kQueued, kComputing, kWriting, kPushing };

// Brings stream 1 into the state; a second prompt keeps the engine busy for kQueued.
StreamId BringTo(Rig& rig, At at) {
  if (at == At::kQueued) {
    rig.Open(50, Prompt(200, 400));
    return rig.Open(1, Prompt(40));
  }
  const StreamId stream = rig.Open(1, Prompt(40));
  if (at == At::kWriting) {
    rig.engine.LayerDone(0);
    rig.Tick();
    REQUIRE(rig.transport.writes.size() == 1);
  } else if (at == At::kPushing) {
    rig.engine.Complete();
    rig.Tick();
    REQUIRE(rig.worker.metrics().pushing == 1);
  }
  return stream;
}

struct Fault {
  std::string name;
  std::function<void(Rig&, StreamId)> happen;
  absl::StatusCode code = absl::StatusCode::kOk;  // kOk: the stream is gone, nothing is said
  Failure counted = Failure::kCancelled;
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
      {"push ended",
       [](Rig& rig, StreamId) {
         rig.transport.Say(
             kv::PushEnded{{kOwner.incarnation, Generation(1)}, absl::CancelledError("revoked")});
         rig.Tick();
       },
       absl::StatusCode::kUnavailable, Failure::kRefused},
      {"rebirth",
       [](Rig& rig, StreamId) {
         rig.transport.Say(kv::Reborn{Incarnation(11)});
         rig.Tick();
       },
       absl::StatusCode::kUnavailable, Failure::kRefused},
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

TEST_CASE("every fault in every state: one ending, the reason, and no block too early",
          "[prefill_worker]") {
  for (const Fault& fault : Faults()) {
    for (const At at : {At::kQueued, At::kComputing, At::kWriting, At::kPushing}) {
      INFO(fault.name << " in state " << static_cast<int>(at));
      Rig rig;
      const StreamId stream = BringTo(rig, at);
      const bool used = at != At::kQueued;
      fault.happen(rig, stream);
      CHECK(rig.heard.Code(stream) == fault.code);
      CHECK(rig.Failures(fault.counted) >= 1);
      if (fault.counted == Failure::kDrained) {
        CHECK(rig.heard.Last<Ended>(stream)->preempted);
      }
      if (fault.counted != Failure::kRefused || fault.name == "rebirth") {
        REQUIRE(!rig.transport.abandoned.empty());
        CHECK(std::count(rig.transport.abandoned.begin(), rig.transport.abandoned.end(),
                         kv::GrantKey{kOwner.incarnation, Generation(1)}) == 1);
      } else {
        CHECK(rig.transport.abandoned.empty());  // the transport ended it itself
      }
      // The engine still reads the blocks, and writes are out of them.
      if (used) CHECK(rig.worker.metrics().blocks.used >= 3);
      if (rig.engine.running.has_value()) rig.engine.Complete();
      rig.Tick();
      if (at == At::kWriting || at == At::kPushing) {
        CHECK(rig.worker.metrics().blocks.used >= 3);
        rig.transport.Done(rig.transport.writes.size(), absl::UnavailableError("gone"));
        rig.Tick();
      }
      rig.RunAll();
      CHECK(rig.Idle());
      for (const kv::Commit& commit : rig.transport.commits) {
        CHECK(commit.attempt != fakes::Attempt(1));
      }
    }
  }
}

TEST_CASE("a failed write ends the attempt; its blocks wait for the other writes",
          "[prefill_worker]") {
  Rig rig;
  const StreamId stream = BringTo(rig, At::kPushing);
  rig.transport.Done(1, absl::UnavailableError("reset"));
  rig.Tick();
  CHECK(rig.heard.Code(stream) == absl::StatusCode::kUnavailable);
  CHECK(rig.Failures(Failure::kWrite) == 1);
  CHECK(rig.worker.metrics().blocks.used == 3);
  rig.transport.Done(1);
  rig.Tick();
  CHECK(rig.Idle());
  CHECK(rig.transport.commits.empty());
}

TEST_CASE("a failed model step ends its prompts with the engine's reason", "[prefill_worker]") {
  Rig rig;
  const StreamId stream = BringTo(rig, At::kComputing);
  rig.engine.Finish(0, absl::InternalError("device lost"));
  rig.Tick();
  CHECK(rig.heard.Code(stream) == absl::StatusCode::kInternal);
  CHECK(rig.Failures(Failure::kEngine) == 1);
  CHECK(rig.Idle());
}

TEST_CASE("a cancel after the Commit finds nothing left to end", "[prefill_worker]") {
  Rig rig;
  const StreamId stream = BringTo(rig, At::kPushing);
  rig.RunAll();
  REQUIRE(rig.transport.commits.size() == 1);
  rig.Close(stream);
  CHECK(rig.heard.All<Finished>(stream).size() == 1);
  CHECK(rig.transport.abandoned.empty());
  rig.transport.Say(
      kv::PushEnded{{kOwner.incarnation, Generation(1)}, absl::UnavailableError("link")});
  rig.Tick();
  CHECK(rig.worker.metrics().stale[static_cast<size_t>(Stale::kPush)] == 1);
}

TEST_CASE("foreign or wrong tickets are refused before anything is accepted", "[prefill_worker]") {
  Rig rig;
  const Sequence sequence = Prompt(40);
  uint64_t n = 0;
  const auto refused = [&](const std::function<void(kv::Ticket&)>& change) {
    ++n;
    kv::Ticket ticket = Rig::TicketFor(sequence, fakes::Attempt(n), n);
    change(ticket);
    return rig.heard.Code(rig.OpenWith(n, sequence, kv::Encode(ticket)));
  };
  using Code = absl::StatusCode;
  CHECK(refused([](kv::Ticket& t) { t.attempt.attempt = 9; }) == Code::kInternal);
  CHECK(refused([](kv::Ticket& t) { t.tokens = 39; }) == Code::kInternal);
  CHECK(refused([](kv::Ticket& t) {
          t.tokens = 32;
          t.blocks.pop_back();
        }) == Code::kInternal);
  CHECK(refused([](kv::Ticket& t) { t.writer = Incarnation(9); }) == Code::kUnavailable);
  CHECK(rig.heard.Code(rig.OpenWith(++n, sequence, {1, 2, 3})) == Code::kInternal);
  CHECK(rig.heard.Code(rig.OpenWith(++n, sequence, {})) == Code::kInternal);
  CHECK(rig.Failures(Failure::kBadTicket) == n);
  CHECK(rig.transport.accepted.empty());
}

TEST_CASE("a chunk that was computed is shared, the rest of a cancelled prompt is not",
          "[prefill_worker]") {
  Rig rig({.chunk_tokens = 16});
  const StreamId first = rig.Open(1, Prompt(70));
  rig.engine.Complete();
  rig.Tick();
  rig.Close(first);
  rig.RunAll();
  rig.Open(2, Prompt(70));
  REQUIRE(rig.engine.running.has_value());
  CHECK(rig.engine.running->slices[0].position == 16);
}

TEST_CASE("a ticket is accepted once: its second Prefill does not touch the first",
          "[prefill_worker]") {
  Rig rig;
  const Sequence sequence = Prompt(40);
  const StreamId first = rig.Open(1, sequence);
  kv::Ticket ticket = Rig::TicketFor(sequence, fakes::Attempt(2), 1);
  CHECK(rig.heard.Code(rig.OpenWith(2, sequence, kv::Encode(ticket))) ==
        absl::StatusCode::kUnavailable);
  CHECK(rig.transport.accepted.size() == 1);
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(first) != nullptr);
}

TEST_CASE("a message of the wrong role or a bad sequence is the sender's fault",
          "[prefill_worker]") {
  Rig rig;
  rig.worker.Receive(StreamOpened{StreamId(1), Reserve{}});
  rig.Tick();
  CHECK(rig.heard.Code(StreamId(1)) == absl::StatusCode::kInvalidArgument);
  Sequence bad = Prompt(40);
  bad.prompt[3] = 5000;
  CHECK(rig.heard.Code(rig.Open(2, bad)) == absl::StatusCode::kInvalidArgument);
  rig.worker.Receive(StreamMessage{StreamId(9), Revoke{}});
  rig.Tick();
  CHECK(rig.worker.metrics().stale[static_cast<size_t>(Stale::kStream)] == 1);
}

TEST_CASE("draining finishes what runs and takes nothing new", "[prefill_worker]") {
  Rig rig;
  const StreamId running = rig.Open(1, Prompt(40));
  rig.worker.Receive(StartDrain{});
  rig.Tick();
  CHECK(rig.heard.Code(rig.Open(2, Prompt(40))) == absl::StatusCode::kUnavailable);
  CHECK(!rig.worker.drained());
  CHECK(rig.worker.Status().draining);
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(running) != nullptr);
  CHECK(rig.worker.drained());
}

TEST_CASE("another front end's silence ends only its own attempts", "[prefill_worker]") {
  Rig rig;
  const StreamId mine = rig.Open(1, Prompt(40));
  const Sequence sequence = Prompt(30);
  const AttemptId theirs = fakes::Attempt(7, 1, 55);
  rig.worker.Receive(
      StreamOpened{StreamId(2), Prefill{theirs, sequence, absl::Seconds(60),
                                        kv::Encode(Rig::TicketFor(sequence, theirs, 2))}});
  rig.Tick(absl::Seconds(1));
  rig.Alive();
  rig.Tick(absl::Milliseconds(1500));
  rig.Tick(absl::Milliseconds(500));
  CHECK(rig.heard.Code(StreamId(2)) == absl::StatusCode::kUnavailable);
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(mine) != nullptr);
}

}  // namespace
}  // namespace baton::prefill
