// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Each loop over a row is one that the compiler makes wide by itself: no branch but a choice
// between two values, no call.  They are compiled twice, for the baseline and for AVX2.
#include "kv_transfer/convert_rows.h"

#include <algorithm>
#include <cstring>

#include "base/ensure.h"

namespace baton::kv {
namespace {

#define BATON_INLINE [[gnu::always_inline]] inline  // into either set's function

constexpr uint32_t kTile = 1024;  // floats at a time: 4 KiB, in the first cache

BATON_INLINE uint32_t Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
BATON_INLINE float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <typename T>
BATON_INLINE T LoadAt(const uint8_t* from, uint32_t i) {
  T value;
  std::memcpy(&value, from + sizeof(T) * i, sizeof value);
  return value;
}
template <typename T>
BATON_INLINE void StoreAt(uint8_t* to, uint32_t i, T value) {
  std::memcpy(to + sizeof(T) * i, &value, sizeof value);
}

// ── one value ─────────────────────────────────────────────────────────────────────────

BATON_INLINE float OfHalf(uint16_t half) {
  const uint32_t magnitude = uint32_t{half & 0x7fffu} << 13;
  const uint32_t normal = magnitude + (112u << 23);
  const uint32_t special = magnitude + (224u << 23);  // infinite, NaN
  // Of a subnormal the mantissa counts 2^-24: it is what 2^-14 lacks of a normal number.
  const uint32_t subnormal = Bits(FromBits(magnitude + (113u << 23)) - 0x1p-14f);
  // Below 2^31: as signed numbers they are compared by one instruction.
  const auto ordered = static_cast<int32_t>(magnitude);
  uint32_t bits = ordered < (1 << 23) ? subnormal : normal;
  bits = ordered >= (0x1f << 23) ? special : bits;
  return FromBits(bits | uint32_t{half & 0x8000u} << 16);
}
BATON_INLINE float OfBrain(uint16_t brain) { return FromBits(uint32_t{brain} << 16); }

// The second of two where the first is a NaN, as the processor's own minimum.
BATON_INLINE float Cut(float value, float most) {
  value = value < most ? value : most;
  return value > -most ? value : -most;
}

BATON_INLINE uint16_t ToHalf(float value) {
  const uint32_t bits = Bits(Cut(value, 65504.0f));
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t odd = magnitude >> 13 & 1u;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
  // Adding 0.5 leaves a subnormal, rounded, in the low bits of the sum.
  const uint32_t subnormal = Bits(FromBits(magnitude) + 0.5f) - Bits(0.5f);
  const uint32_t half = static_cast<int32_t>(magnitude) < (113 << 23) ? subnormal : normal;
  return static_cast<uint16_t>(half | (bits >> 16 & 0x8000u));
}
BATON_INLINE uint16_t ToBrain(float value) {
  const uint32_t bits = Bits(Cut(value, 0x1.fep127f));
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// ── a row, or a part of one ───────────────────────────────────────────────────────────

BATON_INLINE void Load(ElementType type, const uint8_t* from, float scale, uint32_t count,
                       float* to) {
  switch (type) {
    case ElementType::kF32:
      std::memcpy(to, from, sizeof(float) * count);
      return;
    case ElementType::kF16:
      for (uint32_t i = 0; i < count; ++i) to[i] = OfHalf(LoadAt<uint16_t>(from, i));
      return;
    case ElementType::kBf16:
      for (uint32_t i = 0; i < count; ++i) to[i] = OfBrain(LoadAt<uint16_t>(from, i));
      return;
    case ElementType::kInt8:
      for (uint32_t i = 0; i < count; ++i) {
        to[i] = scale * static_cast<float>(LoadAt<int8_t>(from, i));
      }
      return;
  }
}

// The largest magnitude; NaNs do not count.  As integers: floats without a sign are ordered so.
BATON_INLINE float Largest(const float* row, uint32_t count) {
  int32_t largest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<int32_t>(Bits(row[i]) & 0x7fffffffu);
    const int32_t counted = magnitude > 0x7f800000 ? 0 : magnitude;
    largest = counted > largest ? counted : largest;
  }
  return FromBits(static_cast<uint32_t>(largest));
}

// Returns the scale.
BATON_INLINE float StoreInt8(const float* row, uint32_t count, uint8_t* to) {
  constexpr float kMost = 0x1.fp127f;  // 127 times its scale is still finite
  constexpr float kRound = 0x1.8p23f;  // added and taken away it leaves the nearest integer
  const float largest = std::min(Largest(row, count), kMost);
  const bool usable = largest > 1e-30f;
  const float inverse = usable ? 127.0f / largest : 0.0f;
  for (uint32_t i = 0; i < count; ++i) {
    const float cut = Cut(Cut(row[i], kMost) * inverse, 127.0f);
    StoreAt(to, i, static_cast<int8_t>(static_cast<int32_t>((cut + kRound) - kRound)));
  }
  return usable ? largest / 127.0f : 0.0f;
}

BATON_INLINE void Store(ElementType type, const float* row, uint32_t count, uint8_t* to) {
  switch (type) {
    case ElementType::kF32:
      std::memcpy(to, row, sizeof(float) * count);
      return;
    case ElementType::kF16:
      for (uint32_t i = 0; i < count; ++i) StoreAt(to, i, ToHalf(row[i]));
      return;
    case ElementType::kBf16:
      for (uint32_t i = 0; i < count; ++i) StoreAt(to, i, ToBrain(row[i]));
      return;
    case ElementType::kInt8:
      return;  // StoreInt8: it has a scale
  }
}

// ── runs ──────────────────────────────────────────────────────────────────────────────

BATON_INLINE void ConvertRows(const RowConverter& types, const uint8_t* source,
                              const uint8_t* source_scales, uint8_t* target, uint8_t* target_scales,
                              uint32_t rows) {
  float tile[kTile];
  const bool scaled =
      types.source_type == ElementType::kInt8 || types.target_type == ElementType::kInt8;
  // Without scales a run is one long row.
  const uint64_t length = scaled ? types.head_dim : uint64_t{types.head_dim} * rows;
  const uint32_t source_bytes = ElementBytes(types.source_type);
  const uint32_t target_bytes = ElementBytes(types.target_type);
  for (uint32_t row = 0; row < (scaled ? rows : 1); ++row) {
    const float scale =
        types.source_type == ElementType::kInt8 ? LoadAt<float>(source_scales, row) : 1.0f;
    if (types.target_type == ElementType::kInt8) {
      Load(types.source_type, source, scale, types.head_dim, tile);
      StoreAt(target_scales, row, StoreInt8(tile, types.head_dim, target));
      source += length * source_bytes;
      target += length * target_bytes;
      continue;
    }
    for (uint64_t done = 0; done < length;) {
      const auto count = static_cast<uint32_t>(std::min<uint64_t>(kTile, length - done));
      Load(types.source_type, source, scale, count, tile);
      Store(types.target_type, tile, count, target);
      source += count * source_bytes;
      target += count * target_bytes;
      done += count;
    }
  }
}

#ifdef __x86_64__
__attribute__((target("avx2"))) void ConvertRowsAvx2(const RowConverter& types,
                                                     const uint8_t* source,
                                                     const uint8_t* source_scales, uint8_t* target,
                                                     uint8_t* target_scales, uint32_t rows) {
  ConvertRows(types, source, source_scales, target, target_scales, rows);
}
#endif

}  // namespace

void ConvertRowsPortably(const RowConverter& types, const uint8_t* source,
                         const uint8_t* source_scales, uint8_t* target, uint8_t* target_scales,
                         uint32_t rows) {
  ConvertRows(types, source, source_scales, target, target_scales, rows);
}

namespace {

auto ChooseRun() {
#ifdef __x86_64__
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return &ConvertRowsAvx2;
#endif
  return &ConvertRowsPortably;
}

}  // namespace

RowConverter::RowConverter(ElementType source, ElementType target, uint32_t dim)
    : source_type(source), target_type(target), head_dim(dim), run_(ChooseRun()) {
  ENSURE(dim > 0 && (target != ElementType::kInt8 || dim <= kTile));
}

}  // namespace baton::kv
