// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A prompt's way through the prefill worker: chunks, pushes, Commit, prefix cache, limits.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/prefill_worker/rig.h"

namespace baton::prefill {
namespace {

using fakes::Prompt;

TEST_CASE("a prompt is pushed layer by layer and committed with its first token",
          "[prefill_worker]") {
  Rig rig;
  Sequence sequence = Prompt(40);
  sequence.outputs = {5, 6};  // a resume: the next index is 2
  const StreamId stream = rig.Open(1, sequence);
  REQUIRE(rig.transport.accepted.size() == 1);
  REQUIRE(rig.engine.running.has_value());
  CHECK(rig.engine.running->slices[0].tokens.size() == 42);
  REQUIRE(rig.engine.running->slices[0].sample.has_value());
  CHECK(rig.engine.running->slices[0].sample->output_index == 2);
  CHECK(rig.transport.writes.empty());

  rig.engine.LayerDone(0);
  rig.Tick(absl::Milliseconds(10));
  REQUIRE(rig.transport.writes.size() == 1);
  CHECK(rig.transport.writes[0].layer == 0);
  CHECK(rig.transport.writes[0].pieces.size() == 3);
  CHECK(rig.transport.writes[0].pieces[2].target_index == 2);

  rig.engine.LayerDone(1);
  rig.Tick(absl::Milliseconds(10));
  rig.engine.Finish(77);
  rig.Tick(absl::Milliseconds(1));
  CHECK(rig.transport.commits.empty());  // two writes are out (K3)
  rig.transport.Done(1);
  rig.Tick(absl::Milliseconds(3));
  CHECK(rig.transport.commits.empty());
  rig.transport.Done(1);
  rig.Tick(absl::Milliseconds(4));

  REQUIRE(rig.transport.commits.size() == 1);
  const kv::Commit& commit = rig.transport.commits[0];
  CHECK(commit.attempt == fakes::Attempt(1));
  CHECK(commit.writer == kSelf.incarnation);
  CHECK(commit.blocks == 3);
  CHECK(commit.layers == 2);
  CHECK(commit.bytes == 3 * 2 * kLayout.block_bytes());
  CHECK(commit.first_index == 2);
  CHECK(commit.first_tokens == std::vector<OutputToken>{{77}});
  CHECK(commit.computed_tokens == 42);
  CHECK(commit.compute == absl::Milliseconds(20));
  CHECK(commit.transfer == absl::Milliseconds(18));  // first post → last done
  CHECK(commit.exposed == absl::Milliseconds(8));    // last layer → last done
  const auto done = rig.heard.All<PrefillDone>(stream);
  REQUIRE(done.size() == 1);
  CHECK(done[0].stats.transport == "fake");
  CHECK(done[0].stats.kv_blocks == 3);
  CHECK(rig.heard.Last<Finished>(stream) != nullptr);
  CHECK(rig.Idle());
  const Pushed pushed = rig.worker.metrics().pushed.at({"decode-0", "fake"});
  CHECK(pushed.bytes == commit.bytes);
  CHECK(pushed.blocks == 6);  // (layer, block) pieces
  CHECK(pushed.pushes == 1);
}

TEST_CASE("a push says how long it should have taken by what was known of its link",
          "[prefill_worker]") {
  Rig rig;
  kv::LinkInfo link{.transport = "fake", .data_path = 'A'};
  link.cost = {.latency = absl::Milliseconds(7),
               .per_operation = absl::Microseconds(10),
               .bandwidth = 1e6,
               .sums_bandwidth = 2e6};
  link.in_flight_bytes = 99;
  rig.transport.Say(kv::PeerMeasured{kOwner, link});
  rig.Open(1, Prompt(70));
  const WorkerStatus before = rig.worker.Status();
  REQUIRE(before.links.size() == 1);
  CHECK(before.links[0].cost == link.cost);
  CHECK(before.links[0].in_flight_bytes == 99);
  CHECK(before.prompt_tokens_per_second == 0);
  CHECK(before.kv_layers == 2);
  CHECK(before.kv_block_bytes == 2 * kLayout.block_bytes());
  const bool pause = GENERATE(false, true);
  const bool summed = GENERATE(false, true);
  rig.engine.LayerDone(0);
  rig.Tick(absl::Milliseconds(35));
  constexpr int64_t kRuns = 5;  // of a layer, as the transport says
  const auto done = [&] {
    const fakes::ScriptedWriter::Posted& write = rig.transport.writes.at(0);
    const uint64_t bytes = write.pieces.size() * rig.transport.block_bytes;
    rig.transport.Say(kv::WriteDone{write.id,
                                    absl::OkStatus(),
                                    {.bytes = bytes,
                                     .operations = kRuns,
                                     .summed_bytes = summed ? bytes : 0}});
    rig.transport.writes.erase(rig.transport.writes.begin());
    rig.Tick();
  };
  if (pause) done();
  rig.engine.LayerDone(1);
  rig.Tick(absl::Milliseconds(35));
  if (!pause) done();
  link.cost.bandwidth = 5;  // what is learnt meanwhile was not known before
  rig.transport.Say(kv::PeerMeasured{kOwner, link});
  rig.engine.Finish(77);
  rig.Tick();
  done();
  REQUIRE(rig.transport.commits.size() == 1);
  const kv::Commit& commit = rig.transport.commits[0];
  const absl::Duration expected =
      absl::Milliseconds(7) * (pause ? 2 : 1) + absl::Microseconds(10) * 2 * kRuns +
      absl::Microseconds(static_cast<double>(commit.bytes) * (summed ? 1.5 : 1));
  CHECK(absl::AbsDuration(commit.predicted - expected) < absl::Nanoseconds(2));
  CHECK(rig.worker.Status().prompt_tokens_per_second == Approx(1000));
}

TEST_CASE("the push log shows layer 0 posted before layer 1 is computed", "[prefill_worker]") {
  Rig rig;
  rig.Open(1, Prompt(40));
  rig.engine.LayerDone(0);
  rig.Tick(absl::Milliseconds(1));
  rig.engine.LayerDone(1);
  rig.Tick(absl::Milliseconds(1));
  const std::vector<PushEvent> log = rig.worker.TakePushEvents();
  const auto find = [&](PushEvent::Kind kind, uint32_t layer) {
    return std::find_if(log.begin(), log.end(), [&](const PushEvent& event) {
      return event.kind == kind && event.layer == layer;
    });
  };
  const auto posted = find(PushEvent::Kind::kPosted, 0);
  const auto computed = find(PushEvent::Kind::kComputed, 1);
  REQUIRE(posted != log.end());
  REQUIRE(computed != log.end());
  CHECK(posted < computed);
  CHECK(posted->at < computed->at);
  CHECK(rig.worker.TakePushEvents().empty());
}

TEST_CASE("without pipelining nothing leaves before the prompt is computed", "[prefill_worker]") {
  Rig rig({.pipelining = false});
  rig.Open(1, Prompt(40));
  rig.engine.LayerDone(0);
  rig.engine.LayerDone(1);
  rig.Tick(absl::Milliseconds(10));
  CHECK(rig.transport.writes.empty());
  rig.engine.Finish();
  rig.Tick();
  CHECK(rig.transport.writes.size() == 2);
  rig.transport.Done(2);
  rig.Tick(absl::Milliseconds(7));
  REQUIRE(rig.transport.commits.size() == 1);
  CHECK(rig.transport.commits[0].exposed == absl::Milliseconds(7));
  CHECK(rig.transport.commits[0].transfer == absl::Milliseconds(7));
}

TEST_CASE("each chunk pushes the blocks that it completed, from the ticket's first on",
          "[prefill_worker]") {
  Rig rig({.chunk_tokens = 32});
  rig.Open(1, Prompt(70), 48);  // decode has 3 blocks; 2 are pushed
  rig.engine.Complete();        // positions [0, 32)
  rig.Tick();
  CHECK(rig.transport.writes.empty());
  rig.engine.Complete();  // [32, 64): block 3 of the sequence is the ticket's first
  rig.Tick();
  REQUIRE(rig.transport.writes.size() == 2);
  CHECK(rig.transport.writes[0].pieces.size() == 1);
  CHECK(rig.transport.writes[0].pieces[0].target_index == 0);
  rig.engine.Complete();  // [64, 70)
  rig.Tick();
  REQUIRE(rig.transport.writes.size() == 4);
  CHECK(rig.transport.writes[2].pieces[0].target_index == 1);
  rig.RunAll();
  REQUIRE(rig.transport.commits.size() == 1);
  CHECK(rig.transport.commits[0].blocks == 2);
}

TEST_CASE("blocks from the own prefix cache are pushed at once, and not computed",
          "[prefill_worker]") {
  Rig rig;
  rig.Open(1, Prompt(40));
  rig.RunAll();
  CHECK(rig.worker.metrics().blocks.cached == 2);
  rig.Open(2, Prompt(60), 16);                // the third block is new, the first one decode has
  REQUIRE(rig.transport.writes.size() == 2);  // layers 0 and 1 of block 1
  CHECK(rig.transport.writes[0].layer == 0);
  CHECK(rig.transport.writes[1].layer == 1);
  CHECK(rig.transport.writes[0].pieces.size() == 1);
  CHECK(rig.transport.writes[0].pieces[0].target_index == 0);
  REQUIRE(rig.engine.running.has_value());
  CHECK(rig.engine.running->slices[0].position == 32);
  rig.RunAll();
  const kv::Commit& commit = rig.transport.commits.at(1);
  CHECK(commit.cached_tokens == 32);
  CHECK(commit.computed_tokens == 28);
  CHECK(commit.blocks == 3);
  CHECK(rig.worker.metrics().prompt_tokens_cached == 32);
  CHECK(rig.worker.metrics().prompt_tokens_computed == 68);
}

TEST_CASE("a prompt that is wholly cached still computes its last block", "[prefill_worker]") {
  Rig rig;
  rig.Open(1, Prompt(32));
  rig.RunAll();
  rig.Open(2, Prompt(32));
  REQUIRE(rig.engine.running.has_value());
  CHECK(rig.engine.running->slices[0].position == 16);
}

TEST_CASE("short prompts share a step, equal ones share blocks once computed", "[prefill_worker]") {
  Rig rig({.chunk_tokens = 64});
  rig.Open(1, Prompt(64));
  rig.Open(2, Prompt(64));  // starts only when the first has filled the cache
  rig.Open(3, Prompt(20, 500));
  REQUIRE(rig.engine.running.has_value());
  CHECK(rig.engine.running->slices.size() == 1);
  rig.engine.Complete();
  rig.Tick();
  REQUIRE(rig.engine.running->slices.size() == 2);
  CHECK(rig.engine.running->slices[0].position == 48);
  CHECK(rig.engine.running->slices[1].position == 0);
  rig.RunAll();
  CHECK(rig.transport.commits.size() == 3);
  CHECK(rig.Idle());
}

TEST_CASE("a prompt waits while the pool is full, and starts when blocks are free",
          "[prefill_worker]") {
  Rig rig;
  const StreamId first = rig.Open(1, Prompt(200));        // 13 of 16 blocks
  const StreamId second = rig.Open(2, Prompt(100, 300));  // 7
  rig.engine.Complete();
  rig.Tick();
  CHECK(rig.worker.metrics().waiting == 1);
  CHECK(!rig.engine.running.has_value());
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(first) != nullptr);
  CHECK(rig.heard.Last<Finished>(second) != nullptr);
  CHECK(rig.Idle());
}

TEST_CASE("what does not fit is refused on arrival, with the reason", "[prefill_worker]") {
  Rig rig({.context_max = 300, .queue_requests = 1, .queue_tokens = 1000});
  CHECK(rig.heard.Code(rig.Open(1, Prompt(300))) == absl::StatusCode::kInvalidArgument);
  CHECK(rig.heard.Code(rig.Open(2, Prompt(290))) == absl::StatusCode::kResourceExhausted);
  rig.Open(3, Prompt(200));  // starts: the queue is empty again
  rig.Open(4, Prompt(200));  // waits for the engine
  CHECK(rig.heard.Code(rig.Open(5, Prompt(20))) == absl::StatusCode::kResourceExhausted);
  CHECK(rig.transport.accepted.size() == 2);
  CHECK(rig.worker.metrics().refused == 3);
  Rig tokens({.queue_tokens = 30});
  CHECK(tokens.heard.Code(tokens.Open(1, Prompt(31))) == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("a full mailbox refuses streams but never loses a closing", "[prefill_worker]") {
  Rig rig({.inputs_max = 1});
  const StreamId first = rig.Open(1, Prompt(40));
  rig.Alive();
  const Sequence sequence = Prompt(20);
  rig.worker.Receive(StreamOpened{
      StreamId(2), Prefill{fakes::Attempt(2), sequence, absl::Seconds(9),
                           kv::Encode(Rig::TicketFor(sequence, fakes::Attempt(2), 2))}});
  rig.worker.Receive(StreamClosed{first});
  rig.Tick();
  CHECK(rig.heard.Code(StreamId(2)) == absl::StatusCode::kResourceExhausted);
  rig.RunAll();
  CHECK(rig.Idle());
}

TEST_CASE("a queued or computing prompt shows life; a push that stands still does not",
          "[prefill_worker]") {
  Rig rig;
  const StreamId stream = rig.Open(1, Prompt(40));
  rig.Tick(absl::Milliseconds(999));
  CHECK(rig.heard.All<Progress>(stream).empty());
  CHECK(rig.worker.NextWake() == rig.now + absl::Milliseconds(1));
  rig.Tick(absl::Milliseconds(1));
  CHECK(rig.heard.All<Progress>(stream).size() == 1);
  rig.engine.Complete();
  rig.Alive();
  rig.Tick(absl::Milliseconds(500));
  rig.transport.Done(1);
  rig.Alive();
  rig.Tick(absl::Milliseconds(500));
  CHECK(rig.heard.All<Progress>(stream).size() == 2);  // a write was done since
  rig.Alive();
  rig.Tick(absl::Milliseconds(1000));
  CHECK(rig.heard.All<Progress>(stream).size() == 2);
}

TEST_CASE("a prompt that waits where nothing moves shows no life", "[prefill_worker]") {
  Rig rig({.sequences_max = 1});
  rig.Open(1, Prompt(40));
  const StreamId stream = rig.Open(2, Prompt(40, 500));
  const auto later = [&] {
    rig.Alive();
    rig.Tick(absl::Milliseconds(1000));
    return rig.heard.All<Progress>(stream).size();
  };
  CHECK(later() == 0);  // a step that does not end
  rig.engine.Complete();
  CHECK(later() == 1);
  CHECK(later() == 1);  // writes that do not end
  rig.transport.Done(1);
  CHECK(later() == 2);
  CHECK(later() == 2);
  rig.transport.Done(1);  // the push is over, and it starts
  CHECK(later() == 3);
  CHECK(later() == 3);
}

TEST_CASE("status says what is waiting and who can be reached", "[prefill_worker]") {
  Rig rig({.model_fingerprint = 5});
  rig.Open(1, Prompt(40));
  const WorkerStatus status = rig.worker.Status();
  CHECK(status.self == kSelf);
  CHECK(status.role == Role::kPrefill);
  CHECK(status.ready);
  CHECK(status.attempts == 1);
  CHECK(status.waiting_tokens == 40);
  CHECK(status.blocks_total == 16);
  CHECK(status.context_max == 256);  // the pool's
  CHECK(status.model_fingerprint == 5);
  REQUIRE(status.links.size() == 1);
  CHECK(status.links[0].peer == kOwner);
  rig.transport.Say(kv::PeerDown{kOwner, absl::UnavailableError("gone")});
  rig.Tick();
  CHECK(rig.worker.Status().links.empty());
}

}  // namespace
}  // namespace baton::prefill
