// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Eight float lanes in plain C++: what the vector instructions of simd_avx2.h mean.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/cpu/float16.h"

namespace baton::engine::cpu {
namespace {

inline constexpr uint32_t kLanes = 8;

struct V8 {
  float lane[8];
};

template <typename F>
V8 Each(F f) {
  V8 result;
  for (uint32_t i = 0; i < 8; ++i) result.lane[i] = f(i);
  return result;
}

inline V8 Set1(float x) {
  return Each([&](uint32_t) { return x; });
}
inline V8 Zero() { return Set1(0.0f); }
inline V8 Load(const float* p) {
  return Each([&](uint32_t i) { return p[i]; });
}
inline void Store(float* p, V8 a) { std::memcpy(p, a.lane, sizeof(a.lane)); }
inline V8 Add(V8 a, V8 b) {
  return Each([&](uint32_t i) { return a.lane[i] + b.lane[i]; });
}
inline V8 Sub(V8 a, V8 b) {
  return Each([&](uint32_t i) { return a.lane[i] - b.lane[i]; });
}
inline V8 Mul(V8 a, V8 b) {
  return Each([&](uint32_t i) { return a.lane[i] * b.lane[i]; });
}
inline V8 Div(V8 a, V8 b) {
  return Each([&](uint32_t i) { return a.lane[i] / b.lane[i]; });
}
// a * b + c, rounded once.
inline V8 Fma(V8 a, V8 b, V8 c) {
  return Each([&](uint32_t i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
// The second operand if either is a NaN.
inline V8 Max(V8 a, V8 b) {
  return Each([&](uint32_t i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline V8 Min(V8 a, V8 b) {
  return Each([&](uint32_t i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline V8 Abs(V8 a) {
  return Each([&](uint32_t i) { return std::fabs(a.lane[i]); });
}
inline V8 Round(V8 a) {
  return Each([&](uint32_t i) { return std::nearbyint(a.lane[i]); });
}
// a where x >= limit, else 0.
inline V8 KeepIfAtLeast(V8 x, V8 limit, V8 a) {
  return Each([&](uint32_t i) { return x.lane[i] >= limit.lane[i] ? a.lane[i] : 0.0f; });
}
// a * 2^n for integral n in [-126, 127].
inline V8 ScaleByPowerOf2(V8 a, V8 n) {
  return Each([&](uint32_t i) {
    const auto exponent = static_cast<int32_t>(n.lane[i]) + 127;
    return a.lane[i] * FloatFromBits(static_cast<uint32_t>(exponent) << 23);
  });
}
// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
inline float Sum(V8 a) {
  const float* x = a.lane;
  return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
inline float Highest(V8 a) {
  float highest = a.lane[0];
  for (uint32_t i = 1; i < 8; ++i) highest = highest > a.lane[i] ? highest : a.lane[i];
  return highest;
}

inline V8 LoadHalf(const void* p) {
  uint16_t half[8];
  std::memcpy(half, p, sizeof(half));
  return Each([&](uint32_t i) { return HalfToFloat(half[i]); });
}
inline V8 LoadBrain(const void* p) {
  uint16_t brain[8];
  std::memcpy(brain, p, sizeof(brain));
  return Each([&](uint32_t i) { return BrainToFloat(brain[i]); });
}
// Lane i: signed byte i.
inline V8 LoadSigned(const void* p) {
  int8_t bytes[8];
  std::memcpy(bytes, p, sizeof(bytes));
  return Each([&](uint32_t i) { return static_cast<float>(bytes[i]); });
}
inline void StoreHalf(void* p, V8 a) {
  uint16_t half[8];
  for (uint32_t i = 0; i < 8; ++i) half[i] = FloatToHalf(a.lane[i]);
  std::memcpy(p, half, sizeof(half));
}
// REQUIRES: no NaN.
inline void StoreBrain(void* p, V8 a) {
  uint16_t brain[8];
  for (uint32_t i = 0; i < 8; ++i) brain[i] = FloatToBrain(a.lane[i]);
  std::memcpy(p, brain, sizeof(brain));
}
// A unit is the 32 bits of a lane: one float; two values of 16 bits, of which these take the
// lower or the higher as floats; or four signed bytes, of which SignedBytes takes one.
inline uint16_t HalfOfUnit(V8 units, uint32_t i, uint32_t which) {
  return static_cast<uint16_t>(FloatBits(units.lane[i]) >> (16 * which));
}
inline V8 LowBrains(V8 units) {
  return Each([&](uint32_t i) { return BrainToFloat(HalfOfUnit(units, i, 0)); });
}
inline V8 HighBrains(V8 units) {
  return Each([&](uint32_t i) { return BrainToFloat(HalfOfUnit(units, i, 1)); });
}
inline V8 LowHalves(V8 units) {
  return Each([&](uint32_t i) { return HalfToFloat(HalfOfUnit(units, i, 0)); });
}
inline V8 HighHalves(V8 units) {
  return Each([&](uint32_t i) { return HalfToFloat(HalfOfUnit(units, i, 1)); });
}
template <int j>
inline V8 SignedBytes(V8 units) {
  return Each([&](uint32_t i) {
    return static_cast<float>(static_cast<int8_t>(FloatBits(units.lane[i]) >> (8 * j)));
  });
}
// Even and odd columns become the first and the second half of the columns.
inline void Interleave(V8& even, V8& odd) {
  const V8 both[2] = {even, odd};
  even = Each([&](uint32_t i) { return both[i % 2].lane[i / 2]; });
  odd = Each([&](uint32_t i) { return both[i % 2].lane[4 + i / 2]; });
}
// Lane i of units[u]: unit u of row i, for 8 rows of 8 units.
inline void Transpose8(const uint8_t* rows, uint64_t stride, V8* units) {
  for (uint32_t i = 0; i < 8; ++i) {
    for (uint32_t u = 0; u < 8; ++u) {
      std::memcpy(&units[u].lane[i], rows + i * stride + 4 * u, sizeof(float));
    }
  }
}
// Lane i: bits [shift, shift + 4) of the 32-bit word i.
inline V8 LoadNibbles(const uint8_t* p, int shift) {
  return Each([&](uint32_t i) {
    return static_cast<float>((p[4 * i + static_cast<uint32_t>(shift) / 8] >> (shift % 8)) & 15);
  });
}
// Lane i: signed byte j of the 32-bit word i.
inline V8 LoadBytes(const uint8_t* p, int j) {
  return Each([&](uint32_t i) {
    return static_cast<float>(static_cast<int8_t>(p[4 * i + static_cast<uint32_t>(j)]));
  });
}
// The 8 lanes, integral and within [-127, 127], as bytes; returns their sum.
inline int32_t StoreBytes(int8_t* p, V8 a) {
  int32_t sum = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    p[i] = static_cast<int8_t>(static_cast<int32_t>(a.lane[i]));
    sum += p[i];
  }
  return sum;
}
inline void Prefetch(const void*) {}

}  // namespace
}  // namespace baton::engine::cpu

#include "engine/cpu/simd_as_inl.h"
