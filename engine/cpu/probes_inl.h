// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Loops that do nothing but what limits the kernels: see Probes in kernels.h.
//
// Included once per instruction set, after the header that defines Wide.
#pragma once

#include "engine/cpu/kernels.h"

namespace baton::engine::cpu {
namespace {

// Makes the compiler believe that the value is used and changed.
template <typename V>
inline void Keep(V& value) {
  asm volatile("" : "+v"(value));
}

// As many sums as hide the latency of an instruction.
constexpr uint32_t kProbeSums = 10;

// Runs step(sum) on kProbeSums independent sums, `rounds` times.
template <typename V, typename Step>
inline void ProbeSums(uint64_t rounds, V zero, Step step) {
  V sums[kProbeSums];
  for (uint32_t i = 0; i < kProbeSums; ++i) sums[i] = zero;
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (uint32_t i = 0; i < kProbeSums; ++i) {
      sums[i] = step(sums[i]);
      Keep(sums[i]);
    }
  }
}

uint64_t ProbeFloats(uint64_t rounds) {
  Wide x = Splat<Wide>(0.5f);
  Keep(x);
  ProbeSums(rounds, Splat<Wide>(0.0f), [&](Wide sum) { return Fma(x, x, sum); });
  return rounds * kProbeSums * kWide;
}

void ProbeRead(const uint8_t* memory, uint64_t bytes) {
  constexpr uint32_t kStreams = 4;
  constexpr uint32_t kLine = 64;
  constexpr uint32_t kAhead = 4096;
  const uint64_t part = bytes / kStreams;
  Wide sums[kStreams];
  for (Wide& sum : sums) sum = Splat<Wide>(0.0f);
  for (uint64_t at = 0; at < part; at += kLine) {
#pragma GCC unroll 4
    for (uint32_t s = 0; s < kStreams; ++s) {
      const uint8_t* line = memory + s * part + at;
      Prefetch(line + kAhead);
#pragma GCC unroll 2
      for (uint32_t i = 0; i < kLine; i += sizeof(Wide)) {
        sums[s] = Max(sums[s], LoadAs<Wide>(reinterpret_cast<const float*>(line + i)));
      }
    }
  }
  for (Wide& sum : sums) Keep(sum);
}

}  // namespace
}  // namespace baton::engine::cpu
