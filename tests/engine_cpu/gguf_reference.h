// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a weight in a file is worth, in doubles: GGUF's formulas, written down a second time.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine/cpu/float16.h"
#include "engine/cpu/gguf_blocks.h"
#include "engine/model_spec.h"

namespace baton::engine::cpu {

inline double Half(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  return double{HalfToFloat(half)};
}

inline uint32_t Bit(const uint8_t* bytes, uint32_t i) { return (bytes[i / 8] >> (i % 8)) & 1u; }

inline uint32_t Nibble(const uint8_t* bytes, uint32_t column) {
  return column < 16 ? bytes[column] & 15u : bytes[column - 16] >> 4;
}

// The i-th 6-bit scale (or minimum) of a K-quant of 8 x 32 columns.
inline uint32_t SixBits(const uint8_t* packed, uint32_t i, bool minimum) {
  const uint32_t half = minimum ? 4 : 0;
  if (i < 4) return packed[i + half] & 63u;
  const uint32_t low = minimum ? packed[i + 4] >> 4 : packed[i + 4] & 15u;
  return low + 16 * (packed[i - 4 + half] >> 6);
}

inline double KQuant(const uint8_t* at, uint32_t column, bool five) {
  const uint32_t sub = column / 32;
  const uint32_t l = column % 32;
  const uint8_t byte = at[(five ? 48 : 16) + 32 * (sub / 2) + l];
  uint32_t quant = sub % 2 == 0 ? byte & 15u : byte >> 4;
  if (five) quant += 16 * ((at[16 + l] >> sub) & 1u);
  return Half(at) * SixBits(at + 4, sub, false) * quant - Half(at + 2) * SixBits(at + 4, sub, true);
}

inline double Q6K(const uint8_t* at, uint32_t column) {
  const uint32_t half = column / 128;
  const uint32_t quarter = column % 128 / 32;
  const uint32_t l = column % 32;
  const uint8_t low = at[64 * half + 32 * (quarter % 2) + l];
  const uint32_t high = (at[128 + 32 * half + l] >> (2 * quarter)) & 3u;
  const int quant = static_cast<int>((quarter < 2 ? low & 15u : low >> 4) + 16 * high) - 32;
  const auto scale = static_cast<int8_t>(at[192 + column / 16]);
  return Half(at + 208) * scale * quant;
}

// The nearest number with 8 bits of mantissa, of two the even one.
inline double NearestBrain(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, 8)), exponent - 8);
}

inline double Weight(const TensorView& tensor, uint32_t row, uint32_t column) {
  const uint32_t block_columns = SourceBlockColumns(tensor.type);
  const uint64_t block = (uint64_t{row} * tensor.columns + column) / block_columns;
  const uint8_t* at = tensor.data + block * SourceBlockBytes(tensor.type);
  const uint32_t c = column % block_columns;
  float value;
  uint16_t brain;
  switch (tensor.type) {
    case TensorType::kF32:
      std::memcpy(&value, at, 4);
      return NearestBrain(double{value});
    case TensorType::kF16:
      return Half(at);
    case TensorType::kBf16:
      std::memcpy(&brain, at, 2);
      return double{BrainToFloat(brain)};
    case TensorType::kQ4_0:
      return Half(at) * (static_cast<int>(Nibble(at + 2, c)) - 8);
    case TensorType::kQ4_1:
      return Half(at) * Nibble(at + 4, c) + Half(at + 2);
    case TensorType::kQ5_0:
      return Half(at) * (static_cast<int>(Nibble(at + 6, c) + 16 * Bit(at + 2, c)) - 16);
    case TensorType::kQ5_1:
      return Half(at) * (Nibble(at + 8, c) + 16 * Bit(at + 4, c)) + Half(at + 2);
    case TensorType::kQ8_0:
      return Half(at) * static_cast<int8_t>(at[2 + c]);
    case TensorType::kQ4_K:
      return KQuant(at, c, false);
    case TensorType::kQ5_K:
      return KQuant(at, c, true);
    case TensorType::kQ6_K:
      return Q6K(at, c);
  }
  return 0;
}

}  // namespace baton::engine::cpu
