// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Loads that are named by the type they give, for code that is written for any width.
//
// Included by simd_scalar.h and simd_avx2.h, behind their eight lanes.
#pragma once

namespace baton::engine::cpu {
namespace {

// One number in all lanes; as many numbers as lanes.
template <typename V>
V Splat(float x);
template <typename V>
V LoadAs(const float* p);
template <typename V>
V LoadHalfAs(const void* p);
template <typename V>
V LoadBrainAs(const void* p);
template <typename V>
V LoadSignedAs(const void* p);

template <>
inline V8 Splat<V8>(float x) {
  return Set1(x);
}
template <>
inline V8 LoadAs<V8>(const float* p) {
  return Load(p);
}
template <>
inline V8 LoadHalfAs<V8>(const void* p) {
  return LoadHalf(p);
}
template <>
inline V8 LoadBrainAs<V8>(const void* p) {
  return LoadBrain(p);
}
template <>
inline V8 LoadSignedAs<V8>(const void* p) {
  return LoadSigned(p);
}

}  // namespace
}  // namespace baton::engine::cpu
