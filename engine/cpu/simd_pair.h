// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Sixteen float lanes as two times eight, for instruction sets without such registers.
//
// Included after the header that defines V8.
#pragma once

#include <cstdint>

namespace baton::engine::cpu {
namespace {

struct V16 {
  V8 low;
  V8 high;
};

// The widest register, and how many of them a product's sums may take.
using Wide = V8;
inline constexpr uint32_t kWideSums = 12;

template <>
inline V16 Splat<V16>(float x) {
  const V8 eight = Set1(x);
  return {eight, eight};
}
template <>
inline V16 LoadAs<V16>(const float* p) {
  return {Load(p), Load(p + kLanes)};
}
inline void Store(float* p, V16 a) {
  Store(p, a.low);
  Store(p + kLanes, a.high);
}
inline V16 Add(V16 a, V16 b) { return {Add(a.low, b.low), Add(a.high, b.high)}; }
inline V16 Sub(V16 a, V16 b) { return {Sub(a.low, b.low), Sub(a.high, b.high)}; }
inline V16 Mul(V16 a, V16 b) { return {Mul(a.low, b.low), Mul(a.high, b.high)}; }
inline V16 Div(V16 a, V16 b) { return {Div(a.low, b.low), Div(a.high, b.high)}; }
inline V16 Fma(V16 a, V16 b, V16 c) {
  return {Fma(a.low, b.low, c.low), Fma(a.high, b.high, c.high)};
}
inline V16 Max(V16 a, V16 b) { return {Max(a.low, b.low), Max(a.high, b.high)}; }
inline V16 Min(V16 a, V16 b) { return {Min(a.low, b.low), Min(a.high, b.high)}; }
inline V16 Abs(V16 a) { return {Abs(a.low), Abs(a.high)}; }
inline V16 Round(V16 a) { return {Round(a.low), Round(a.high)}; }
inline V16 ScaleByPowerOf2(V16 a, V16 n) {
  return {ScaleByPowerOf2(a.low, n.low), ScaleByPowerOf2(a.high, n.high)};
}
inline V16 KeepIfAtLeast(V16 x, V16 limit, V16 a) {
  return {KeepIfAtLeast(x.low, limit.low, a.low), KeepIfAtLeast(x.high, limit.high, a.high)};
}
inline float Sum(V16 a) { return Sum(Add(a.low, a.high)); }
inline float Highest(V16 a) { return Highest(Max(a.low, a.high)); }
template <>
inline V16 LoadHalfAs<V16>(const void* p) {
  return {LoadHalf(p), LoadHalf(static_cast<const uint8_t*>(p) + 2 * kLanes)};
}
template <>
inline V16 LoadBrainAs<V16>(const void* p) {
  return {LoadBrain(p), LoadBrain(static_cast<const uint8_t*>(p) + 2 * kLanes)};
}
template <>
inline V16 LoadSignedAs<V16>(const void* p) {
  return {LoadSigned(p), LoadSigned(static_cast<const uint8_t*>(p) + kLanes)};
}
inline int32_t StoreBytes(int8_t* p, V16 a) {
  return StoreBytes(p, a.low) + StoreBytes(p + kLanes, a.high);
}

// A square of units, as many as lanes: lane i of units[u] becomes unit u of row i.
inline void TransposeSquare(const uint8_t* rows, uint64_t stride, Wide* units) {
  Transpose8(rows, stride, units);
}

}  // namespace
}  // namespace baton::engine::cpu
