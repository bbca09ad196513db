// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Eight float lanes as one AVX2 register; simd_scalar.h says what each function means.
//
// Included only by files compiled for AVX2 or more, which have included the intrinsics.
// simd_wide_pair.h or simd_avx512.h adds sixteen lanes.
#pragma once

#include <cstdint>

namespace baton::engine::cpu {
namespace {

inline constexpr uint32_t kLanes = 8;

using V8 = __m256;

inline V8 Set1(float x) { return _mm256_set1_ps(x); }
inline V8 Zero() { return _mm256_setzero_ps(); }
inline V8 Load(const float* p) { return _mm256_loadu_ps(p); }
inline void Store(float* p, V8 a) { _mm256_storeu_ps(p, a); }
inline V8 Add(V8 a, V8 b) { return _mm256_add_ps(a, b); }
inline V8 Sub(V8 a, V8 b) { return _mm256_sub_ps(a, b); }
inline V8 Mul(V8 a, V8 b) { return _mm256_mul_ps(a, b); }
inline V8 Div(V8 a, V8 b) { return _mm256_div_ps(a, b); }
inline V8 Fma(V8 a, V8 b, V8 c) { return _mm256_fmadd_ps(a, b, c); }
inline V8 Max(V8 a, V8 b) { return _mm256_max_ps(a, b); }
inline V8 Min(V8 a, V8 b) { return _mm256_min_ps(a, b); }
inline V8 Abs(V8 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
inline V8 Round(V8 a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline V8 KeepIfAtLeast(V8 x, V8 limit, V8 a) {
  return _mm256_and_ps(_mm256_cmp_ps(x, limit, _CMP_GE_OQ), a);
}
inline V8 ScaleByPowerOf2(V8 a, V8 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}
inline float Sum(V8 a) {
  const V8 pairs = _mm256_hadd_ps(a, a);
  const V8 fours = _mm256_hadd_ps(pairs, pairs);
  return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(fours), _mm256_extractf128_ps(fours, 1)));
}
inline float Highest(V8 a) {
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline V8 LoadHalf(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
inline V8 LoadBrain(const void* p) {
  const __m128i brain = _mm_loadu_si128(static_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(brain), 16));
}
inline V8 LoadSigned(const void* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))));
}
inline void StoreHalf(void* p, V8 a) {
  _mm_storeu_si128(static_cast<__m128i*>(p),
                   _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline void StoreBrain(void* p, V8 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  _mm_storeu_si128(
      static_cast<__m128i*>(p),
      _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
}
inline V8 LowBrains(V8 units) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(units), 16));
}
inline V8 HighBrains(V8 units) {
  return _mm256_and_ps(units, _mm256_castsi256_ps(_mm256_set1_epi32(-65536)));
}
inline V8 HalvesOf(__m256i words) {
  return _mm256_cvtph_ps(
      _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline V8 LowHalves(V8 units) {
  return HalvesOf(_mm256_and_si256(_mm256_castps_si256(units), _mm256_set1_epi32(0xffff)));
}
inline V8 HighHalves(V8 units) {
  return HalvesOf(_mm256_srli_epi32(_mm256_castps_si256(units), 16));
}
template <int j>
inline V8 SignedBytes(V8 units) {
  const __m256i words = _mm256_castps_si256(units);
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * j), 24));
}

// Even and odd columns become the first and the second half of the columns.
inline void Interleave(V8& even, V8& odd) {
  const V8 low = _mm256_unpacklo_ps(even, odd);
  const V8 high = _mm256_unpackhi_ps(even, odd);
  even = _mm256_permute2f128_ps(low, high, 0x20);
  odd = _mm256_permute2f128_ps(low, high, 0x31);
}

// Units [4 h, 4 h + 4) of rows i and i + 4 in one register.
inline V8 LoadQuads(const uint8_t* rows, uint64_t stride, uint32_t i, uint32_t h) {
  const auto* first = reinterpret_cast<const float*>(rows + i * stride) + 4 * h;
  const auto* second = reinterpret_cast<const float*>(rows + (i + 4) * stride) + 4 * h;
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(first)), _mm_loadu_ps(second), 1);
}
inline void Transpose8(const uint8_t* rows, uint64_t stride, V8* units) {
#pragma GCC unroll 2
  for (uint32_t h = 0; h < 2; ++h) {
    const V8 a = LoadQuads(rows, stride, 0, h);
    const V8 b = LoadQuads(rows, stride, 1, h);
    const V8 c = LoadQuads(rows, stride, 2, h);
    const V8 d = LoadQuads(rows, stride, 3, h);
    const __m256d low_ab = _mm256_castps_pd(_mm256_unpacklo_ps(a, b));
    const __m256d high_ab = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
    const __m256d low_cd = _mm256_castps_pd(_mm256_unpacklo_ps(c, d));
    const __m256d high_cd = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
    units[4 * h] = _mm256_castpd_ps(_mm256_unpacklo_pd(low_ab, low_cd));
    units[4 * h + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low_ab, low_cd));
    units[4 * h + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high_ab, high_cd));
    units[4 * h + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high_ab, high_cd));
  }
}

inline V8 LoadNibbles(const uint8_t* p, int shift) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_cvtepi32_ps(
      _mm256_and_si256(_mm256_srli_epi32(words, shift), _mm256_set1_epi32(15)));
}
inline V8 LoadBytes(const uint8_t* p, int j) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * j), 24));
}
inline int32_t StoreBytes(int8_t* p, V8 a) {
  const __m256i words = _mm256_cvtps_epi32(a);
  const __m128i low = _mm256_castsi256_si128(words);
  const __m128i high = _mm256_extracti128_si256(words, 1);
  const __m128i bytes = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), bytes);
  __m128i sum = _mm_add_epi32(low, high);
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
  sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
  return _mm_cvtsi128_si32(sum);
}
// Into the second-level cache.  Not the intrinsic: GCC takes a function that does nothing but
// prefetch for one without any effect, and drops its calls.
inline void Prefetch(const void* p) {
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
}

}  // namespace
}  // namespace baton::engine::cpu

#include "engine/cpu/simd_as_inl.h"
