// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The forward pass as a whole: the same bits however a step is put together, and what it
// refuses to run.
#include "engine/forward.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tests/engine_cpu/random_model.h"

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kPoolBlocks = 96;

// Block tables that are not contiguous.
struct TestPool : NanPool {
  TestPool(const ModelSpec& spec, KvType type) : NanPool(spec, type, kPoolBlocks) {}
  // Blocks of sequence `index`, scattered; sequences do not share any.
  std::vector<BlockIndex> Table(uint32_t index, uint32_t tokens) const {
    std::vector<BlockIndex> table;
    for (uint32_t i = 0; i < BlocksFor(tokens); ++i) {
      table.push_back((index * 24 + i * 5 % 24) % kPoolBlocks);
    }
    return table;
  }
};

std::vector<TokenId> Tokens(uint64_t seed, uint32_t count, uint32_t vocab) {
  Random random(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.Below(vocab));
  return tokens;
}

std::unique_ptr<Forward> Create(const ModelWeights& weights, ForwardOptions options) {
  auto forward = Forward::Create(weights, options);
  REQUIRE(forward.ok());
  return *std::move(forward);
}

// Logits of all rows of one sequence, given in slices of `chunk` tokens.
std::vector<float> RunChunks(Forward& forward, KvType type, absl::Span<const TokenId> tokens,
                             uint32_t chunk) {
  TestPool pool(forward.spec(), type);
  const auto table = pool.Table(0, static_cast<uint32_t>(tokens.size()));
  std::vector<float> all;
  std::vector<float> logits;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const ForwardSlice slice{tokens.subspan(at, chunk), static_cast<uint32_t>(at), table,
                             ForwardSlice::Logits::kAll};
    forward.Run({&slice, 1}, pool.pool, {}, logits);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

bool AllFinite(absl::Span<const float> values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

bool Available(Isa isa) {
  static const RandomModel model = MakeRandomModel(TensorType::kQ8_0);
  return Forward::Create(model.weights, {.isa = isa}).ok();
}

TEST_CASE("a row's logits are the same bits for any chunks and any number of threads") {
  const auto type = GENERATE(TensorType::kQ4_1, TensorType::kQ4_K, TensorType::kQ5_1);
  const auto kv = GENERATE(KvType::kF16, KvType::kBf16, KvType::kF32, KvType::kInt8);
  const RandomModel model = MakeRandomModel(type, type == TensorType::kQ4_K);
  const auto tokens = Tokens(7, 150, model.weights.spec.vocab);
  std::vector<float> expected;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    const auto forward = Create(model.weights, {.threads = threads});
    for (const uint32_t chunk : {150u, 1u, 7u, 16u, 64u}) {
      const auto logits = RunChunks(*forward, kv, tokens, chunk);
      REQUIRE(AllFinite(logits));
      if (expected.empty()) expected = logits;
      INFO("threads " << threads << " chunk " << chunk);
      CHECK(SameBits(logits, expected));
    }
  }
}

TEST_CASE("a row's logits are the same bits whatever else is in the batch") {
  const RandomModel model = MakeRandomModel(TensorType::kQ4_0);
  const uint32_t vocab = model.weights.spec.vocab;
  const auto forward = Create(model.weights, {.threads = 2});
  const std::vector<uint32_t> lengths = {1, 70, 16, 33};
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<float>> alone;
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    tokens.push_back(Tokens(i, lengths[i] + 1, vocab));
    alone.push_back(RunChunks(*forward, KvType::kF16, tokens[i], lengths[i] + 1));
  }
  TestPool pool(model.weights.spec, KvType::kF16);
  std::vector<std::vector<BlockIndex>> tables;
  std::vector<ForwardSlice> prompts;
  std::vector<ForwardSlice> steps;
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    tables.push_back(pool.Table(i, lengths[i] + 1));
  }
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    const absl::Span<const TokenId> all(tokens[i]);
    prompts.push_back({all.first(lengths[i]), 0, tables[i], ForwardSlice::Logits::kLast});
    steps.push_back({all.subspan(lengths[i]), lengths[i], tables[i],
                     i == 2 ? ForwardSlice::Logits::kNone : ForwardSlice::Logits::kLast});
  }
  std::vector<float> logits;
  forward->Run(prompts, pool.pool, {}, logits);
  REQUIRE(logits.size() == lengths.size() * vocab);
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    const auto row = absl::MakeSpan(alone[i]).subspan((lengths[i] - 1) * vocab, vocab);
    CHECK(SameBits(absl::MakeSpan(logits).subspan(i * vocab, vocab), row));
  }
  forward->Run(steps, pool.pool, {}, logits);
  REQUIRE(logits.size() == 3 * vocab);
  uint32_t wanted = 0;
  for (const uint32_t i : {0u, 1u, 3u}) {
    const auto row = absl::MakeSpan(alone[i]).subspan(lengths[i] * vocab, vocab);
    CHECK(SameBits(absl::MakeSpan(logits).subspan(wanted++ * vocab, vocab), row));
  }
}

TEST_CASE("every instruction set gives the bits of the scalar definition") {
  const auto type =
      GENERATE(TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1,
               TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K,
               TensorType::kF32, TensorType::kF16, TensorType::kBf16);
  const auto activations = GENERATE(Activations::kInt8, Activations::kF32);
  const RandomModel model = MakeRandomModel(type);
  const auto tokens = Tokens(3, 20, model.weights.spec.vocab);
  const auto scalar = Create(model.weights, {.isa = Isa::kScalar, .activations = activations});
  const auto expected = RunChunks(*scalar, KvType::kF16, tokens, 20);
  REQUIRE(AllFinite(expected));
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (!Available(isa)) continue;
    const auto forward = Create(model.weights, {.isa = isa, .activations = activations});
    CHECK(SameBits(RunChunks(*forward, KvType::kF16, tokens, 20), expected));
    CHECK(SameBits(RunChunks(*forward, KvType::kF16, tokens, 3), expected));
  }
}

TEST_CASE("layers are reported in order, each after its KV is in the pool") {
  const RandomModel model = MakeRandomModel(TensorType::kQ8_0);
  const ModelSpec& spec = model.weights.spec;
  const auto forward = Create(model.weights, {.threads = 2});
  TestPool pool(spec, KvType::kF32);
  const auto tokens = Tokens(5, 18, spec.vocab);
  const auto table = pool.Table(0, 18);
  const ForwardSlice slice{tokens, 0, table, ForwardSlice::Logits::kNone};
  std::vector<uint32_t> layers;
  std::vector<float> logits;
  const auto check = [&](uint32_t layer) {
    layers.push_back(layer);
    float last;  // of V of the last token and head
    const uint64_t rows = (2 * spec.kv_heads - 1) * kBlockTokens + 1;
    std::memcpy(&last, pool.pool.at(layer, table[1]) + (rows * spec.head_dim + 63) * 4, 4);
    CHECK(std::isfinite(last));
  };
  forward->Run({&slice, 1}, pool.pool, check, logits);
  CHECK(layers == std::vector<uint32_t>{0, 1});
  CHECK(logits.empty());
}

TEST_CASE("what became of each type of weights is said, roundings too") {
  const RandomModel model = MakeRandomModel(TensorType::kQ4_K, true);
  CHECK(DescribeWeights(model.weights) ==
        "F32 as W16 (bf16, rounded) (2), F16 as W16 (f16) (3), Q5_0 as W8 (2), Q8_0 as W8 (1), "
        "Q4_K as W4 with minima (6), BF16 as W16 (bf16) (2)");
}

TEST_CASE("what the kernels cannot run is refused with its name") {
  RandomModel model = MakeRandomModel(TensorType::kQ8_0);
  ModelWeights& weights = model.weights;
  const auto message = [&] {
    const auto forward = Forward::Create(weights, {});
    CHECK(forward.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(forward.status().message());
  };
  SECTION("a missing tensor") {
    weights.layers[1].down = {};
    CHECK_THAT(message(), Catch::Contains("layer 1: down"));
  }
  SECTION("a tensor of another shape") {
    weights.layers[0].k.rows += 1;
    CHECK_THAT(message(), Catch::Contains("layer 0: k"));
  }
  SECTION("a tensor with too few bytes") {
    weights.output.size_bytes -= 1;
    CHECK_THAT(message(), Catch::Contains("output"));
  }
  SECTION("an unknown type") {
    weights.layers[0].up.type = static_cast<TensorType>(99);
    CHECK_THAT(message(), Catch::Contains("99"));
  }
  SECTION("heads that the KV heads do not divide") {
    weights.spec.kv_heads = 4;
    CHECK_THAT(message(), Catch::Contains("kv_heads"));
  }
  SECTION("a quantised norm") {
    weights.output_norm.type = TensorType::kQ8_0;
    CHECK_THAT(message(), Catch::Contains("output_norm"));
  }
}

}  // namespace
}  // namespace baton::engine::cpu
