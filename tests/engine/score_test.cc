// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// From a written GGUF file through loader, forward pass, scorer and engine, on a tiny model.
#include "engine/score.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "engine/cpu_engine.h"
#include "engine/model_loader.h"
#include "tests/engine/gguf_writer.h"

namespace baton::engine {
namespace {

std::unique_ptr<Forward> MakeForward(uint32_t threads = 1) {
  const auto bytes = test::TinyModel({}, 3).Write();
  const auto file = Gguf::Decode(bytes, "tiny");
  REQUIRE(file.ok());
  const auto weights = LoadModel(*file);
  REQUIRE(weights.ok());
  ForwardOptions options;
  options.threads = threads;
  auto forward = Forward::Create(*weights, options);
  REQUIRE(forward.status().ToString() == "OK");
  return *std::move(forward);
}

std::vector<TokenId> SomeIds(size_t count) {
  std::vector<TokenId> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(i * 37 % 128));
  return ids;
}

std::vector<uint32_t> BitsOf(Scorer& scorer, const std::vector<TokenId>& ids,
                             const std::vector<uint32_t>& positions) {
  std::vector<uint32_t> bits;
  const absl::Status status =
      scorer.Run(ids, positions, [&](uint32_t position, absl::Span<const float> logits) {
        bits.push_back(position);
        for (const float x : logits) bits.push_back(std::bit_cast<uint32_t>(x));
      });
  REQUIRE(status.ToString() == "OK");
  return bits;
}

}  // namespace

TEST_CASE("rows come for the wanted positions, whatever the chunk") {
  const auto forward = MakeForward();
  const std::vector<TokenId> ids = SomeIds(70);
  const std::vector<uint32_t> positions = {0, 15, 16, 31, 63, 69};
  Scorer whole(forward.get(), KvType::kF16, 512);
  const auto expected = BitsOf(whole, ids, positions);
  CHECK(expected.size() == positions.size() * 129);
  for (const uint32_t chunk : {1, 5, 16, 32, 69, 70}) {
    Scorer scorer(forward.get(), KvType::kF16, chunk);
    INFO(chunk);
    CHECK((BitsOf(scorer, ids, positions) == expected));
  }
}

TEST_CASE("a scorer forgets the sequence before") {
  const auto forward = MakeForward();
  Scorer fresh(forward.get(), KvType::kF16, 16);
  const auto expected = BitsOf(fresh, SomeIds(20), {19});
  Scorer used(forward.get(), KvType::kF16, 16);
  BitsOf(used, std::vector<TokenId>(100, 5), {99});
  CHECK((BitsOf(used, SomeIds(20), {19}) == expected));
}

TEST_CASE("ids and positions that do not exist are refused by name") {
  const auto forward = MakeForward();
  Scorer scorer(forward.get(), KvType::kF16, 16);
  const auto refused = [&](const std::vector<TokenId>& ids, const std::vector<uint32_t>& positions,
                           const char* why) {
    const absl::Status status =
        scorer.Run(ids, positions, [](uint32_t, absl::Span<const float>) { FAIL(); });
    INFO(status.ToString());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), why));
  };
  refused({}, {}, "no ids");
  refused({1, 128}, {0}, "id 128 is not in the vocabulary of 128");
  refused({-1}, {0}, "id -1");
  refused(SomeIds(257), {0}, "257 ids; the model's context is 256");
  refused({1, 2}, {2}, "position 2 of 2 ids");
  refused({1, 2}, {1, 0}, "do not ascend");
}

TEST_CASE("a window's score is the sum over its second half") {
  const auto forward = MakeForward();
  const std::vector<TokenId> ids = SomeIds(32);
  Scorer scorer(forward.get(), KvType::kF16, 16);
  const auto score = ScoreWindow(scorer, ids);
  REQUIRE(score.ok());
  CHECK(score->tokens == 15);
  double expected = 0;
  for (uint32_t p = 16; p < 31; ++p) {
    const absl::Status status = scorer.Run(ids, {p}, [&](uint32_t, absl::Span<const float> row) {
      double sum = 0;
      for (const float x : row) sum += std::exp(x);
      expected += std::log(sum) - row[ids[p + 1]];
    });
    REQUIRE(status.ok());
  }
  CHECK(score->nll_sum == Approx(expected).epsilon(1e-5));
}

TEST_CASE("the engine's greedy answer is the scorer's best token at each step, in any company") {
  auto forward = MakeForward(2);
  const ModelSpec spec = forward->spec();
  KvPool pool;
  pool.layout = {spec.layers, spec.kv_heads, spec.head_dim, 32, KvType::kF16};
  std::vector<uint8_t> memory(pool.layout.pool_bytes());
  pool.base = memory.data();
  Bell bell;
  CpuEngine engine(std::move(forward), pool, {}, &bell);

  std::vector<TokenId> ids = SomeIds(21);
  std::vector<TokenId> outputs;
  uint32_t computed = 0;
  for (uint64_t step = 1; step <= 8; ++step) {
    Step work;
    work.id = step;
    Slice slice;
    slice.tokens.assign(ids.begin() + computed, ids.end());
    slice.position = computed;
    slice.block_table = {7, 3, 12};
    slice.sample.emplace();
    slice.sample->params.temperature = 0;
    Slice other;  // somebody else's prompt
    other.tokens = SomeIds(step * 3);
    other.block_table = {20, 21};
    work.slices = {std::move(other), std::move(slice)};
    engine.Submit(std::move(work));
    std::vector<Event> events;
    while (events.empty()) {
      REQUIRE(bell.Wait(absl::Seconds(60)));
      engine.Poll(events);
    }
    const StepDone& done = std::get<StepDone>(events[0]);
    REQUIRE(done.status.ok());
    REQUIRE(done.sampled.size() == 1);
    computed = static_cast<uint32_t>(ids.size());
    ids.push_back(done.sampled[0].token.id);
    outputs.push_back(ids.back());
  }

  const auto alone = MakeForward(1);
  Scorer scorer(alone.get(), KvType::kF16, 512);
  std::vector<uint32_t> positions;
  for (uint32_t p = 20; p < 28; ++p) positions.push_back(p);
  std::vector<TokenId> best;
  REQUIRE(scorer
              .Run(ids, positions,
                   [&](uint32_t, absl::Span<const float> row) {
                     best.push_back(static_cast<TokenId>(std::max_element(row.begin(), row.end()) -
                                                         row.begin()));
                   })
              .ok());
  CHECK(outputs == best);
}

}  // namespace baton::engine
