// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Memory pressure: growth before reservations, the oldest progresses, landings are safe, and
// nobody's answer changes by it (K8).
#include <catch2/catch.hpp>
#include <map>

#include "base/random.h"
#include "sim/hash_engine.h"
#include "tests/decode_worker/rig.h"

namespace baton::decode {
namespace {

using fakes::Prompt;

const engine::KvLayout kTight{.layers = 2, .kv_heads = 1, .head_dim = 4, .blocks = 8};

Sequence Long(uint32_t tokens, TokenId first, uint32_t remaining) {
  Sequence sequence = Prompt(tokens, first);
  sequence.remaining_tokens = remaining;
  return sequence;
}

TEST_CASE("the youngest gives way to the oldest and is computed again later", "[decode_worker]") {
  Rig rig({}, kTight);
  const StreamId old_one = rig.RunHere(1, Long(40, 1, 60));  // 3 blocks, later 7
  const StreamId young = rig.RunHere(2, Long(40, 500, 60));  // the same
  rig.RunAll();
  CHECK(rig.worker.metrics().preemptions >= 1);
  CHECK(rig.heard.All<Token>(old_one).size() == 60);
  CHECK(rig.heard.All<Token>(young).size() == 60);
  CHECK(rig.heard.All<Reserved>(young).size() == 1);     // answered once
  CHECK(rig.heard.All<PromptStats>(young).size() == 1);  // and its prompt told once
  CHECK(rig.OwnsNothing());
}

TEST_CASE("a victim that takes long to compute again goes back to the front end",
          "[decode_worker]") {
  Rig rig({.recompute_here_max = 30}, kTight);
  rig.RunHere(1, Long(40, 1, 60));
  const StreamId young = rig.RunHere(2, Long(40, 500, 60));
  rig.RunAll();
  REQUIRE(rig.heard.Last<Ended>(young) != nullptr);
  CHECK(rig.heard.Last<Ended>(young)->preempted);
  CHECK(rig.heard.Code(young) == absl::StatusCode::kUnavailable);
  CHECK(rig.OwnsNothing());
}

TEST_CASE("running sequences grow before a new reservation is made", "[decode_worker]") {
  Rig rig({}, kTight);
  const StreamId running = rig.RunHere(1, Long(94, 1, 20));        // 6 blocks; grows to 8
  const StreamId next = rig.Reserve(2, Prompt(30, 500), kWriter);  // 2 would be free now
  CHECK(rig.heard.said.count(next) == 0);
  rig.RunAll();
  CHECK(rig.heard.All<Token>(running).size() == 20);
  CHECK(rig.worker.metrics().preemptions == 0);
  CHECK(rig.heard.All<Reserved>(next).size() == 1);
}

TEST_CASE("a landing is never a victim: the only runner waits for it", "[decode_worker]") {
  Rig rig({.writer_blocks_max = 4}, kTight);
  const StreamId running = rig.RunHere(1, Long(60, 1, 60));           // 4 blocks
  const StreamId landing = rig.Reserve(2, Prompt(48, 500), kWriter);  // 3, and 1 to grow
  CHECK(rig.blocks().reserved == 3);
  rig.RunAll();
  CHECK(!rig.engine.running.has_value());  // 80 tokens fill 5 blocks; the sixth is missing
  CHECK(rig.blocks().reserved == 3);
  CHECK(rig.heard.Last<Token>(running) != nullptr);
  rig.Commit(rig.TicketOf(landing));  // it runs: now it may be preempted
  rig.RunAll();
  CHECK(rig.heard.All<Token>(running).size() == 60);
  CHECK(rig.heard.All<Token>(landing).size() == 4);
  CHECK(rig.worker.metrics().preemptions >= 1);
  CHECK(rig.OwnsNothing());
}

TEST_CASE("with the rest in quarantine the only runner is handed back, not stuck",
          "[decode_worker]") {
  Rig rig({.writer_blocks_max = 4}, kTight);
  const StreamId running = rig.RunHere(1, Long(60, 1, 60));
  const StreamId landing = rig.Reserve(2, Prompt(48, 500), kWriter);
  rig.Close(landing);
  rig.RunAll();
  REQUIRE(rig.heard.Last<Ended>(running) != nullptr);
  CHECK(rig.heard.Last<Ended>(running)->preempted);
  CHECK(rig.blocks().quarantined == 3);
}

TEST_CASE("preempting drops references only: shared blocks stay with the others",
          "[decode_worker]") {
  Rig rig({}, kTight);
  const StreamId a = rig.RunHere(1, Long(40, 1, 50));
  rig.Step();
  const StreamId b = rig.RunHere(2, Long(40, 1, 50));  // shares 2 blocks
  CHECK(rig.heard.All<Reserved>(b).at(0).cached_tokens == 32);
  rig.RunAll();
  CHECK(rig.heard.All<Token>(a).size() == 50);
  CHECK(rig.heard.All<Token>(b).size() == 50);
  CHECK(rig.worker.metrics().preemptions >= 1);
  CHECK(rig.OwnsNothing());
}

class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch();
};

TEST_CASE("random load on a small pool: every answer is the oracle's", "[decode_worker]") {
  // A block that is freed, shared or computed again at the wrong moment changes a hash.
  const engine::KvLayout layout{.layers = 2, .kv_heads = 1, .head_dim = 4, .blocks = 10};
  const sim::HashEngineOptions hashes{.vocab_size = 40, .context_max = 160};
  uint64_t preemptions = 0, hits = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    Random random(seed);
    ManualClock clock;
    std::vector<uint8_t> memory(layout.pool_bytes(), 0x5a);
    sim::HashEngine engine(hashes, {memory.data(), layout}, clock);
    fakes::ScriptedOwner transport;
    Options options{.batch_tokens = static_cast<uint32_t>(random.Between(1, 80)),
                    .sequences_max = static_cast<uint32_t>(random.Between(1, 8)),
                    .recompute_here_max = 160};
    options.prefix_cache.key = {seed, 2};
    options.prefix_cache.enabled = random.Chance(0.8);
    DecodeWorker worker(options, engine, transport, kSelf, layout);
    fakes::Heard heard;
    std::map<StreamId, Sequence> asked;
    uint64_t next = 1;
    for (int i = 0; i < 3000; ++i) {
      if (next <= 12 && random.Chance(0.2)) {
        Sequence sequence = Prompt(static_cast<uint32_t>(random.Between(1, 60)), 1);
        for (TokenId& id : sequence.prompt) id %= 40;
        if (random.Chance(0.5)) sequence.prompt[sequence.prompt.size() / 2] = 3;
        sequence.remaining_tokens = static_cast<uint32_t>(random.Between(1, 80));
        if (random.Chance(0.3)) sequence.stop_ids = {static_cast<TokenId>(random.Below(40))};
        sequence.min_tokens = static_cast<uint32_t>(random.Below(20));
        sequence.sampling.seed = random.Next();
        const StreamId stream(next);
        asked[stream] = sequence;
        worker.Receive(StreamOpened{
            stream,
            Reserve{fakes::Attempt(next++), kSelf.incarnation, sequence, absl::Hours(1), {}, 0}});
      }
      if (next > 1 && random.Chance(0.003)) {
        const StreamId victim(random.Between(1, next - 1));
        worker.Receive(StreamClosed{victim});
        heard.over[victim] = false;  // what it still says, if anything, is not checked
        asked.erase(victim);
      }
      worker.Receive(FrontendAlive{Incarnation(99)});
      if (engine.NextEvent() != absl::InfiniteFuture()) clock.now = engine.NextEvent();
      worker.Tick(clock.now);
      heard.Take(worker.TakeOutputs());
      REQUIRE(worker.metrics().blocks.total() == layout.blocks);
    }
    for (const auto& [stream, sequence] : asked) {
      INFO("stream " << stream.value());
      REQUIRE(heard.Last<Finished>(stream) != nullptr);
      std::vector<OutputToken> tokens;
      for (const Token& token : heard.All<Token>(stream)) tokens.push_back(token.token);
      REQUIRE(tokens == sim::Oracle(sequence, hashes, layout));
    }
    REQUIRE(worker.metrics().blocks.used == 0);
    preemptions += worker.metrics().preemptions;
    hits += worker.metrics().prompt_tokens_cached;
  }
  CHECK(preemptions > 100);
  CHECK(hits > 1000);
}

}  // namespace
}  // namespace baton::decode
