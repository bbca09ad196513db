// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// AVX2 kernels: 8 rows of weights in the lanes, up to 6 rows of activations in registers.
//
// A vector of weights holds 4 columns of 8 rows; an activation's same 4 columns are broadcast
// to all lanes.  4-bit products are at most 15 * 127, so eight pairs of them still fit a
// 16-bit lane and one widening addition serves 32 columns.  8-bit products are pairs of at
// most 2 * 128 * 127 < 2^15 once the sign is moved from the weight to the activation.
#include <immintrin.h>

#include "engine/cpu/kernels.h"
// In the order of their needs.
// clang-format off
#include "engine/cpu/simd_avx2.h"
#include "engine/cpu/simd_pair.h"
#include "engine/cpu/rows_inl.h"
#include "engine/cpu/attention_inl.h"
#include "engine/cpu/matmul_f32_inl.h"
#include "engine/cpu/probes_inl.h"
// clang-format on

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kGroupRows = 8;
constexpr uint32_t kTokenTile = 6;
constexpr uint32_t kPrefetchBytes = 2048;

// The activations of one tile of C rows.
struct Tile {
  const int8_t* quants;
  const float* scales;
  const float* sums;
  const int32_t* quant_sums;
};

inline __m256i LoadBytes32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// Makes the compiler compute `sums` here: it would otherwise regroup the additions and run
// out of registers.
inline void KeepOrder(__m256i& sums) { asm("" : "+x"(sums)); }

inline __m256i Broadcast4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, sizeof(four));
  return _mm256_set1_epi32(four);
}

// Sums of adjacent 16-bit lanes as 32-bit lanes.
inline __m256i Widen(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }

template <uint32_t C, bool kWideScales, bool kMinimum>
inline void SumInt4(const uint8_t* block, uint32_t blocks, const Tile& tile, __m256* total) {
  constexpr uint32_t kScaleBytes = kGroupRows * (kWideScales ? 4 : 2);
  constexpr uint32_t kQuantsAt = kScaleBytes * (1 + kMinimum);
  constexpr uint32_t kBytes = kQuantsAt + kGroupRows * 16;
  const __m256i low_bits = _mm256_set1_epi8(15);
  __m256 acc[C];
  for (uint32_t c = 0; c < C; ++c) acc[c] = _mm256_setzero_ps();
  for (uint32_t b = 0; b < blocks; ++b, block += kBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(block + kPrefetchBytes), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(block + kPrefetchBytes + 64), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(block + kPrefetchBytes + 128), _MM_HINT_T0);
    __m256i sums[C];
#pragma GCC unroll 4
    for (uint32_t t = 0; t < 4; ++t) {
      const __m256i both = LoadBytes32(block + kQuantsAt + 32 * t);
      const __m256i low = _mm256_and_si256(both, low_bits);
      const int8_t* x = tile.quants + uint64_t{b} * C * 32 + 4 * t;
#pragma GCC unroll 8
      for (uint32_t c = 0; c < C; ++c) {
        const __m256i product = _mm256_maddubs_epi16(low, Broadcast4(x + c * 32));
        sums[c] = t == 0 ? product : _mm256_add_epi16(sums[c], product);
        KeepOrder(sums[c]);
      }
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_bits);
#pragma GCC unroll 8
      for (uint32_t c = 0; c < C; ++c) {
        const __m256i product = _mm256_maddubs_epi16(high, Broadcast4(x + c * 32 + 16));
        sums[c] = _mm256_add_epi16(sums[c], product);
        KeepOrder(sums[c]);
      }
    }
    const __m256 scale = LoadScales(block, kWideScales);
#pragma GCC unroll 8
    for (uint32_t c = 0; c < C; ++c) {
      const __m256 both_scales = _mm256_mul_ps(scale, _mm256_set1_ps(tile.scales[b * C + c]));
      __m256i wide = Widen(sums[c]);
      if constexpr (!kMinimum) {
        const int32_t offset = -kNibbleOffset * tile.quant_sums[b * C + c];
        wide = _mm256_add_epi32(wide, _mm256_set1_epi32(offset));
      }
      acc[c] = _mm256_fmadd_ps(both_scales, _mm256_cvtepi32_ps(wide), acc[c]);
    }
    if constexpr (kMinimum) {
      const __m256 minimum = LoadScales(block + kScaleBytes, kWideScales);
      for (uint32_t c = 0; c < C; ++c) {
        acc[c] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(tile.sums[b * C + c]), acc[c]);
      }
    }
  }
  for (uint32_t c = 0; c < C; ++c) total[c] = acc[c];
}

// Integer sums over 16 columns: vectors [t, t + 4) of a block of signed bytes.
template <uint32_t C>
inline void SumSigned(const uint8_t* quants, const int8_t* x, __m256i* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (uint32_t t = 0; t < 4; ++t) {
    const __m256i weight = LoadBytes32(quants + 32 * t);
    const __m256i magnitude = _mm256_abs_epi8(weight);
#pragma GCC unroll 8
    for (uint32_t c = 0; c < C; ++c) {
      const __m256i signed_x = _mm256_sign_epi8(Broadcast4(x + c * 32 + 4 * t), weight);
      const __m256i pairs = _mm256_maddubs_epi16(magnitude, signed_x);
      sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pairs, ones));
      KeepOrder(sums[c]);
    }
  }
}

template <uint32_t C, bool kWideScales, bool kMinimum, bool kHalves>
inline void SumInt8(const uint8_t* block, uint32_t blocks, const Tile& tile, __m256* total) {
  constexpr uint32_t kScaleBytes = kGroupRows * (kWideScales ? 4 : 2);
  constexpr uint32_t kQuantsAt = kScaleBytes * (1 + kMinimum + kHalves);
  constexpr uint32_t kBytes = kQuantsAt + kGroupRows * 32;
  __m256 acc[C];
  for (uint32_t c = 0; c < C; ++c) acc[c] = _mm256_setzero_ps();
  for (uint32_t b = 0; b < blocks; ++b, block += kBytes) {
    for (uint32_t line = 0; line < kBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(block + kPrefetchBytes + line), _MM_HINT_T0);
    }
    const int8_t* x = tile.quants + uint64_t{b} * C * 32;
    const float* x_scales = tile.scales + b * C;
    __m256i sums[C];
    for (uint32_t c = 0; c < C; ++c) sums[c] = _mm256_setzero_si256();
    SumSigned<C>(block + kQuantsAt, x, sums);
    __m256 scale = LoadScales(block, kWideScales);
    if constexpr (kHalves) {
      for (uint32_t c = 0; c < C; ++c) {
        const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x_scales[c]));
        acc[c] = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(sums[c]), acc[c]);
        sums[c] = _mm256_setzero_si256();
      }
      scale = LoadScales(block + kScaleBytes, kWideScales);
    }
    SumSigned<C>(block + kQuantsAt + kGroupRows * 16, x + 16, sums);
#pragma GCC unroll 8
    for (uint32_t c = 0; c < C; ++c) {
      const __m256 both = _mm256_mul_ps(scale, _mm256_set1_ps(x_scales[c]));
      acc[c] = _mm256_fmadd_ps(both, _mm256_cvtepi32_ps(sums[c]), acc[c]);
    }
    if constexpr (kMinimum) {
      const __m256 minimum = LoadScales(block + kQuantsAt - kScaleBytes, kWideScales);
      for (uint32_t c = 0; c < C; ++c) {
        acc[c] = _mm256_fmadd_ps(minimum, _mm256_set1_ps(tile.sums[b * C + c]), acc[c]);
      }
    }
  }
  for (uint32_t c = 0; c < C; ++c) total[c] = acc[c];
}

uint64_t ProbeInt8(uint64_t rounds) {
  __m256i x = _mm256_set1_epi8(1);
  Keep(x);
  ProbeSums(rounds, _mm256_setzero_si256(), [&](__m256i sum) {
    __m256i y = x;
    Keep(y);
    return _mm256_add_epi16(sum, _mm256_maddubs_epi16(y, x));
  });
  return rounds * kProbeSums * 32;
}

}  // namespace
}  // namespace baton::engine::cpu

#include "engine/cpu/matmul_int_inl.h"

namespace baton::engine::cpu {

const Kernels& Avx2Kernels() {
  static const Kernels kernels{.name = "avx2",
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
                               .probes = {ProbeInt8, ProbeFloats, ProbeRead}};
  return kernels;
}

}  // namespace baton::engine::cpu
