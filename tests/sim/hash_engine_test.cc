// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The hash engine: the same answer however it is cut, another one if a byte is wrong.
#include "sim/hash_engine.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

#include "engine/sequence.h"

namespace baton::sim {
namespace {

using engine::KvLayout;

const KvLayout kLayout{.layers = 3, .kv_heads = 2, .head_dim = 4, .blocks = 16};
const HashEngineOptions kOptions{.vocab_size = 50, .context_max = 200};

class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch();
};

struct Rig {
  Rig() : memory(kLayout.pool_bytes(), 0xa5), engine(kOptions, {memory.data(), kLayout}, clock) {}

  // Runs the step to its end.
  std::vector<engine::Sampled> Run(std::vector<engine::Slice> slices) {
    engine.Submit({.id = ++steps, .slices = std::move(slices)});
    clock.now = engine.NextEvent();
    std::vector<engine::Event> events;
    engine.Poll(events);
    REQUIRE(events.size() == 1);
    return std::get<engine::StepDone>(events[0]).sampled;
  }
  ManualClock clock;
  std::vector<uint8_t> memory;
  HashEngine engine;
  uint64_t steps = 0;
};

Sequence Prompt(uint32_t tokens) {
  Sequence sequence;
  sequence.prompt.resize(tokens);
  std::iota(sequence.prompt.begin(), sequence.prompt.end(), 1);
  for (TokenId& id : sequence.prompt) id %= 50;
  sequence.remaining_tokens = 20;
  sequence.sampling.seed = 7;
  return sequence;
}

engine::Slice SliceOf(const Sequence& s, uint32_t begin, uint32_t end,
                      const std::vector<BlockIndex>& blocks) {
  engine::Slice slice{
      .tokens = engine::TokensOf(s, begin, end), .position = begin, .block_table = blocks};
  if (end == s.size()) slice.sample = engine::NextSample(s);
  return slice;
}

// The first token, with the prompt cut at `cuts`.
TokenId FirstToken(Rig& rig, const Sequence& s, std::vector<uint32_t> cuts,
                   const std::vector<BlockIndex>& blocks) {
  cuts.push_back(s.size());
  uint32_t begin = 0;
  std::vector<engine::Sampled> sampled;
  for (const uint32_t end : cuts) {
    sampled = rig.Run({SliceOf(s, begin, end, blocks)});
    begin = end;
  }
  REQUIRE(sampled.size() == 1);
  return sampled[0].token.id;
}

TEST_CASE("the answer is the oracle's, token by token", "[hash_engine]") {
  Rig rig;
  Sequence s = Prompt(40);
  const std::vector<OutputToken> expected = Oracle(s, kOptions, kLayout);
  REQUIRE(expected.size() == 20);
  const std::vector<BlockIndex> blocks = {9, 3, 7, 1};
  uint32_t begin = 0;
  for (const OutputToken& token : expected) {
    const auto sampled = rig.Run({SliceOf(s, begin, s.size(), blocks)});
    REQUIRE(sampled.at(0).token == token);
    begin = s.size();
    s.outputs.push_back(token.id);
  }
}

TEST_CASE("neither chunks nor blocks nor neighbours change the answer", "[hash_engine]") {
  const Sequence s = Prompt(50);
  Rig whole, cut, shared;
  const TokenId token = FirstToken(whole, s, {}, {0, 1, 2, 3});
  CHECK(FirstToken(cut, s, {1, 16, 37}, {8, 2, 11, 5}) == token);
  const auto sampled =
      shared.Run({SliceOf(Prompt(20), 0, 20, {4, 5}), SliceOf(s, 0, 50, {0, 1, 2, 3})});
  CHECK(sampled.at(1).token.id == token);
}

TEST_CASE("a wrong byte anywhere in the prefix changes the next token's state", "[hash_engine]") {
  // A vocabulary of 50 hides one change in 50 by chance; three draws hide almost none.
  const Sequence s = Prompt(33);
  Rig good;
  const std::vector<BlockIndex> blocks = {0, 1, 2};
  good.Run({SliceOf(s, 0, 32, blocks)});
  uint32_t unnoticed = 0, places = 0;
  for (size_t at = 0; at < good.memory.size(); at += 61) {
    const size_t block = at % (kLayout.blocks * kLayout.block_bytes()) / kLayout.block_bytes();
    if (block >= 2) continue;
    ++places;
    Rig bad;
    bad.Run({SliceOf(s, 0, 32, blocks)});
    bad.memory[at] ^= 1;
    Rig reference;
    reference.Run({SliceOf(s, 0, 32, blocks)});
    unnoticed += bad.Run({SliceOf(s, 32, 33, blocks)})[0].token.id ==
                 reference.Run({SliceOf(s, 32, 33, blocks)})[0].token.id;
  }
  REQUIRE(places > 20);
  CHECK(unnoticed * 5 < places);
}

TEST_CASE("a layer's bytes appear with its LayerDone, not before", "[hash_engine]") {
  Rig rig;
  const Sequence s = Prompt(16);
  engine::Step step{.id = 1, .layer_events = true};
  step.slices.push_back(SliceOf(s, 0, 16, {0}));
  rig.engine.Submit(step);
  for (uint32_t layer = 0; layer < kLayout.layers; ++layer) {
    std::vector<engine::Event> events;
    rig.engine.Poll(events);
    CHECK(events.empty());
    const uint8_t* const bytes = rig.memory.data() + kLayout.offset(layer, 0);
    const auto untouched = [&] {
      return std::all_of(bytes, bytes + kLayout.block_bytes(),
                         [](uint8_t byte) { return byte == 0xa5; });
    };
    CHECK(untouched());
    rig.clock.now = rig.engine.NextEvent();
    rig.engine.Poll(events);
    REQUIRE(events.size() == 1);
    CHECK(std::get<engine::LayerDone>(events[0]).layer == layer);
    CHECK(!untouched());
  }
  rig.clock.now = rig.engine.NextEvent();
  std::vector<engine::Event> events;
  rig.engine.Poll(events);
  REQUIRE(events.size() == 1);
  CHECK(std::holds_alternative<engine::StepDone>(events[0]));
  CHECK(rig.engine.NextEvent() == absl::InfiniteFuture());
}

TEST_CASE("a banned token is never drawn, and the seed matters", "[hash_engine]") {
  Sequence s = Prompt(20);
  const TokenId first = Oracle(s, kOptions, kLayout)[0].id;
  s.stop_ids = {first};
  CHECK(Oracle(s, kOptions, kLayout).size() == 1);
  s.min_tokens = 1;
  CHECK(Oracle(s, kOptions, kLayout)[0].id != first);

  Sequence other = Prompt(20);
  other.sampling.seed = 8;
  CHECK(Oracle(other, kOptions, kLayout) != Oracle(Prompt(20), kOptions, kLayout));
  other.sampling.temperature = 0;
  Sequence greedy = Prompt(20);
  greedy.sampling.temperature = 0;
  CHECK(Oracle(other, kOptions, kLayout) == Oracle(greedy, kOptions, kLayout));
}

TEST_CASE("a resumed answer continues the first one", "[hash_engine]") {
  Sequence s = Prompt(20);
  const std::vector<OutputToken> all = Oracle(s, kOptions, kLayout);
  for (size_t i = 0; i < 8; ++i) s.outputs.push_back(all[i].id);
  s.remaining_tokens -= 8;
  const std::vector<OutputToken> rest = Oracle(s, kOptions, kLayout);
  CHECK(rest == std::vector<OutputToken>(all.begin() + 8, all.end()));
}

}  // namespace
}  // namespace baton::sim
