// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Sixteen float lanes as one AVX-512 register.
//
// Included after simd_avx2.h by files compiled for AVX-512 F, BW, VL and DQ.
#pragma once

#include <cstdint>

namespace baton::engine::cpu {
namespace {

using V16 = __m512;

// The widest register, and how many of them a product's sums may take.
using Wide = V16;
inline constexpr uint32_t kWideSums = 24;

template <>
inline V16 Splat<V16>(float x) {
  return _mm512_set1_ps(x);
}
template <>
inline V16 LoadAs<V16>(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void Store(float* p, V16 a) { _mm512_storeu_ps(p, a); }
inline V16 Add(V16 a, V16 b) { return _mm512_add_ps(a, b); }
inline V16 Sub(V16 a, V16 b) { return _mm512_sub_ps(a, b); }
inline V16 Mul(V16 a, V16 b) { return _mm512_mul_ps(a, b); }
inline V16 Div(V16 a, V16 b) { return _mm512_div_ps(a, b); }
inline V16 Fma(V16 a, V16 b, V16 c) { return _mm512_fmadd_ps(a, b, c); }
inline V16 Max(V16 a, V16 b) { return _mm512_max_ps(a, b); }
inline V16 Min(V16 a, V16 b) { return _mm512_min_ps(a, b); }
inline V16 Abs(V16 a) { return _mm512_abs_ps(a); }
inline V16 Round(V16 a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline V16 KeepIfAtLeast(V16 x, V16 limit, V16 a) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GE_OQ), a);
}
inline V16 ScaleByPowerOf2(V16 a, V16 n) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_mul_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)));
}
inline V8 LowerHalf(V16 a) { return _mm512_castps512_ps256(a); }
inline V8 UpperHalf(V16 a) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
}
inline float Sum(V16 a) { return Sum(Add(LowerHalf(a), UpperHalf(a))); }
inline float Highest(V16 a) { return Highest(Max(LowerHalf(a), UpperHalf(a))); }
template <>
inline V16 LoadHalfAs<V16>(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
template <>
inline V16 LoadBrainAs<V16>(const void* p) {
  const __m256i brain = _mm256_loadu_si256(static_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(brain), 16));
}
template <>
inline V16 LoadSignedAs<V16>(const void* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))));
}
inline int32_t StoreBytes(int8_t* p, V16 a) {
  return StoreBytes(p, LowerHalf(a)) + StoreBytes(p + kLanes, UpperHalf(a));
}
inline V16 LowBrains(V16 units) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(units), 16));
}
inline V16 HighBrains(V16 units) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(units), _mm512_set1_epi32(-65536)));
}
inline V16 LowHalves(V16 units) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_castps_si512(units)));
}
inline V16 HighHalves(V16 units) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(units), 16)));
}
// Even and odd columns become the first and the second half of the columns.
inline void Interleave(V16& even, V16& odd) {
  const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  const V16 lower = _mm512_permutex2var_ps(even, first, odd);
  odd = _mm512_permutex2var_ps(even, second, odd);
  even = lower;
}
template <int j>
inline V16 SignedBytes(V16 units) {
  const __m512i words = _mm512_slli_epi32(_mm512_castps_si512(units), 24 - 8 * j);
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(words, 24));
}

// Four 128-bit quarters: [a0 a2 b0 b2] or [a1 a3 b1 b3].
inline V16 EvenQuarters(V16 a, V16 b) { return _mm512_shuffle_f32x4(a, b, 0x88); }
inline V16 OddQuarters(V16 a, V16 b) { return _mm512_shuffle_f32x4(a, b, 0xdd); }

// A square of units, as many as lanes: lane i of units[u] becomes unit u of row i.
inline void TransposeSquare(const uint8_t* rows, uint64_t stride, Wide* units) {
  // Within quarters: quads[g][j] quarter q has unit 4 q + j of rows 4 g to 4 g + 3.
  V16 quads[4][4];
#pragma GCC unroll 4
  for (uint32_t g = 0; g < 4; ++g) {
    const auto row = [&](uint32_t i) {
      return LoadAs<V16>(reinterpret_cast<const float*>(rows + (4 * g + i) * stride));
    };
    const V16 a = row(0);
    const V16 b = row(1);
    const V16 c = row(2);
    const V16 d = row(3);
    const __m512d low_ab = _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
    const __m512d high_ab = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    const __m512d low_cd = _mm512_castps_pd(_mm512_unpacklo_ps(c, d));
    const __m512d high_cd = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    quads[g][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low_ab, low_cd));
    quads[g][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low_ab, low_cd));
    quads[g][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high_ab, high_cd));
    quads[g][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high_ab, high_cd));
  }
  // Across quarters.
#pragma GCC unroll 4
  for (uint32_t j = 0; j < 4; ++j) {
    const V16 even_low = EvenQuarters(quads[0][j], quads[1][j]);
    const V16 odd_low = OddQuarters(quads[0][j], quads[1][j]);
    const V16 even_high = EvenQuarters(quads[2][j], quads[3][j]);
    const V16 odd_high = OddQuarters(quads[2][j], quads[3][j]);
    units[j] = EvenQuarters(even_low, even_high);
    units[8 + j] = OddQuarters(even_low, even_high);
    units[4 + j] = EvenQuarters(odd_low, odd_high);
    units[12 + j] = OddQuarters(odd_low, odd_high);
  }
}

}  // namespace
}  // namespace baton::engine::cpu
