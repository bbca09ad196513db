// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// AVX-512 on a machine without it, for testing kernels_avx512.cc bit by bit: SIMDe's
// portable intrinsics, and the conversions that it lacks.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>

static inline simde__m512 EmulatedConvertInts(simde__m512i values) {
  alignas(64) int32_t ints[16];
  alignas(64) float floats[16];
  simde_mm512_store_si512(ints, values);
  for (int i = 0; i < 16; ++i) floats[i] = static_cast<float>(ints[i]);
  return simde_mm512_loadu_ps(floats);
}

static inline simde__m512 EmulatedConvertHalves(simde__m256i values) {
  alignas(32) uint16_t halves[16];
  alignas(64) float floats[16];
  simde_mm256_store_si256(reinterpret_cast<simde__m256i*>(halves), values);
  for (int i = 0; i < 16; i += 8) {
    simde_mm256_storeu_ps(floats + i, simde_mm256_cvtph_ps(simde_mm_loadu_si128(
                                          reinterpret_cast<const simde__m128i*>(halves + i))));
  }
  return simde_mm512_loadu_ps(floats);
}

static inline simde__m512i EmulatedConvertFloats(simde__m512 values) {
  alignas(64) float floats[16];
  alignas(64) int32_t ints[16];
  simde_mm512_storeu_ps(floats, values);
  for (int i = 0; i < 16; ++i) ints[i] = static_cast<int32_t>(__builtin_nearbyintf(floats[i]));
  return simde_mm512_load_si512(ints);
}

static inline simde__m512i EmulatedWidenWords(simde__m256i values) {
  alignas(32) uint16_t words[16];
  alignas(64) uint32_t wide[16];
  simde_mm256_store_si256(reinterpret_cast<simde__m256i*>(words), values);
  for (int i = 0; i < 16; ++i) wide[i] = words[i];
  return simde_mm512_load_si512(wide);
}

static inline simde__m256i EmulatedNarrowWords(simde__m512i values) {
  alignas(64) uint32_t wide[16];
  alignas(32) uint16_t words[16];
  simde_mm512_store_si512(wide, values);
  for (int i = 0; i < 16; ++i) words[i] = static_cast<uint16_t>(wide[i]);
  return simde_mm256_load_si256(reinterpret_cast<const simde__m256i*>(words));
}

static inline simde__m512 EmulatedShuffleQuarters(simde__m512 a, simde__m512 b, int quarters) {
  alignas(64) float from[2][16];
  alignas(64) float to[16];
  simde_mm512_storeu_ps(from[0], a);
  simde_mm512_storeu_ps(from[1], b);
  for (int i = 0; i < 16; ++i) {
    const int quarter = (quarters >> (i / 4 * 2)) & 3;
    to[i] = from[i / 8][quarter * 4 + i % 4];
  }
  return simde_mm512_loadu_ps(to);
}

static inline simde__m512i EmulatedWidenBytes(simde__m128i values) {
  alignas(16) int8_t bytes[16];
  alignas(64) int32_t wide[16];
  simde_mm_store_si128(reinterpret_cast<simde__m128i*>(bytes), values);
  for (int i = 0; i < 16; ++i) wide[i] = bytes[i];
  return simde_mm512_load_si512(wide);
}

static inline simde__m512i EmulatedShiftRight(simde__m512i values, int count) {
  alignas(64) int32_t wide[16];
  simde_mm512_store_si512(wide, values);
  for (int32_t& value : wide) value >>= count;
  return simde_mm512_load_si512(wide);
}

#undef _mm512_cvtepi8_epi32
#define _mm512_cvtepi8_epi32(values) EmulatedWidenBytes(values)
#undef _mm512_srai_epi32
#define _mm512_srai_epi32(values, count) EmulatedShiftRight(values, count)
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32(values) EmulatedWidenWords(values)
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16(values) EmulatedNarrowWords(values)
#undef _mm512_shuffle_f32x4
#define _mm512_shuffle_f32x4(a, b, quarters) EmulatedShuffleQuarters(a, b, quarters)
#undef _mm512_cvtps_epi32
#define _mm512_cvtps_epi32(values) EmulatedConvertFloats(values)
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(values) EmulatedConvertInts(values)
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(values) EmulatedConvertHalves(values)
