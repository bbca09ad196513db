// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Paged attention of the query heads that share a KV head, for one token or many.
//
// Whatever the number of rows, a score is the sum of eight lanes that each ran over the head
// in order; a value is summed over the keys in order; a tile of 64 keys has its own softmax
// and tiles merge in order.  Many rows go through floats of the tile in scratch, few rows
// read the pool directly: the operations on a row are the same, so the bits are.
//
// Keys past the last position are never read: blocks may hold anything there.
//
// A row of int8 has a scale.  It multiplies the key's score, and of V the softmax weight:
// the sums run over the bytes as they are.
//
// Included once per instruction set, after rows_inl.h.
#pragma once

#include "engine/cpu/kernels.h"

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kRowStep = 3;  // rows that share a load of K or V

struct FromFloat {
  static constexpr uint32_t kBytes = 4;
  static V8 Get(const uint8_t* p) { return Load(reinterpret_cast<const float*>(p)); }
};
struct FromHalf {
  static constexpr uint32_t kBytes = 2;
  static V8 Get(const uint8_t* p) { return LoadHalf(p); }
};
struct FromBrain {
  static constexpr uint32_t kBytes = 2;
  static V8 Get(const uint8_t* p) { return LoadBrain(p); }
};
struct FromSigned {
  static constexpr uint32_t kBytes = 1;
  static V8 Get(const uint8_t* p) { return LoadSigned(p); }
};

// scores[r * kTileTokens + i] = query r . key i, for 4 keys.
template <uint32_t R, typename From>
inline void Dot4(const float* const* queries, const uint8_t* keys, uint32_t head_dim,
                 float* scores) {
  const uint64_t stride = uint64_t{head_dim} * From::kBytes;
  V8 sums[R][4];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) sums[r][i] = Zero();
  }
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    const uint8_t* key = keys + uint64_t{d} * From::kBytes;
    V8 q[R];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < R; ++r) q[r] = Load(queries[r] + d);
      // One key at a time: 12 sums, 3 queries and a key are 16 registers.
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; ++i) {
      const V8 k = From::Get(key + i * stride);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < R; ++r) sums[r][i] = Fma(q[r], k, sums[r][i]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < R; ++r) {
    Sum4(sums[r][0], sums[r][1], sums[r][2], sums[r][3], scores + r * kTileTokens);
  }
}

// The same for one key, where reading four would pass the last.
template <typename From>
inline void Dot1(const float* query, const uint8_t* key, uint32_t head_dim, float* score) {
  V8 sum = Zero();
  for (uint32_t d = 0; d < head_dim; d += kLanes) {
    sum = Fma(Load(query + d), From::Get(key + uint64_t{d} * From::kBytes), sum);
  }
  *score = Sum(sum);
}

template <typename From>
void Scores(const float* const* queries, uint32_t rows, const uint8_t* keys, uint32_t count,
            uint32_t head_dim, float* scores) {
  const uint64_t stride = uint64_t{head_dim} * From::kBytes;
  for (uint32_t r = 0; r < rows; r += kRowStep) {
    float* out = scores + uint64_t{r} * kTileTokens;
    const float* const* q = queries + r;
    const uint32_t step = rows - r < kRowStep ? rows - r : kRowStep;
    uint32_t i = 0;
    for (; i + 4 <= count; i += 4) {
      const uint8_t* key = keys + i * stride;
      if (step == 3) {
        Dot4<3, From>(q, key, head_dim, out + i);
      } else if (step == 2) {
        Dot4<2, From>(q, key, head_dim, out + i);
      } else {
        Dot4<1, From>(q, key, head_dim, out + i);
      }
    }
    for (; i < count; ++i) {
      for (uint32_t s = 0; s < step; ++s) {
        Dot1<From>(q[s], keys + i * stride, head_dim, out + s * kTileTokens + i);
      }
    }
  }
}

// values[r][d ...] = (fresh ? 0 : values) + sum over keys of weight * V, for R rows and D
// vectors of columns.
template <uint32_t R, uint32_t D, typename From>
inline void Weigh(const float* weights, const uint8_t* v, uint32_t count, uint32_t head_dim,
                  bool fresh, float* values) {
  const uint64_t stride = uint64_t{head_dim} * From::kBytes;
  V8 sums[R][D];
#pragma GCC unroll 4
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t d = 0; d < D; ++d) {
      sums[r][d] = fresh ? Zero() : Load(values + r * head_dim + d * kLanes);
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    V8 weight[R];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < R; ++r) weight[r] = Set1(weights[r * kTileTokens + i]);
#pragma GCC unroll 4
    for (uint32_t d = 0; d < D; ++d) {
      const V8 x = From::Get(v + i * stride + d * kLanes * From::kBytes);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < R; ++r) sums[r][d] = Fma(weight[r], x, sums[r][d]);
    }
  }
#pragma GCC unroll 4
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t d = 0; d < D; ++d) Store(values + r * head_dim + d * kLanes, sums[r][d]);
  }
}

template <uint32_t R, typename From>
inline void WeighRows(const float* weights, const uint8_t* v, uint32_t count, uint32_t head_dim,
                      bool fresh, float* values) {
  uint32_t d = 0;
  for (; d + 4 * kLanes <= head_dim; d += 4 * kLanes) {
    Weigh<R, 4, From>(weights, v + uint64_t{d} * From::kBytes, count, head_dim, fresh, values + d);
  }
  for (; d < head_dim; d += kLanes) {
    Weigh<R, 1, From>(weights, v + uint64_t{d} * From::kBytes, count, head_dim, fresh, values + d);
  }
}

template <typename From>
void WeightedValues(const float* weights, uint32_t rows, const uint8_t* v, uint32_t count,
                    uint32_t head_dim, bool fresh, float* values) {
  for (uint32_t r = 0; r < rows; r += kRowStep) {
    const float* w = weights + uint64_t{r} * kTileTokens;
    float* out = values + uint64_t{r} * head_dim;
    switch (rows - r) {
      case 1:
        WeighRows<1, From>(w, v, count, head_dim, fresh, out);
        break;
      case 2:
        WeighRows<2, From>(w, v, count, head_dim, fresh, out);
        break;
      default:
        WeighRows<3, From>(w, v, count, head_dim, fresh, out);
    }
  }
}

// Turns a row's scores into weights e^(score - maximum), zero from `count` on.
void Softmax(float* scores, uint32_t count, float* maximum, float* sum) {
  for (uint32_t i = count; i < kTileTokens; ++i) scores[i] = -kInfinity;
  V8 highest = Set1(-kInfinity);
  for (uint32_t i = 0; i < count; i += kLanes) highest = Max(Load(scores + i), highest);
  *maximum = Highest(highest);
  const V8 top = Set1(*maximum);
  V8 total = Zero();
  for (uint32_t i = 0; i < kTileTokens; i += kLanes) {
    const V8 weight = i < count ? Exp(Sub(Load(scores + i), top)) : Zero();
    Store(scores + i, weight);
    total = Add(total, weight);
  }
  *sum = Sum(total);
}

void Merge(const AttentionState& state, const AttentionState& partial, uint32_t rows,
           uint32_t head_dim) {
  for (uint32_t r = 0; r < rows; ++r) {
    const float theirs = partial.maximum[r];
    const float ours = state.maximum[r];
    if (theirs == -kInfinity) continue;  // saw no key
    const float highest = ours > theirs ? ours : theirs;
    const V8 keep = Exp(Set1(ours - highest));
    const V8 take = Exp(Set1(theirs - highest));
    float lanes[kLanes];
    Store(lanes, Fma(Set1(state.sum[r]), keep, Mul(Set1(partial.sum[r]), take)));
    state.maximum[r] = highest;
    state.sum[r] = lanes[0];
    float* values = state.values + uint64_t{r} * head_dim;
    const float* more = partial.values + uint64_t{r} * head_dim;
    for (uint32_t d = 0; d < head_dim; d += kLanes) {
      Store(values + d, Fma(Load(values + d), keep, Mul(Load(more + d), take)));
    }
  }
}

void Finish(const AttentionState& state, uint32_t rows, uint32_t head_dim, float* output) {
  for (uint32_t r = 0; r < rows; ++r) {
    const V8 inverse = Set1(1.0f / state.sum[r]);
    const uint64_t row = uint64_t{r} * head_dim;
    for (uint32_t d = 0; d < head_dim; d += kLanes) {
      Store(output + row + d, Mul(Load(state.values + row + d), inverse));
    }
  }
}

// K (which = 0) or V (1) of a block's tokens for the task's head, contiguous.
inline const uint8_t* BlockRows(const Attention& task, uint32_t block, uint32_t which) {
  return task.pool->at(task.layer, task.block_table[block]) +
         task.pool->layout.rows_offset(which, task.kv_head);
}

// Asks for what is needed after K or V of `block`: its V, or the next tile's K.
inline void PrefetchAfter(const Attention& task, uint32_t block, uint32_t which) {
  const uint32_t next = which == 0 ? block : block + kTileTokens / kBlockTokens;
  if (next > (task.position + task.tokens - 1) / kBlockTokens) return;
  const uint8_t* rows = BlockRows(task, next, 1 - which);
  const uint64_t bytes = task.pool->layout.head_bytes();
  for (uint64_t i = 0; i < bytes; i += 64) Prefetch(rows + i);
}

// Calls use(rows, first key, keys) for runs of a tile's keys: from the pool block by block,
// or once from scratch, as floats.
template <typename From, typename Use>
void ForKeys(const Attention& task, uint32_t tile, uint32_t which, uint32_t count, bool direct,
             Use use) {
  constexpr uint32_t kTileBlocks = kTileTokens / kBlockTokens;
  const uint64_t floats = uint64_t{kBlockTokens} * task.head_dim;
  for (uint32_t first = 0; first < count; first += kBlockTokens) {
    const uint32_t block = tile * kTileBlocks + first / kBlockTokens;
    const uint8_t* rows = BlockRows(task, block, which);
    PrefetchAfter(task, block, which);
    const uint32_t left = count - first < kBlockTokens ? count - first : kBlockTokens;
    if (direct) {
      use(From{}, rows, first, left);
      continue;
    }
    float* target = task.scratch + first / kBlockTokens * floats;
    for (uint32_t i = 0; i < left * task.head_dim; i += kLanes) {
      Store(target + i, From::Get(rows + uint64_t{i} * From::kBytes));
    }
  }
  if (!direct) use(FromFloat{}, reinterpret_cast<const uint8_t*>(task.scratch), 0, count);
}

// Multiplies each row's numbers, one per key of the tile, with the keys' scales.
void ScaleByKeys(const Attention& task, uint32_t tile, uint32_t which, uint32_t count,
                 uint32_t rows, float* numbers) {
  alignas(32) float scales[kTileTokens] = {};
  for (uint32_t first = 0; first < count; first += kBlockTokens) {
    const uint32_t block = (tile * kTileTokens + first) / kBlockTokens;
    const uint32_t left = count - first < kBlockTokens ? count - first : kBlockTokens;
    const uint8_t* from = task.pool->at(task.layer, task.block_table[block]) +
                          task.pool->layout.scales_offset(which, task.kv_head);
    __builtin_memcpy(scales + first, from, left * sizeof(float));
  }
  for (uint32_t r = 0; r < rows; ++r) {
    float* row = numbers + uint64_t{r} * kTileTokens;
    for (uint32_t i = 0; i < count; i += kLanes) {
      Store(row + i, Mul(Load(row + i), Load(scales + i)));
    }
  }
}

struct TileScratch {
  float* scores;  // (rows, kTileTokens)
  float* values;  // (rows, head_dim)
};

template <typename From>
void AttendTile(const Attention& task, uint32_t tile, const float* const* queries,
                TileScratch scratch) {
  const uint32_t first = tile * kTileTokens;
  const uint32_t end = task.position + task.tokens;
  const uint32_t count = end - first < kTileTokens ? end - first : kTileTokens;
  // Tokens before the tile's first key do not see it.
  const uint32_t skip = first > task.position ? (first - task.position) * task.group : 0;
  const uint32_t rows = task.tokens * task.group - skip;
  const uint32_t head_dim = task.head_dim;
  const bool direct = rows <= kRowStep || From::kBytes == 4;
  ForKeys<From>(task, tile, 0, count, direct,
                [&](auto from, const uint8_t* keys, uint32_t at, uint32_t keys_count) {
                  Scores<decltype(from)>(queries + skip, rows, keys, keys_count, head_dim,
                                         scratch.scores + at);
                });
  constexpr bool kScaled = From::kBytes == 1;
  if constexpr (kScaled) ScaleByKeys(task, tile, 0, count, rows, scratch.scores);
  float maxima[kAttentionRowsMax];
  float sums[kAttentionRowsMax];
  for (uint32_t r = 0; r < rows; ++r) {
    const uint32_t seen = task.position + (r + skip) / task.group + 1 - first;
    Softmax(scratch.scores + uint64_t{r} * kTileTokens, seen < kTileTokens ? seen : kTileTokens,
            maxima + r, sums + r);
  }
  if constexpr (kScaled) ScaleByKeys(task, tile, 1, count, rows, scratch.scores);
  ForKeys<From>(task, tile, 1, count, direct,
                [&](auto from, const uint8_t* v, uint32_t at, uint32_t keys_count) {
                  WeightedValues<decltype(from)>(scratch.scores + at, rows, v, keys_count, head_dim,
                                                 at == 0, scratch.values);
                });
  const AttentionState state{task.state.maximum + skip, task.state.sum + skip,
                             task.state.values + uint64_t{skip} * head_dim};
  Merge(state, {maxima, sums, scratch.values}, rows, head_dim);
}

template <typename From>
void AttendTiles(const Attention& task) {
  const uint32_t rows = task.tokens * task.group;
  const float* queries[kAttentionRowsMax];
  for (uint32_t r = 0; r < rows; ++r) {
    queries[r] = task.queries + uint64_t{r / task.group} * task.query_stride +
                 uint64_t{r % task.group} * task.head_dim;
    task.state.maximum[r] = -kInfinity;
    task.state.sum[r] = 0.0f;
    float* values = task.state.values + uint64_t{r} * task.head_dim;
    for (uint32_t d = 0; d < task.head_dim; d += kLanes) Store(values + d, Zero());
  }
  TileScratch scratch;
  scratch.scores = task.scratch + uint64_t{kTileTokens} * task.head_dim;
  scratch.values = scratch.scores + kAttentionRowsMax * kTileTokens;
  for (uint32_t tile = task.tile_begin; tile < task.tile_end; ++tile) {
    AttendTile<From>(task, tile, queries, scratch);
  }
}

void Attend(const Attention& task) {
  switch (task.pool->layout.type) {
    case KvType::kF16:
      return AttendTiles<FromHalf>(task);
    case KvType::kBf16:
      return AttendTiles<FromBrain>(task);
    case KvType::kF32:
      return AttendTiles<FromFloat>(task);
    case KvType::kInt8:
      return AttendTiles<FromSigned>(task);
  }
}

}  // namespace
}  // namespace baton::engine::cpu
