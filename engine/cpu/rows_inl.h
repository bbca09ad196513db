// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Arithmetic along one row: norm, activation, rotation, quantisation, the KV formats.
//
// Included once per instruction set, after the header that defines V8.
#pragma once

#include "engine/cpu/kernels.h"

namespace baton::engine::cpu {
namespace {

constexpr float kInfinity = __builtin_huge_valf();

// e^x for x <= 88, within 2 ulp; exactly 1 at 0, exactly 0 below -87.
template <typename V>
inline V Exp(V x) {
  const auto splat = [](float value) { return Splat<V>(value); };
  const V floor = splat(-87.0f);
  const V clamped = Min(Max(x, floor), splat(88.0f));
  const V n = Round(Mul(clamped, splat(1.44269504f)));
  V r = Fma(n, splat(-0x1.62e4p-1f), clamped);  // ln 2, its upper bits: n times it is exact
  r = Fma(n, splat(-0x1.7f7d1cp-20f), r);       // and the rest
  V p = splat(1.0f / 5040);
  p = Fma(p, r, splat(1.0f / 720));
  p = Fma(p, r, splat(1.0f / 120));
  p = Fma(p, r, splat(1.0f / 24));
  p = Fma(p, r, splat(1.0f / 6));
  p = Fma(p, r, splat(0.5f));
  p = Fma(p, r, splat(1.0f));
  p = Fma(p, r, splat(1.0f));
  return KeepIfAtLeast(x, floor, ScaleByPowerOf2(p, n));
}

// The sum of the squares has 32 lanes, of columns 32 apart; columns past the last are zero.
void RmsNorm(const float* values, const float* weight, uint32_t count, float epsilon,
             float* output) {
  V16 squares[2] = {Splat<V16>(0.0f), Splat<V16>(0.0f)};
  const auto add = [&](const float* x32) {
    for (uint32_t half = 0; half < 2; ++half) {
      const V16 x = LoadAs<V16>(x32 + 16 * half);
      squares[half] = Fma(x, x, squares[half]);
    }
  };
  uint32_t i = 0;
  for (; i + 32 <= count; i += 32) add(values + i);
  if (i < count) {
    float rest[32] = {};
    for (uint32_t j = 0; i + j < count; ++j) rest[j] = values[i + j];
    add(rest);
  }
  const float mean = Sum(Add(squares[0], squares[1])) / static_cast<float>(count);
  const V8 scale = Set1(1.0f / __builtin_sqrtf(mean + epsilon));
  for (i = 0; i < count; i += kLanes) {
    Store(output + i, Mul(Mul(Load(values + i), scale), Load(weight + i)));
  }
}

void SwiGlu(float* gate, const float* up, uint32_t count) {
  for (uint32_t i = 0; i < count; i += 16) {
    const V16 g = LoadAs<V16>(gate + i);
    const V16 silu = Div(g, Add(Splat<V16>(1.0f), Exp(Sub(Splat<V16>(0.0f), g))));
    Store(gate + i, Mul(silu, LoadAs<V16>(up + i)));
  }
}

void Rope(float* head, const float* cosine, const float* sine, uint32_t half, uint32_t head_dim,
          float scale) {
  const V8 factor = Set1(scale);
  uint32_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const V8 a = Load(head + i);
    const V8 b = Load(head + half + i);
    const V8 c = Load(cosine + i);
    const V8 s = Load(sine + i);
    Store(head + i, Mul(factor, Sub(Mul(a, c), Mul(b, s))));
    Store(head + half + i, Mul(factor, Fma(a, s, Mul(b, c))));
  }
  for (; i < half; ++i) {
    const float a = head[i];
    const float b = head[half + i];
    head[i] = scale * (a * cosine[i] - b * sine[i]);
    head[half + i] = scale * __builtin_fmaf(a, sine[i], b * cosine[i]);
  }
  for (i = 2 * half; i < head_dim; ++i) head[i] *= scale;
}

// One block of 32 columns.  Rows with a NaN quantise to something, and only they do.
void QuantizeBlock(const float* values, int8_t* quants, float* scale, float* sum,
                   int32_t* quant_sum) {
  const V16 first = LoadAs<V16>(values);
  const V16 second = LoadAs<V16>(values + 16);
  // A NaN is the second operand's.
  const float largest =
      Highest(Max(Max(Abs(first), Splat<V16>(0.0f)), Max(Abs(second), Splat<V16>(0.0f))));
  const bool usable = largest > 1e-30f && largest < kInfinity;
  const V16 inverse = Splat<V16>(usable ? 127.0f / largest : 0.0f);
  const auto quantise = [&](V16 x, int8_t* target) {
    const V16 scaled = Round(Mul(x, inverse));
    return StoreBytes(target, Max(Min(scaled, Splat<V16>(127.0f)), Splat<V16>(-127.0f)));
  };
  const int32_t total = quantise(first, quants) + quantise(second, quants + 16);
  *scale = usable ? largest / 127.0f : 0.0f;
  *sum = *scale * static_cast<float>(total);
  *quant_sum = total;
}

void StoreInputs(const float* values, uint32_t row, uint32_t column, uint32_t count,
                 const Inputs& inputs) {
  if (inputs.values != nullptr) {
    float* target = inputs.values + uint64_t{row} * inputs.columns + column;
    for (uint32_t i = 0; i < count; i += kLanes) Store(target + i, Load(values + i));
  }
  if (inputs.quants == nullptr) return;
  for (uint32_t i = 0; i < count; i += 32) {
    const uint64_t at = inputs.block_index(row, (column + i) / 32);
    QuantizeBlock(values + i, inputs.quants + at * 32, inputs.scales + at, inputs.sums + at,
                  inputs.quant_sums + at);
  }
}

// The row's largest magnitude becomes 127; what is larger than a float can be is cut, and
// a NaN becomes 127 without being counted.
void StoreKvInt8(const float* values, uint32_t count, uint8_t* target, float* scale) {
  V8 highest = Zero();
  for (uint32_t i = 0; i < count; i += kLanes) highest = Max(Abs(Load(values + i)), highest);
  const float most = 0x1.fp127f;  // 127 times its scale is still finite
  const float above = Highest(highest);
  const float largest = above < most ? above : most;
  const bool usable = largest > 1e-30f;
  const V8 inverse = Set1(usable ? 127.0f / largest : 0.0f);
  for (uint32_t i = 0; i < count; i += kLanes) {
    const V8 x = Max(Min(Load(values + i), Set1(most)), Set1(-most));
    const V8 scaled = Round(Mul(x, inverse));
    StoreBytes(reinterpret_cast<int8_t*>(target) + i,
               Max(Min(scaled, Set1(127.0f)), Set1(-127.0f)));
  }
  *scale = usable ? largest / 127.0f : 0.0f;
}

void StoreKv(const float* values, uint32_t count, KvType type, uint8_t* target, float* scale) {
  if (type == KvType::kInt8) return StoreKvInt8(values, count, target, scale);
  const float largest = type == KvType::kF16    ? 65504.0f
                        : type == KvType::kBf16 ? 0x1.fep127f
                                                : 0x1.fffffep127f;
  for (uint32_t i = 0; i < count; i += kLanes) {
    // A NaN becomes the second operand of the first Min.
    const V8 x = Max(Min(Load(values + i), Set1(largest)), Set1(-largest));
    if (type == KvType::kF16) {
      StoreHalf(target + 2 * uint64_t{i}, x);
    } else if (type == KvType::kBf16) {
      StoreBrain(target + 2 * uint64_t{i}, x);
    } else {
      Store(reinterpret_cast<float*>(target) + i, x);
    }
  }
}

}  // namespace
}  // namespace baton::engine::cpu
