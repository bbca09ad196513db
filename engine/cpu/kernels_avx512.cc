// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// AVX-512 kernels: 16 rows of weights in the lanes, up to 12 rows of activations in registers.
//
// VNNI multiplies unsigned weight bytes with signed activation bytes and adds four products
// to a 32-bit lane, without saturation.  4-bit weights are unsigned as they are; 8-bit ones
// are shifted by 128, and 128 times the activations' sum is taken off again, in integers.
//
// A test includes this file after an emulation of the instructions, under another name.
#ifndef BATON_AVX512_KERNELS
#include <immintrin.h>
#define BATON_AVX512_KERNELS Avx512Kernels
#define BATON_AVX512_PROBES  // what an emulation cannot measure
#endif

#include "engine/cpu/kernels.h"
// In the order of their needs.
// clang-format off
#include "engine/cpu/simd_avx2.h"
#include "engine/cpu/simd_avx512.h"
#include "engine/cpu/rows_inl.h"
#include "engine/cpu/attention_inl.h"
#include "engine/cpu/matmul_f32_inl.h"
#ifdef BATON_AVX512_PROBES
#include "engine/cpu/probes_inl.h"
#endif
// clang-format on

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kGroupRows = 16;
constexpr uint32_t kTokenTile = 12;
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

template <bool kWideScales>
inline __m512 Load16Scales(const uint8_t* p) {
  if constexpr (kWideScales) return _mm512_loadu_ps(p);
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
#pragma GCC unroll 16
  for (uint32_t c = 0; c < C; ++c) {
    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x_scales[c]));
    acc[c] = _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(sums[c]), acc[c]);
  }
}

// acc[c] += minimum * x_sum[c].
template <uint32_t C>
inline void AddMinimum(__m512 minimum, const float* x_sums, __m512* acc) {
#pragma GCC unroll 16
  for (uint32_t c = 0; c < C; ++c) {
    acc[c] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x_sums[c]), acc[c]);
  }
}

template <uint32_t C, bool kWideScales, bool kMinimum>
inline void SumInt4(const uint8_t* block, uint32_t blocks, const Tile& tile, __m512* total) {
  constexpr uint32_t kScaleBytes = kGroupRows * (kWideScales ? 4 : 2);
  constexpr uint32_t kQuantsAt = kScaleBytes * (1 + kMinimum);
  constexpr uint32_t kBytes = kQuantsAt + kGroupRows * 16;
  const __m512i low_bits = _mm512_set1_epi8(15);
  __m512 acc[C];
  for (uint32_t c = 0; c < C; ++c) acc[c] = _mm512_setzero_ps();
  for (uint32_t b = 0; b < blocks; ++b, block += kBytes) {
    PrefetchLines(block + kPrefetchBytes, kBytes);
    const int8_t* x = tile.quants + uint64_t{b} * C * 32;
    __m512i sums[C];
    for (uint32_t c = 0; c < C; ++c) {
      sums[c] = kMinimum ? _mm512_setzero_si512()
                         : _mm512_set1_epi32(-kNibbleOffset * tile.quant_sums[b * C + c]);
    }
#pragma GCC unroll 4
    for (uint32_t t = 0; t < 4; ++t) {
      const __m512i both = LoadBytes64(block + kQuantsAt + 64 * t);
      const __m512i low = _mm512_and_si512(both, low_bits);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_bits);
#pragma GCC unroll 16
      for (uint32_t c = 0; c < C; ++c) {
        const int8_t* x4 = x + c * 32 + 4 * t;
        sums[c] = _mm512_dpbusd_epi32(sums[c], low, Broadcast4(x4));
        sums[c] = _mm512_dpbusd_epi32(sums[c], high, Broadcast4(x4 + 16));
      }
    }
    Scale<C>(Load16Scales<kWideScales>(block), tile.scales + b * C, sums, acc);
    if constexpr (kMinimum) {
      AddMinimum<C>(Load16Scales<kWideScales>(block + kScaleBytes), tile.sums + b * C, acc);
    }
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
#pragma GCC unroll 16
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

template <uint32_t C, bool kWideScales, bool kMinimum, bool kHalves>
inline void SumInt8(const uint8_t* block, uint32_t blocks, const Tile& tile, __m512* total) {
  constexpr uint32_t kScaleBytes = kGroupRows * (kWideScales ? 4 : 2);
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
    __m512 scale = Load16Scales<kWideScales>(block);
    if constexpr (kHalves) {
      Scale<C>(scale, x_scales, sums, acc);
      scale = Load16Scales<kWideScales>(block + kScaleBytes);
      for (uint32_t c = 0; c < C; ++c) {
        sums[c] = _mm512_set1_epi32(-128 * (x_sums[c] - taken[c]));
      }
    }
    SumShifted<C>(block + kQuantsAt + kGroupRows * 16, x + 16, sums);
    Scale<C>(scale, x_scales, sums, acc);
    if constexpr (kMinimum) {
      AddMinimum<C>(Load16Scales<kWideScales>(block + kQuantsAt - kScaleBytes), tile.sums + b * C,
                    acc);
    }
  }
  for (uint32_t c = 0; c < C; ++c) total[c] = acc[c];
}

#ifdef BATON_AVX512_PROBES
uint64_t ProbeInt8(uint64_t rounds) {
  __m512i x = _mm512_set1_epi8(1);
  Keep(x);
  ProbeSums(rounds, _mm512_setzero_si512(),
            [&](__m512i sum) { return _mm512_dpbusd_epi32(sum, x, x); });
  return rounds * kProbeSums * 64;
}

constexpr Probes kProbes = {ProbeInt8, ProbeFloats, ProbeRead};
#else
constexpr Probes kProbes;
#endif

}  // namespace
}  // namespace baton::engine::cpu

#include "engine/cpu/matmul_int_inl.h"

namespace baton::engine::cpu {

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
                               .finish = Finish,
                               .probes = kProbes};
  return kernels;
}

}  // namespace baton::engine::cpu
