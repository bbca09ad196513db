// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// AVX-512 on a machine without it, for testing kernels_avx512.cc bit by bit: SIMDe's
// portable intrinsics, and the two conversions that it lacks.
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

#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps(values) EmulatedConvertInts(values)
#undef _mm512_cvtph_ps
#define _mm512_cvtph_ps(values) EmulatedConvertHalves(values)
