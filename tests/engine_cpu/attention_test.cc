// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Attention kernels against doubles, and against themselves in other cuts.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/cpu/isa.h"
#include "engine/cpu/kernels.h"
#include "tests/engine_cpu/random_model.h"

namespace baton::engine::cpu {

const Kernels& EmulatedAvx512Kernels();

namespace {

constexpr uint32_t kKvHeads = 2;
constexpr uint32_t kPositions = 200;

std::vector<const Kernels*> All() {
  std::vector<const Kernels*> all = {&ScalarKernels()};
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (const auto kernels = ChooseKernels(isa); kernels.ok()) all.push_back(*kernels);
  }
  if (ChooseKernels(Isa::kAvx2).ok()) all.push_back(&EmulatedAvx512Kernels());
  return all;
}

// A pool whose first `kPositions` tokens are random and whose other bytes are NaNs.
struct Cache {
  Cache(uint32_t head_dim, KvType type) {
    pool.layout = {1, kKvHeads, head_dim, 32, type};
    memory.assign(pool.layout.pool_bytes() / 4, 0xffffffffu);
    pool.base = reinterpret_cast<uint8_t*>(memory.data());
    Random random(head_dim);
    for (uint32_t b = 0; b < BlocksFor(kPositions); ++b) table.push_back(b * 7 % 32);
    for (uint32_t which = 0; which < 2; ++which) {
      for (uint32_t head = 0; head < kKvHeads; ++head) {
        for (uint32_t p = 0; p < kPositions; ++p) {
          std::vector<float> row(head_dim);
          for (float& value : row) value = RandomFloat(random, 1.0f);
          ScalarKernels().store_kv(row.data(), head_dim, type, At(which, head, p),
                                   Scale(which, head, p));
        }
      }
    }
  }
  uint8_t* At(uint32_t which, uint32_t head, uint32_t position) {
    return pool.at(0, table[position / 16]) + pool.layout.rows_offset(which, head) +
           position % 16 * pool.layout.row_bytes();
  }
  float* Scale(uint32_t which, uint32_t head, uint32_t position) {
    uint8_t* block = pool.at(0, table[position / 16]);
    return reinterpret_cast<float*>(block + pool.layout.scales_offset(which, head)) + position % 16;
  }
  float Value(uint32_t which, uint32_t head, uint32_t position, uint32_t d) {
    const uint8_t* at = At(which, head, position) + d * KvTypeBytes(pool.layout.type);
    uint16_t half;
    std::memcpy(&half, at, 2);
    if (pool.layout.type == KvType::kInt8) {
      return *Scale(which, head, position) * static_cast<int8_t>(*at);
    }
    if (pool.layout.type == KvType::kF16) return HalfToFloat(half);
    if (pool.layout.type == KvType::kBf16) return BrainToFloat(half);
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  std::vector<uint32_t> memory;
  std::vector<BlockIndex> table;
  KvPool pool;
};

struct Shape {
  uint32_t group;
  uint32_t head_dim;
};

// (tokens, group, head_dim) for tokens [position, position + tokens), in one call.
std::vector<float> Run(const Kernels& kernels, Cache& cache, Shape shape,
                       const std::vector<float>& queries, uint32_t position, uint32_t tokens) {
  const uint32_t rows = tokens * shape.group;
  std::vector<float> scratch(AttentionScratchFloats(shape.head_dim));
  std::vector<float> maximum(rows), sum(rows), values(rows * shape.head_dim);
  Attention task{.queries = queries.data() + position * shape.group * shape.head_dim,
                 .query_stride = uint64_t{shape.group} * shape.head_dim,
                 .tokens = tokens,
                 .group = shape.group,
                 .head_dim = shape.head_dim,
                 .position = position,
                 .pool = &cache.pool,
                 .block_table = cache.table.data(),
                 .layer = 0,
                 .kv_head = 1,
                 .tile_begin = 0,
                 .tile_end = (position + tokens + kTileTokens - 1) / kTileTokens,
                 .scratch = scratch.data(),
                 .state = {maximum.data(), sum.data(), values.data()}};
  kernels.attend(task);
  std::vector<float> output(values.size());
  kernels.finish(task.state, rows, shape.head_dim, output.data());
  return output;
}

// The same for one token, tile by tile, merged afterwards.
std::vector<float> RunSplit(const Kernels& kernels, Cache& cache, Shape shape,
                            const std::vector<float>& queries, uint32_t position) {
  const uint32_t rows = shape.group;
  const uint32_t floats = rows * shape.head_dim;
  std::vector<float> scratch(AttentionScratchFloats(shape.head_dim));
  std::vector<float> maximum(rows, -INFINITY), sum(rows), values(floats);
  const AttentionState state{maximum.data(), sum.data(), values.data()};
  for (uint32_t tile = 0; tile <= position / kTileTokens; ++tile) {
    std::vector<float> tile_maximum(rows), tile_sum(rows), tile_values(floats);
    const AttentionState partial{tile_maximum.data(), tile_sum.data(), tile_values.data()};
    kernels.attend({.queries = queries.data() + position * floats,
                    .query_stride = floats,
                    .tokens = 1,
                    .group = shape.group,
                    .head_dim = shape.head_dim,
                    .position = position,
                    .pool = &cache.pool,
                    .block_table = cache.table.data(),
                    .layer = 0,
                    .kv_head = 1,
                    .tile_begin = tile,
                    .tile_end = tile + 1,
                    .scratch = scratch.data(),
                    .state = partial});
    kernels.merge(state, partial, rows, shape.head_dim);
  }
  std::vector<float> output(floats);
  kernels.finish(state, rows, shape.head_dim, output.data());
  return output;
}

double Exact(Cache& cache, Shape shape, const std::vector<float>& queries, uint32_t position,
             uint32_t head, uint32_t d) {
  const float* q = queries.data() + (position * shape.group + head) * shape.head_dim;
  double sum = 0;
  double value = 0;
  for (uint32_t key = 0; key <= position; ++key) {
    double score = 0;
    for (uint32_t i = 0; i < shape.head_dim; ++i) {
      score += double{q[i]} * cache.Value(0, 1, key, i);
    }
    sum += std::exp(score);
    value += std::exp(score) * cache.Value(1, 1, key, d);
  }
  return value / sum;
}

TEST_CASE("attention gives the same bits for one token and for many, and split by tiles") {
  const auto shape = GENERATE(Shape{3, 64}, Shape{1, 8}, Shape{2, 48}, Shape{4, 128}, Shape{7, 80});
  const auto type = GENERATE(KvType::kF16, KvType::kBf16, KvType::kF32, KvType::kInt8);
  Cache cache(shape.head_dim, type);
  Random random(2);
  std::vector<float> queries(kPositions * shape.group * shape.head_dim);
  for (float& value : queries) value = RandomFloat(random, 1.0f);
  const uint32_t row = shape.group * shape.head_dim;
  std::vector<float> expected;
  for (const Kernels* kernels : All()) {
    INFO(kernels->name << " group " << shape.group << " head " << shape.head_dim);
    for (const uint32_t position : {0u, 1u, 15u, 16u, 62u, 63u, 64u, 127u, 130u, 192u}) {
      const uint32_t tokens = std::min(8u, kPositions - position);
      const auto many = Run(*kernels, cache, shape, queries, position, tokens);
      for (uint32_t t = 0; t < tokens; ++t) {
        const auto one = Run(*kernels, cache, shape, queries, position + t, 1);
        CHECK(std::memcmp(one.data(), many.data() + t * row, row * 4) == 0);
        const auto split = RunSplit(*kernels, cache, shape, queries, position + t);
        CHECK(std::memcmp(one.data(), split.data(), row * 4) == 0);
      }
    }
    const auto all = Run(*kernels, cache, shape, queries, kPositions - 5, 5);
    if (expected.empty()) expected = all;
    CHECK(std::memcmp(all.data(), expected.data(), all.size() * 4) == 0);
  }
  for (uint32_t head = 0; head < shape.group; ++head) {
    CHECK(expected[head * shape.head_dim + 5] ==
          Approx(Exact(cache, shape, queries, kPositions - 5, head, 5)).margin(2e-6));
  }
}

}  // namespace
}  // namespace baton::engine::cpu
