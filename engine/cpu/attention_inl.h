// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Paged attention of the query heads that share a KV head, for one token or many.
//
// Whatever the number of rows, a score is summed over the head in order, a value over the
// keys of its tile in order; a tile of 64 keys has its own softmax and tiles merge in order.
// Keys are in the lanes of the scores, for which K of a tile is transposed into scratch; V is
// read from the pool by few rows, and from scratch, as floats, by many.  The operations on a
// row are the same, so the bits are.
//
// Keys past the last position never matter: blocks may hold anything there.
//
// A row of int8 has a scale.  It multiplies the key's score, and of V the softmax weight:
// the sums run over the bytes as they are.
//
// Included once per instruction set, after rows_inl.h.
#pragma once

#include "engine/cpu/kernels.h"

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kRowStep = 6;  // rows that share a load of K or V
constexpr uint32_t kFewRows = 4;  // up to here memory is slower than the products
constexpr uint32_t kTileBlocks = kTileTokens / kBlockTokens;
constexpr uint32_t kWide = sizeof(Wide) / sizeof(float);
constexpr uint32_t kPartKeys = 4 * kWide;  // keys whose scores are computed at a time

// The types of stored numbers.  Units() turns 32-bit units of some keys, kPerUnit columns
// each, into floats: column c of all the keys goes to target[c * stride].
struct FromFloat {
  static constexpr uint32_t kBytes = 4;
  static constexpr uint32_t kPerUnit = 1;
  static constexpr bool kSplits = false;  // see Columns
  template <typename V>
  static V Get(const uint8_t* p) {
    return LoadAs<V>(reinterpret_cast<const float*>(p));
  }
  template <typename V>
  static void Units(V units, float* target, uint64_t) {
    Store(target, units);
  }
};
struct FromHalf {
  static constexpr uint32_t kBytes = 2;
  static constexpr uint32_t kPerUnit = 2;
  static constexpr bool kSplits = false;
  template <typename V>
  static V Get(const uint8_t* p) {
    return LoadHalfAs<V>(p);
  }
  template <typename V>
  static void Units(V units, float* target, uint64_t stride) {
    Store(target, LowHalves(units));
    Store(target + stride, HighHalves(units));
  }
};
struct FromBrain {
  static constexpr uint32_t kBytes = 2;
  static constexpr uint32_t kPerUnit = 2;
  static constexpr bool kSplits = true;
  template <typename V>
  static V Get(const uint8_t* p) {
    return LoadBrainAs<V>(p);
  }
  template <typename V>
  static void Units(V units, float* target, uint64_t stride) {
    Store(target, LowBrains(units));
    Store(target + stride, HighBrains(units));
  }
};
struct FromSigned {
  static constexpr uint32_t kBytes = 1;
  static constexpr uint32_t kPerUnit = 4;
  static constexpr bool kSplits = false;
  template <typename V>
  static V Get(const uint8_t* p) {
    return LoadSignedAs<V>(p);
  }
  template <typename V>
  static void Units(V units, float* target, uint64_t stride) {
    Store(target, SignedBytes<0>(units));
    Store(target + stride, SignedBytes<1>(units));
    Store(target + 2 * stride, SignedBytes<2>(units));
    Store(target + 3 * stride, SignedBytes<3>(units));
  }
};

// A tile's K or V of one head, block by block.
struct TileRows {
  const uint8_t* blocks[kTileBlocks];
  uint32_t count;  // keys
};

// Asks for memory that is needed soon, a few lines at a time between the products: all at once
// they would fill the core's few buffers for lines on their way, and what needs one next would
// wait.  In the order of memory, which the core's own prefetcher goes on with.
class Ahead {
 public:
  void Add(const uint8_t* begin, uint64_t bytes) {
    if (count_ == 0) at_ = begin;
    runs_[count_++] = {begin, begin + bytes};
    lines_ += static_cast<uint32_t>((bytes + kLine - 1) / kLine);
  }
  // Spreads it over the parts of a tile, roughly as they take time.
  template <typename From>
  void Spread(uint32_t head_dim) {
    const auto each = [&](uint32_t eighths, uint32_t calls) {
      return (lines_ * eighths + 8 * calls - 1) / (8 * calls);
    };
    per_square = each(3, kTileTokens / kWide * (head_dim / (kWide * From::kPerUnit) + 1));
    per_columns = each(2, kTileTokens / kPartKeys * (head_dim / kAskColumns));
    per_key = each(3, kTileTokens * (head_dim / kPartKeys + 1));
  }
  inline void Ask(uint32_t lines) {
    for (; lines > 0 && run_ < count_; --lines) {
      Prefetch(at_);
      at_ += kLine;
      if (at_ >= runs_[run_].end && ++run_ < count_) at_ = runs_[run_].begin;
    }
  }

  static constexpr uint32_t kAskColumns = 8;
  // Lines for each square that is transposed, for each so many columns of scores, and for each
  // key whose values are weighed.
  uint32_t per_square = 0;
  uint32_t per_columns = 0;
  uint32_t per_key = 0;

 private:
  static constexpr uint32_t kLine = 64;
  struct Run {
    const uint8_t* begin;
    const uint8_t* end;
  };
  Run runs_[2 * kTileBlocks];
  uint32_t count_ = 0;
  uint32_t lines_ = 0;
  uint32_t run_ = 0;
  const uint8_t* at_ = nullptr;
};

// target[d * kPartKeys + i] = column d of key i, for a block's keys.
template <typename From>
void TransposeBlock(const uint8_t* rows, uint32_t head_dim, float* target, Ahead& ahead) {
  constexpr uint32_t kColumns = kWide * From::kPerUnit;
  const uint64_t stride = uint64_t{head_dim} * From::kBytes;
  for (uint32_t key = 0; key < kBlockTokens; key += kWide) {
    const uint8_t* from = rows + key * stride;
    float* to = target + key;
    uint32_t d = 0;
    for (; d + kColumns <= head_dim; d += kColumns) {
      ahead.Ask(ahead.per_square);
      Wide units[kWide];
      TransposeSquare(from + d * From::kBytes, stride, units);
#pragma GCC unroll 16
      for (uint32_t u = 0; u < kWide; ++u) {
        From::Units(units[u], to + (d + u * From::kPerUnit) * kPartKeys, kPartKeys);
      }
    }
    for (; d < head_dim; d += 8) {  // a head whose end is not a whole square
      for (uint32_t i = 0; i < kWide; ++i) {
        float columns[8];
        Store(columns, From::template Get<V8>(from + i * stride + d * From::kBytes));
        for (uint32_t c = 0; c < 8; ++c) to[(d + c) * kPartKeys + i] = columns[c];
      }
    }
  }
}

// Sums of R rows over C vectors V: sums[r][c] += x[r] * y[c].
template <typename V, uint32_t R, uint32_t C>
struct Sums {
  V sums[R][C];

  Sums() {
#pragma GCC unroll 16
    for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (uint32_t c = 0; c < C; ++c) sums[r][c] = Splat<V>(0.0f);
    }
  }
  // x(r) is a float, y(c) a vector; the fewer of them stay in registers.
  template <typename X, typename Y>
  inline __attribute__((always_inline)) void Add(X x, Y y) {
    if constexpr (R < C) {
      V left[R];
#pragma GCC unroll 16
      for (uint32_t r = 0; r < R; ++r) left[r] = Splat<V>(x(r));
#pragma GCC unroll 4
      for (uint32_t c = 0; c < C; ++c) {
        const V right = y(c);
#pragma GCC unroll 16
        for (uint32_t r = 0; r < R; ++r) sums[r][c] = Fma(left[r], right, sums[r][c]);
      }
    } else {
      V right[C];
#pragma GCC unroll 4
      for (uint32_t c = 0; c < C; ++c) right[c] = y(c);
#pragma GCC unroll 16
      for (uint32_t r = 0; r < R; ++r) {
        const V left = Splat<V>(x(r));
#pragma GCC unroll 4
        for (uint32_t c = 0; c < C; ++c) sums[r][c] = Fma(left, right[c], sums[r][c]);
      }
    }
  }
};

// scores[r * kTileTokens + i] = query r . key i, for C vectors of keys.
template <uint32_t R, uint32_t C>
inline void ScoreRows(const float* const* queries, const float* keys, uint32_t head_dim,
                      float* scores, Ahead& ahead) {
  Sums<Wide, R, C> sums;
  if (R > kFewRows) ahead.Ask(ahead.per_columns);
  for (uint32_t d = 0; d < head_dim; ++d, keys += kPartKeys) {
    if (R <= kFewRows && d % Ahead::kAskColumns == 0) ahead.Ask(ahead.per_columns);
    sums.Add([&](uint32_t r) { return queries[r][d]; },
             [&](uint32_t c) { return LoadAs<Wide>(keys + c * kWide); });
  }
#pragma GCC unroll 16
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t c = 0; c < C; ++c) Store(scores + r * kTileTokens + c * kWide, sums.sums[r][c]);
  }
}

// Vectors that R rows may have at a time.
template <uint32_t R>
constexpr uint32_t WideColumns() {
  return R * 4 <= kWideSums ? 4 : R * 2 <= kWideSums ? 2 : 1;
}

template <uint32_t R>
void ScoreTile(const float* const* queries, const float* keys, uint32_t count, uint32_t head_dim,
               float* scores, Ahead& ahead) {
  constexpr uint32_t kStep = WideColumns<R>();
  uint32_t i = 0;
  for (; i + kWide * (kStep - 1) < count; i += kWide * kStep) {
    ScoreRows<R, kStep>(queries, keys + i, head_dim, scores + i, ahead);
  }
  for (; i < count; i += kWide) {
    ScoreRows<R, 1>(queries, keys + i, head_dim, scores + i, ahead);
  }
}

// How rows of a tile go into those of the tiles before: values = values * keep + tile * take.
struct MergeWeights {
  float keep[kAttentionRowsMax];
  float take[kAttentionRowsMax];
};

// D vectors V of columns of a row of V.  Of brain floats, two vectors have the even and the odd
// columns of their part of the row, which takes less than to spread them.
template <typename V, uint32_t D, typename From>
struct Columns {
  static constexpr bool kSplit = From::kSplits && D % 2 == 0;
  static constexpr uint32_t kVector = sizeof(V) / sizeof(float);

  static inline V Get(const uint8_t* row, uint32_t d) {
    if constexpr (kSplit) {
      const V units = LoadAs<V>(reinterpret_cast<const float*>(row) + d / 2 * kVector);
      return d % 2 == 0 ? LowBrains(units) : HighBrains(units);
    } else {
      return From::template Get<V>(row + d * kVector * From::kBytes);
    }
  }
  // Puts the columns into their order.
  static inline void Order(V* columns) {
    if constexpr (kSplit) {
#pragma GCC unroll 4
      for (uint32_t d = 0; d < D; d += 2) Interleave(columns[d], columns[d + 1]);
    }
  }
};

// Merges D vectors V of columns of R rows' weighted values of one tile.
template <typename V, uint32_t R, uint32_t D, typename From>
inline void WeighColumns(const float* weights, const TileRows& rows, uint64_t at, uint32_t head_dim,
                         const float* keep, const float* take, float* values, Ahead& ahead) {
  constexpr uint32_t kVector = sizeof(V) / sizeof(float);
  const uint64_t stride = uint64_t{head_dim} * From::kBytes;
  Sums<V, R, D> sums;
  for (uint32_t first = 0; first < rows.count; first += kBlockTokens) {
    const uint8_t* v = rows.blocks[first / kBlockTokens] + at;
    const uint32_t left = rows.count - first;
    const uint32_t end = first + (left < kBlockTokens ? left : kBlockTokens);
    for (uint32_t i = first; i < end; ++i, v += stride) {
      if constexpr (R <= kFewRows) ahead.Ask(ahead.per_key);
      sums.Add([&](uint32_t r) { return weights[r * kTileTokens + i]; },
               [&](uint32_t d) { return Columns<V, D, From>::Get(v, d); });
    }
  }
#pragma GCC unroll 16
  for (uint32_t r = 0; r < R; ++r) {
    Columns<V, D, From>::Order(sums.sums[r]);
    const V kept = Splat<V>(keep[r]);
    const V taken = Splat<V>(take[r]);
#pragma GCC unroll 4
    for (uint32_t d = 0; d < D; ++d) {
      float* value = values + uint64_t{r} * head_dim + d * kVector;
      Store(value, Fma(LoadAs<V>(value), kept, Mul(sums.sums[r][d], taken)));
    }
  }
}

template <uint32_t R, typename From>
void WeighRows(const float* weights, const TileRows& rows, uint32_t head_dim, const float* keep,
               const float* take, float* values, Ahead& ahead) {
  constexpr uint32_t kStep = WideColumns<R>();
  uint32_t d = 0;
  const auto weigh = [&]<typename V, uint32_t D>() {
    WeighColumns<V, R, D, From>(weights, rows, uint64_t{d} * From::kBytes, head_dim, keep, take,
                                values + d, ahead);
  };
  for (; d + kWide * kStep <= head_dim; d += kWide * kStep) {
    weigh.template operator()<Wide, kStep>();
  }
  for (; d + kWide <= head_dim; d += kWide) weigh.template operator()<Wide, 1>();
  for (; d < head_dim; d += 8) weigh.template operator()<V8, 1>();
}

// Calls use.operator()<R>(first row) for all rows, R at a time.
template <typename Use>
inline void ForRowSteps(uint32_t rows, Use use) {
  uint32_t r = 0;
  for (; r + kRowStep <= rows; r += kRowStep) use.template operator()<kRowStep>(r);
  if (rows - r >= 4) {
    use.template operator()<4>(r);
    r += 4;
  }
  if (rows - r == 3) return use.template operator()<3>(r);
  if (rows - r == 2) return use.template operator()<2>(r);
  if (rows - r == 1) use.template operator()<1>(r);
}

// Turns a row's scores into weights e^(score - maximum), zero from `count` on.  The sum of
// the weights has sixteen lanes.
void Softmax(float* scores, uint32_t count, float* maximum, float* sum) {
  for (uint32_t i = count; i < kTileTokens; ++i) scores[i] = -kInfinity;
  V16 highest = Splat<V16>(-kInfinity);
  for (uint32_t i = 0; i < count; i += 16) highest = Max(LoadAs<V16>(scores + i), highest);
  *maximum = Highest(highest);
  const V16 top = Splat<V16>(*maximum);
  V16 total = Splat<V16>(0.0f);
  for (uint32_t i = 0; i < kTileTokens; i += 16) {
    const V16 weight = i < count ? Exp(Sub(LoadAs<V16>(scores + i), top)) : Splat<V16>(0.0f);
    Store(scores + i, weight);
    total = Add(total, weight);
  }
  *sum = Sum(total);
}

// Merges the maxima and sums of `rows` rows; the weights say how to merge their values.
// Arrays have room for whole vectors.
void MergeSums(const AttentionState& state, const float* maxima, const float* sums, uint32_t rows,
               MergeWeights& weights) {
  float ours[kAttentionRowsMax];
  float our_sums[kAttentionRowsMax];
  for (uint32_t r = 0; r < rows; ++r) {
    ours[r] = state.maximum[r];
    our_sums[r] = state.sum[r];
  }
  for (uint32_t r = rows; r % 16 != 0; ++r) ours[r] = our_sums[r] = 0.0f;
  for (uint32_t r = 0; r < rows; r += 16) {
    const V16 our = LoadAs<V16>(ours + r);
    const V16 their = LoadAs<V16>(maxima + r);
    const V16 highest = Max(our, their);
    const V16 keep = Exp(Sub(our, highest));
    const V16 take = Exp(Sub(their, highest));
    Store(weights.keep + r, keep);
    Store(weights.take + r, take);
    Store(ours + r, highest);
    Store(our_sums + r, Fma(LoadAs<V16>(our_sums + r), keep, Mul(LoadAs<V16>(sums + r), take)));
  }
  for (uint32_t r = 0; r < rows; ++r) {
    state.maximum[r] = ours[r];
    state.sum[r] = our_sums[r];
  }
}

void Merge(const AttentionState& state, const AttentionState& partial, uint32_t rows,
           uint32_t head_dim) {
  MergeWeights weights;
  float maxima[kAttentionRowsMax] = {};
  float sums[kAttentionRowsMax] = {};
  for (uint32_t r = 0; r < rows; ++r) {
    maxima[r] = partial.maximum[r];
    sums[r] = partial.sum[r];
  }
  MergeSums(state, maxima, sums, rows, weights);
  for (uint32_t r = 0; r < rows; ++r) {
    float* values = state.values + uint64_t{r} * head_dim;
    const float* more = partial.values + uint64_t{r} * head_dim;
    const V8 keep = Set1(weights.keep[r]);
    const V8 take = Set1(weights.take[r]);
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

TileRows RowsOfTile(const Attention& task, uint32_t tile, uint32_t which, uint32_t count) {
  TileRows rows;
  rows.count = count;
  for (uint32_t b = 0; b * kBlockTokens < count; ++b) {
    rows.blocks[b] = BlockRows(task, tile * kTileBlocks + b, which);
  }
  return rows;
}

// The keys of a tile that the task's last token sees.
inline uint32_t KeysOfTile(const Attention& task, uint32_t tile) {
  const uint32_t first = tile * kTileTokens;
  const uint32_t end = task.position + task.tokens;
  if (end <= first) return 0;
  return end - first < kTileTokens ? end - first : kTileTokens;
}

// What is attended after this: the head's rows of the next tile or, if all heads attend a tile
// before the next one, the head's part of the next tile's blocks.
template <typename From>
Ahead AheadOf(const Attention& task, uint32_t tile) {
  Ahead ahead;
  const KvLayout& layout = task.pool->layout;
  const uint64_t block_bytes = layout.block_bytes();
  const uint32_t blocks = BlocksFor(KeysOfTile(task, tile + 1));
  const auto block = [&](uint64_t b) {
    return task.pool->at(task.layer, task.block_table[(tile + 1) * kTileBlocks + b]);
  };
  if (task.heads_follow) {
    const uint64_t begin = blocks * block_bytes * task.kv_head / layout.kv_heads;
    const uint64_t end = blocks * block_bytes * (task.kv_head + 1) / layout.kv_heads;
    for (uint64_t at = begin; at < end;) {
      const uint64_t b = at / block_bytes;
      const uint64_t stop = end < (b + 1) * block_bytes ? end : (b + 1) * block_bytes;
      ahead.Add(block(b) + (at - b * block_bytes), stop - at);
      at = stop;
    }
  } else {
    for (uint32_t which = 0; which < 2; ++which) {
      for (uint32_t b = 0; b < blocks; ++b) {
        ahead.Add(block(b) + layout.rows_offset(which, task.kv_head), layout.head_bytes());
      }
    }
  }
  ahead.Spread<From>(task.head_dim);
  return ahead;
}

// The same rows as floats in scratch.
template <typename From>
TileRows Copy(const TileRows& rows, uint32_t head_dim, float* scratch) {
  TileRows copy;
  copy.count = rows.count;
  for (uint32_t first = 0; first < rows.count; first += kBlockTokens) {
    const uint32_t b = first / kBlockTokens;
    float* target = scratch + uint64_t{first} * head_dim;
    copy.blocks[b] = reinterpret_cast<const uint8_t*>(target);
    const uint32_t left = rows.count - first;
    const uint32_t floats = (left < kBlockTokens ? left : kBlockTokens) * head_dim;
    for (uint32_t i = 0; i < floats; i += kLanes) {
      Store(target + i, From::template Get<V8>(rows.blocks[b] + uint64_t{i} * From::kBytes));
    }
  }
  return copy;
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

template <typename From>
void AttendTile(const Attention& task, uint32_t tile, const float* const* queries) {
  const uint32_t first = tile * kTileTokens;
  const uint32_t count = KeysOfTile(task, tile);
  // Tokens before the tile's first key do not see it.
  const uint32_t skip = first > task.position ? (first - task.position) * task.group : 0;
  const uint32_t rows = task.tokens * task.group - skip;
  const uint32_t head_dim = task.head_dim;
  float* const tile_rows = task.scratch;  // K, later V
  float* const scores = task.scratch + uint64_t{kTileTokens} * head_dim;

  Ahead ahead = AheadOf<From>(task, tile);
  const TileRows keys = RowsOfTile(task, tile, 0, count);
  // Part by part: what is transposed is in the first-level cache while all rows use it.
  for (uint32_t key = 0; key < count; key += kPartKeys) {
    const uint32_t part = count - key < kPartKeys ? count - key : kPartKeys;
    for (uint32_t i = 0; i < part; i += kBlockTokens) {
      TransposeBlock<From>(keys.blocks[(key + i) / kBlockTokens], head_dim, tile_rows + i, ahead);
    }
    ForRowSteps(rows, [&]<uint32_t R>(uint32_t r) {
      ScoreTile<R>(queries + skip + r, tile_rows, part, head_dim,
                   scores + uint64_t{r} * kTileTokens + key, ahead);
    });
  }
  constexpr bool kScaled = From::kBytes == 1;
  if constexpr (kScaled) ScaleByKeys(task, tile, 0, count, rows, scores);

  float maxima[kAttentionRowsMax];
  float sums[kAttentionRowsMax];
  for (uint32_t r = 0; r < rows; ++r) {
    const uint32_t seen = task.position + (r + skip) / task.group + 1 - first;
    Softmax(scores + uint64_t{r} * kTileTokens, seen < kTileTokens ? seen : kTileTokens, maxima + r,
            sums + r);
  }
  if constexpr (kScaled) ScaleByKeys(task, tile, 1, count, rows, scores);
  for (uint32_t r = rows; r % 16 != 0; ++r) maxima[r] = sums[r] = 0.0f;
  const AttentionState state{task.state.maximum + skip, task.state.sum + skip,
                             task.state.values + uint64_t{skip} * head_dim};
  MergeWeights merge;
  MergeSums(state, maxima, sums, rows, merge);

  const TileRows stored = RowsOfTile(task, tile, 1, count);
  const auto weigh = [&]<typename Type>(Type, const TileRows& v) {
    ForRowSteps(rows, [&]<uint32_t R>(uint32_t r) {
      WeighRows<R, Type>(scores + uint64_t{r} * kTileTokens, v, head_dim, merge.keep + r,
                         merge.take + r, state.values + uint64_t{r} * head_dim, ahead);
    });
  };
  if (rows <= kRowStep || From::kBytes == 4) {
    weigh(From{}, stored);
  } else {
    weigh(FromFloat{}, Copy<From>(stored, head_dim, tile_rows));
  }
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
  for (uint32_t tile = task.tile_begin; tile < task.tile_end; ++tile) {
    AttendTile<From>(task, tile, queries);
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
