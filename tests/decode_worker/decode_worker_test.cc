// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// An answer's way through the decode worker: both paths, the batch, the cache, the limits.
#include <catch2/catch.hpp>

#include "tests/decode_worker/rig.h"

namespace baton::decode {
namespace {

using fakes::Prompt;

std::vector<uint32_t> Indices(const Rig& rig, StreamId stream) {
  std::vector<uint32_t> indices;
  for (const Token& token : rig.heard.All<Token>(stream)) indices.push_back(token.index);
  return indices;
}

TEST_CASE("a pushed prompt: ticket, Commit, first token, then one token a step",
          "[decode_worker]") {
  Rig rig;
  const StreamId stream = rig.Reserve(1, Prompt(40));
  const Reserved reserved = rig.heard.All<Reserved>(stream).at(0);
  CHECK(reserved.uncached_tokens == 40);
  CHECK(reserved.first_pushed_position == 0);
  const Generation generation = rig.TicketOf(stream);
  const kv::Ticket ticket = rig.transport.grants.at(generation);
  CHECK(ticket.writer == kWriter.incarnation);
  CHECK(ticket.blocks.size() == 3);
  CHECK(ticket.tokens == 40);
  CHECK(rig.blocks().reserved == 3);
  CHECK(!rig.engine.running.has_value());

  kv::Commit commit = rig.transport.CommitFor(generation, 2, rig.layout.block_bytes());
  commit.exposed = absl::Milliseconds(3);
  rig.transport.Commit(commit);
  rig.Tick();
  const PromptStats stats = rig.heard.All<PromptStats>(stream).at(0);
  CHECK(stats.pushed);
  CHECK(stats.kv_bytes == 3 * 2 * rig.layout.block_bytes());
  CHECK(stats.kv_blocks == 3);
  CHECK(stats.transport == "fake");
  CHECK(stats.exposed == absl::Milliseconds(3));
  CHECK(rig.blocks().used == 3);
  CHECK(rig.worker.metrics().received.at({"prefill-0", "fake"}).bytes == stats.kv_bytes);

  REQUIRE(rig.engine.running.has_value());
  CHECK(rig.engine.running->slices[0].tokens == std::vector<TokenId>{7});
  CHECK(rig.engine.running->slices[0].position == 40);
  CHECK(rig.engine.running->slices[0].sample->output_index == 1);
  rig.RunAll();
  CHECK(Indices(rig, stream) == std::vector<uint32_t>{0, 1, 2, 3});
  CHECK(rig.heard.Last<Finished>(stream)->reason == Finished::Reason::kLength);
  CHECK(rig.OwnsNothing());
  CHECK(rig.worker.metrics().generation_tokens == 4);
}

TEST_CASE("a short prompt runs here, in chunks inside the batch", "[decode_worker]") {
  Rig rig({.batch_tokens = 32});
  const StreamId stream = rig.Reserve(1, Prompt(40), kWriter, 512);
  const Reserved reserved = rig.heard.All<Reserved>(stream).at(0);
  CHECK(reserved.ticket.empty());
  CHECK(rig.transport.grants.empty());
  REQUIRE(rig.engine.running.has_value());
  CHECK(rig.engine.running->slices[0].tokens.size() == 32);
  CHECK(!rig.engine.running->slices[0].sample.has_value());
  rig.now += absl::Milliseconds(5);
  rig.Step();
  CHECK(rig.engine.running->slices[0].tokens.size() == 8);
  CHECK(rig.engine.running->slices[0].sample.has_value());
  rig.now += absl::Milliseconds(2);
  rig.Step();
  const PromptStats stats = rig.heard.All<PromptStats>(stream).at(0);
  CHECK(!stats.pushed);
  CHECK(stats.computed_tokens == 40);
  CHECK(stats.compute == absl::Milliseconds(7));
  rig.RunAll();
  CHECK(Indices(rig, stream) == std::vector<uint32_t>{0, 1, 2, 3});
  CHECK(rig.OwnsNothing());
}

TEST_CASE("a running answer and a new prompt share a step", "[decode_worker]") {
  Rig rig;
  rig.RunHere(1, Prompt(20));
  rig.Step();
  rig.RunHere(2, Prompt(30, 100));
  rig.Step();
  REQUIRE(rig.engine.running->slices.size() == 2);
  CHECK(rig.engine.running->slices[0].tokens.size() == 1);
  CHECK(rig.engine.running->slices[1].tokens.size() == 16);  // the pace is not known
  rig.RunAll();
  CHECK(rig.OwnsNothing());
}

TEST_CASE("beside a running answer, a prompt gets what the measured pace allows",
          "[decode_worker]") {
  Rig rig({.step_percent = 200});
  Sequence running = Prompt(20);
  running.remaining_tokens = 10;
  rig.RunHere(1, running);
  auto step = [&rig](absl::Duration took) {
    rig.now += took;
    rig.Step();
    REQUIRE(rig.engine.running.has_value());
  };
  step(absl::Milliseconds(40));  // 20 tokens alone: 2 ms each
  step(absl::Milliseconds(10));  // the usual step
  rig.RunHere(2, Prompt(30, 100));
  step(absl::Milliseconds(10));
  REQUIRE(rig.engine.running->slices.size() == 2);
  CHECK(rig.engine.running->slices[0].tokens.size() == 1);
  CHECK(rig.engine.running->slices[1].tokens.size() == 5);  // 10 ms more
  step(absl::Milliseconds(15));                             // they took only half of it
  REQUIRE(rig.engine.running->slices.size() == 2);
  CHECK(rig.engine.running->slices[1].tokens.size() > 5);
  rig.RunAll();
  CHECK(rig.OwnsNothing());
}

TEST_CASE("a resumed answer continues its indices and its remaining tokens", "[decode_worker]") {
  Rig rig;
  Sequence sequence = Prompt(20);
  sequence.outputs = {5, 6, 8};
  sequence.remaining_tokens = 2;
  const StreamId stream = rig.Reserve(1, sequence);
  rig.Commit(rig.TicketOf(stream), 3);
  rig.RunAll();
  CHECK(Indices(rig, stream) == std::vector<uint32_t>{3, 4});
  const StreamId here = rig.RunHere(2, sequence);
  rig.RunAll();
  CHECK(Indices(rig, here) == std::vector<uint32_t>{3, 4});
}

TEST_CASE("a stop id ends the answer and is reported; it is banned until min_tokens",
          "[decode_worker]") {
  Rig rig;
  Sequence sequence = Prompt(20);
  sequence.remaining_tokens = 50;
  sequence.stop_ids = {13};
  sequence.min_tokens = 1;
  const StreamId stream = rig.RunHere(1, sequence);
  CHECK(rig.engine.running->slices[0].sample->banned == std::vector<TokenId>{13});
  rig.Step(7);
  CHECK(rig.engine.running->slices[0].sample->banned.empty());
  rig.Step(13);
  CHECK(Indices(rig, stream) == std::vector<uint32_t>{0, 1});
  CHECK(rig.heard.Last<Finished>(stream)->reason == Finished::Reason::kStop);
}

TEST_CASE("the first token of a Commit may already be the last", "[decode_worker]") {
  Rig rig;
  Sequence sequence = Prompt(20);
  sequence.stop_ids = {13};
  const StreamId stopped = rig.Reserve(1, sequence);
  rig.Commit(rig.TicketOf(stopped), 0, 13);
  CHECK(rig.heard.Last<Finished>(stopped)->reason == Finished::Reason::kStop);
  sequence.remaining_tokens = 1;
  const StreamId single = rig.Reserve(2, sequence);
  rig.Commit(rig.TicketOf(single));
  CHECK(rig.heard.Last<Finished>(single)->reason == Finished::Reason::kLength);
  CHECK(rig.OwnsNothing());
  CHECK(rig.engine.steps == 0);
}

TEST_CASE("an answer ends with the context", "[decode_worker]") {
  Rig rig({.context_max = 24});
  Sequence sequence = Prompt(20);
  sequence.remaining_tokens = 100;
  const StreamId stream = rig.RunHere(1, sequence);
  rig.RunAll();
  CHECK(Indices(rig, stream).size() == 4);
  CHECK(rig.heard.Last<Finished>(stream)->reason == Finished::Reason::kLength);
}

TEST_CASE("blocks that decode has already are pinned and not in the ticket", "[decode_worker]") {
  Rig rig;
  rig.RunHere(1, Prompt(40));
  rig.RunAll();
  CHECK(rig.blocks().cached == 2);
  const StreamId stream = rig.Reserve(2, Prompt(60));
  const Reserved reserved = rig.heard.All<Reserved>(stream).at(0);
  CHECK(reserved.cached_tokens == 32);
  CHECK(reserved.uncached_tokens == 28);
  CHECK(reserved.first_pushed_position == 32);
  const kv::Ticket ticket = rig.transport.grants.at(rig.TicketOf(stream));
  CHECK(ticket.first_position == 32);
  CHECK(ticket.blocks.size() == 2);
  CHECK(rig.blocks().used == 2);
  CHECK(rig.blocks().reserved == 2);
  rig.Commit(ticket.key.generation);
  REQUIRE(rig.engine.running.has_value());
  CHECK(rig.engine.running->slices[0].block_table.size() == 4);
  // Landed blocks are shared, too.
  const StreamId third = rig.Reserve(3, Prompt(60));
  CHECK(rig.heard.All<Reserved>(third).at(0).cached_tokens == 48);
}

TEST_CASE("what the cache leaves decides who runs the prompt", "[decode_worker]") {
  Rig rig;
  const StreamId cold = rig.Reserve(1, Prompt(100), kWriter, 50);
  CHECK(!rig.heard.All<Reserved>(cold).at(0).ticket.empty());
  rig.Commit(rig.TicketOf(cold));
  rig.RunAll();
  const StreamId warm = rig.Reserve(2, Prompt(100), kWriter, 50);
  CHECK(rig.heard.All<Reserved>(warm).at(0).ticket.empty());
  CHECK(rig.heard.All<Reserved>(warm).at(0).uncached_tokens == 4);
}

TEST_CASE("a prompt too large for any ticket runs here", "[decode_worker]") {
  Rig rig;  // a writer's cap is 8 of 32 blocks
  const StreamId stream = rig.Reserve(1, Prompt(8 * 16 + 1));
  CHECK(rig.heard.All<Reserved>(stream).at(0).ticket.empty());
}

TEST_CASE("a reservation waits for blocks and is answered when there are some", "[decode_worker]") {
  Rig rig;
  const StreamId first = rig.RunHere(1, Prompt(480));  // 30 of 32 blocks
  const StreamId second = rig.Reserve(2, Prompt(100, 500));
  CHECK(rig.heard.said.count(second) == 0);
  CHECK(rig.worker.metrics().waiting == 1);
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(first) != nullptr);
  CHECK(rig.heard.All<Reserved>(second).size() == 1);
}

TEST_CASE("one writer's full share does not stop the others", "[decode_worker]") {
  Rig rig({.writer_blocks_max = 4});
  const WorkerRef other{"prefill-1", Incarnation(11)};
  rig.transport.Say(kv::PeerUp{other, {.transport = "fake"}});
  rig.Reserve(1, Prompt(60));
  const StreamId blocked = rig.Reserve(2, Prompt(60));
  const StreamId passes = rig.Reserve(3, Prompt(60), other);
  CHECK(rig.heard.said.count(blocked) == 0);
  CHECK(rig.heard.All<Reserved>(passes).size() == 1);
  for (int i = 0; i < 5; ++i) {
    rig.Alive();
    rig.Tick(absl::Seconds(1));
  }
  CHECK(rig.heard.Code(blocked) == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("a small prompt does not pass an earlier big one of its writer", "[decode_worker]") {
  Rig rig({.writer_blocks_max = 4});
  const StreamId first = rig.Reserve(1, Prompt(30));
  const StreamId big = rig.Reserve(2, Prompt(60, 500));
  const StreamId small = rig.Reserve(3, Prompt(30, 700));  // there is room for it
  CHECK(rig.heard.said.count(big) + rig.heard.said.count(small) == 0);
  rig.Commit(rig.TicketOf(first));
  CHECK(rig.heard.All<Reserved>(big).size() == 1);
  CHECK(rig.heard.said.count(small) == 0);
}

TEST_CASE("quarantine counts against the writer's share in its next life", "[decode_worker]") {
  Rig rig({.writer_blocks_max = 4});
  const StreamId first = rig.Reserve(1, Prompt(60));
  rig.Close(first);
  CHECK(rig.blocks().quarantined == 4);
  const WorkerRef reborn{"prefill-0", Incarnation(12)};
  rig.transport.Say(kv::PeerUp{reborn, {.transport = "fake"}});
  const StreamId second = rig.Reserve(2, Prompt(60), reborn);
  CHECK(rig.heard.said.count(second) == 0);
  rig.transport.QuietAll();
  rig.Tick();
  CHECK(rig.heard.All<Reserved>(second).size() == 1);
}

TEST_CASE("what can never run is refused as the client's fault; a full queue is not",
          "[decode_worker]") {
  Rig rig({.queue_requests = 1, .queue_tokens = 300});
  CHECK(rig.heard.Code(rig.RunHere(1, Prompt(512))) == absl::StatusCode::kInvalidArgument);
  rig.RunHere(2, Prompt(250));
  rig.RunHere(3, Prompt(290, 300));  // waits
  CHECK(rig.heard.Code(rig.RunHere(4, Prompt(20))) == absl::StatusCode::kResourceExhausted);
  CHECK(rig.worker.metrics().refused == 2);
  Rig tokens({.queue_tokens = 30});
  CHECK(tokens.heard.Code(tokens.RunHere(1, Prompt(31))) == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("no more sequences own blocks than the batch may hold", "[decode_worker]") {
  Rig rig({.sequences_max = 2});
  rig.RunHere(1, Prompt(20));
  rig.Reserve(2, Prompt(20, 50));
  const StreamId third = rig.RunHere(3, Prompt(20, 90));
  CHECK(rig.heard.said.count(third) == 0);
  rig.RunAll();
  CHECK(rig.heard.Last<Finished>(third) != nullptr);
}

TEST_CASE("status says what is waiting and who can be reached", "[decode_worker]") {
  Rig rig({.model_fingerprint = 5});
  rig.Reserve(1, Prompt(40));
  rig.RunHere(2, Prompt(30, 300));
  const WorkerStatus status = rig.worker.Status();
  CHECK(status.role == Role::kDecode);
  CHECK(status.self == kSelf);
  CHECK(status.attempts == 2);
  CHECK(status.waiting_tokens == 29);
  CHECK(status.blocks_total == 32);
  CHECK(status.blocks_available == 32 - 3 - 2);
  CHECK(status.context_max == 512);
  CHECK(status.links.at(0).peer == kWriter);
}

}  // namespace
}  // namespace baton::decode
