// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// AVX-512 kernels: 16 rows of weights in the lanes, up to 8 rows of activations in registers.
//
// VNNI multiplies unsigned weight bytes with signed activation bytes and adds four products
// to a 32-bit lane, without saturation.  4-bit weights are unsigned as they are; 8-bit ones
// are shifted by 128, and 128 times the activations' sum is taken off again, in integers.
// All else has eight lanes, as the definition says, with this set's registers.
//
// A test includes this file after an emulation of the instructions, under another name.
#ifndef BATON_AVX512_KERNELS
#include <immintrin.h>
#define BATON_AVX512_KERNELS Avx512Kernels
#endif

#include "engine/cpu/kernels.h"
#include "engine/cpu/simd_avx2.h"
// In the order of their needs.
// clang-format off
#include "engine/cpu/rows_inl.h"
#include "engine/cpu/attention_inl.h"
#include "engine/cpu/matmul_f32_inl.h"
// clang-format on

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kGroupRows = 16;
constexpr uint32_t kTokenTile = 8;
constexpr uint32_t kPrefetchBytes = 2048;

// The activations of one tile of C rows.
struct Tile {
  const int8_t* quants;
  const float* scales;
  const float* sums;
  const int32_t* quant_sums;
};

inline __m512i LoadBytes64(const uint8_t* p) { return _mm512_loadu_si512(p); }

inline __m512i Broadcast4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return _mm512_set1_epi32(four);
}

template <bool kWide>
inline __m512 Load16Scales(const uint8_t* p) {
  if constexpr (kWide) return _mm512_loadu_ps(p);
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

inline void PrefetchLines(const uint8_t* p, uint32_t bytes) {
  for (uint32_t line = 0; line < bytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + line), _MM_HINT_T0);
  }
}

// acc[c] += scale * x_scale[c] * sums[c].
template <uint32_t C>
inline void Scale(__m512 scale, const float* x_scales, const __m512i* sums, __m512* acc) {
#pragma GCC unroll 8
  for (uint32_t c = 0; c < C; ++c) {
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[c]));
    acc[c] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(sums[c]), acc[c]);
  }
}

// acc[c] += minimum * x_sum[c].
template <uint32_t C>
inline void AddMinimum(__m512 minimum, const float* x_sums, __m512* acc) {
#pragma GCC unroll 8
  for (uint32_t c = 0; c < C; ++c) {
    acc[c] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x_sums[c]), acc[c]);
  }
}

template <uint32_t C, bool kWide>
inline void SumInt4(const uint8_t* block, uint32_t blocks, Tile tile, __m512* total) {
  constexpr uint32_t kScaleBytes = kGroupRows * (kWide ? 4 : 2);
  constexpr uint32_t kBytes = 2 * kScaleBytes + kGroupRows * 16;
  const __m512i low_bits = _mm512_set1_epi8(15);
  __m512 acc[C];
  for (uint32_t c = 0; c < C; ++c) acc[c] = _mm512_setzero_ps();
  for (uint32_t b = 0; b < blocks; ++b, block += kBytes) {
    PrefetchLines(block + kPrefetchBytes, kBytes);
    const int8_t* x = tile.quants + uint64_t{b} * C * 32;
    __m512i sums[C];
    for (uint32_t c = 0; c < C; ++c) sums[c] = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (uint32_t t = 0; t < 4; ++t) {
      const __m512i both = LoadBytes64(block + 2 * kScaleBytes + 64 * t);
      const __m512i low = _mm512_and_si512(both, low_bits);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_bits);
#pragma GCC unroll 8
      for (uint32_t c = 0; c < C; ++c) {
        const int8_t* x4 = x + c * 32 + 4 * t;
        sums[c] = _mm512_dpbusd_epi32(sums[c], low, Broadcast4(x4));
        sums[c] = _mm512_dpbusd_epi32(sums[c], high, Broadcast4(x4 + 16));
      }
    }
    Scale<C>(Load16Scales<kWide>(block), tile.scales + b * C, sums, acc);
    AddMinimum<C>(Load16Scales<kWide>(block + kScaleBytes), tile.sums + b * C, acc);
  }
  for (uint32_t c = 0; c < C; ++c) total[c] = acc[c];
}

// sums[c] += products over 16 columns, the weights shifted by 128.
template <uint32_t C>
inline void SumShifted(const uint8_t* quants, const int8_t* x, __m512i* sums) {
  const __m512i shift = _mm512_set1_epi8(-128);
#pragma GCC unroll 4
  for (uint32_t t = 0; t < 4; ++t) {
    const __m512i weight = _mm512_xor_si512(LoadBytes64(quants + 64 * t), shift);
#pragma GCC unroll 8
    for (uint32_t c = 0; c < C; ++c) {
      sums[c] = _mm512_dpbusd_epi32(sums[c], weight, Broadcast4(x + c * 32 + 4 * t));
    }
  }
}

// Sum of the first 16 of a block's activations.
inline int32_t SumOf16(const int8_t* x) {
  int32_t sum = 0;
  for (uint32_t i = 0; i < 16; ++i) sum += x[i];
  return sum;
}

template <uint32_t C, bool kWide, bool kMinimum, bool kHalves>
inline void SumInt8(const uint8_t* block, uint32_t blocks, Tile tile, __m512* total) {
  constexpr uint32_t kScaleBytes = kGroupRows * (kWide ? 4 : 2);
  constexpr uint32_t kQuantsAt = kScaleBytes * (1 + kMinimum + kHalves);
  constexpr uint32_t kBytes = kQuantsAt + kGroupRows * 32;
  __m512 acc[C];
  for (uint32_t c = 0; c < C; ++c) acc[c] = _mm512_setzero_ps();
  for (uint32_t b = 0; b < blocks; ++b, block += kBytes) {
    PrefetchLines(block + kPrefetchBytes, kBytes);
    const int8_t* x = tile.quants + uint64_t{b} * C * 32;
    const float* x_scales = tile.scales + b * C;
    const int32_t* x_sums = tile.quant_sums + b * C;
    __m512i sums[C];
    int32_t taken[C];  // of the activations' sum, in the first half
    for (uint32_t c = 0; c < C; ++c) {
      taken[c] = kHalves ? SumOf16(x + c * 32) : 0;
      sums[c] = _mm512_set1_epi32(-128 * (kHalves ? taken[c] : x_sums[c]));
    }
    SumShifted<C>(block + kQuantsAt, x, sums);
    __m512 scale = Load16Scales<kWide>(block);
    if constexpr (kHalves) {
      Scale<C>(scale, x_scales, sums, acc);
      scale = Load16Scales<kWide>(block + kScaleBytes);
      for (uint32_t c = 0; c < C; ++c) {
        sums[c] = _mm512_set1_epi32(-128 * (x_sums[c] - taken[c]));
      }
    }
    SumShifted<C>(block + kQuantsAt + kGroupRows * 16, x + 16, sums);
    Scale<C>(scale, x_scales, sums, acc);
    if constexpr (kMinimum) {
      AddMinimum<C>(Load16Scales<kWide>(block + kQuantsAt - kScaleBytes), tile.sums + b * C, acc);
    }
  }
  for (uint32_t c = 0; c < C; ++c) total[c] = acc[c];
}

void StoreTotals(const MatMul& task, uint32_t group, uint32_t row, uint32_t count,
                 const __m512* total) {
  const bool whole = (group + 1) * kGroupRows <= task.matrix.rows;
  for (uint32_t c = 0; c < count; ++c) {
    if (!whole) {
      alignas(64) float sums[kGroupRows];
      _mm512_store_ps(sums, total[c]);
      StoreSums(task, group, row + c, sums);
      continue;
    }
    float* output = task.output + (row + c - task.row_begin) * task.output_stride +
                    (group - task.group_begin) * kGroupRows;
    _mm512_storeu_ps(output,
                     task.add ? _mm512_add_ps(_mm512_loadu_ps(output), total[c]) : total[c]);
  }
}

// Runs Sum<C>(block, blocks, tile, total) over the task's groups and tiles.
template <typename Sum>
void ForTiles(const MatMul& task, Sum sum) {
  const MatrixView& m = task.matrix;
  const uint32_t blocks = m.blocks();
  const uint32_t step = task.inputs.token_tile;
  for (uint32_t group = task.group_begin; group < task.group_end; ++group) {
    const uint8_t* weights = m.data + group * m.group_bytes();
    for (uint32_t row = task.row_begin; row < task.row_end; row += step) {
      const uint64_t at = uint64_t{row} * blocks;
      const Tile tile{task.inputs.quants + at * 32, task.inputs.scales + at, task.inputs.sums + at,
                      task.inputs.quant_sums + at};
      const uint32_t count = task.inputs.tile_rows(row / step);
      __m512 total[kTokenTile];
      switch (count) {
        case 1:
          sum.template operator()<1>(weights, blocks, tile, total);
          break;
        case 2:
          sum.template operator()<2>(weights, blocks, tile, total);
          break;
        case 3:
          sum.template operator()<3>(weights, blocks, tile, total);
          break;
        case 4:
          sum.template operator()<4>(weights, blocks, tile, total);
          break;
        case 5:
          sum.template operator()<5>(weights, blocks, tile, total);
          break;
        case 6:
          sum.template operator()<6>(weights, blocks, tile, total);
          break;
        case 7:
          sum.template operator()<7>(weights, blocks, tile, total);
          break;
        default:
          sum.template operator()<8>(weights, blocks, tile, total);
      }
      StoreTotals(task, group, row, count, total);
    }
  }
}

template <bool kWide>
void RunInt4(const MatMul& task) {
  ForTiles(task, []<uint32_t C>(const uint8_t* w, uint32_t blocks, Tile tile, __m512* total) {
    SumInt4<C, kWide>(w, blocks, tile, total);
  });
}

template <bool kWide, bool kMinimum, bool kHalves>
void RunInt8(const MatMul& task) {
  ForTiles(task, []<uint32_t C>(const uint8_t* w, uint32_t blocks, Tile tile, __m512* total) {
    SumInt8<C, kWide, kMinimum, kHalves>(w, blocks, tile, total);
  });
}

void MatMulInt8(const MatMul& task) {
  const Format& format = task.matrix.format;
  if (format.kind == WeightKind::kInt4) {
    return format.wide ? RunInt4<true>(task) : RunInt4<false>(task);
  }
  if (format.halves) return RunInt8<true, false, true>(task);
  if (format.wide) return RunInt8<true, true, false>(task);
  return format.minimum ? RunInt8<false, true, false>(task) : RunInt8<false, false, false>(task);
}

}  // namespace

const Kernels& BATON_AVX512_KERNELS() {
  static const Kernels kernels{.name = "avx512-vnni",
                               .lanes = kGroupRows,
                               .token_tile = kTokenTile,
                               .matmul_int8 = MatMulInt8,
                               .matmul_f32 = MatMulF32,
                               .store_inputs = StoreInputs,
                               .rms_norm = RmsNorm,
                               .swiglu = SwiGlu,
                               .rope = Rope,
                               .store_kv = StoreKv,
                               .attend = Attend,
                               .merge = Merge,
                               .finish = Finish};
  return kernels;
}

}  // namespace baton::engine::cpu
