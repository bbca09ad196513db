// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/gguf_blocks.h"

#include <cstring>

#include "base/ensure.h"
#include "engine/cpu/float16.h"

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kSuperColumns = 256;  // of a K-quant

float HalfAt(const uint8_t* bytes) {
  uint16_t half;
  std::memcpy(&half, bytes, sizeof(half));
  return HalfToFloat(half);
}

void SetScale(QuantBlock& block, float scale, float minimum) {
  block.scale[0] = scale;
  block.scale[1] = scale;
  block.minimum = minimum;
}

// 16 bytes hold columns 0..15 in their low nibbles and 16..31 in their high ones; the fifth
// bits, where the type has them, are bits of `fifth`.
void ReadNibbles(const uint8_t* bytes, uint32_t fifth, int offset, QuantBlock& block) {
  for (uint32_t i = 0; i < 16; ++i) {
    const int low = (bytes[i] & 15) | static_cast<int>((fifth >> i) & 1u) << 4;
    const int high = (bytes[i] >> 4) | static_cast<int>((fifth >> (i + 16)) & 1u) << 4;
    block.quant[i] = static_cast<int8_t>(low - offset);
    block.quant[i + 16] = static_cast<int8_t>(high - offset);
  }
}

uint32_t WordAt(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

void ReadSmall(TensorType type, const uint8_t* bytes, QuantBlock& block) {
  const float d = HalfAt(bytes);
  switch (type) {
    case TensorType::kQ4_0:
      ReadNibbles(bytes + 2, 0, 8, block);
      return SetScale(block, d, 0.0f);
    case TensorType::kQ4_1:
      ReadNibbles(bytes + 4, 0, 0, block);
      return SetScale(block, d, HalfAt(bytes + 2));
    case TensorType::kQ5_0:
      ReadNibbles(bytes + 6, WordAt(bytes + 2), 16, block);
      return SetScale(block, d, 0.0f);
    case TensorType::kQ5_1:
      ReadNibbles(bytes + 8, WordAt(bytes + 4), 0, block);
      return SetScale(block, d, HalfAt(bytes + 2));
    default:  // kQ8_0
      std::memcpy(block.quant, bytes + 2, kBlockColumns);
      return SetScale(block, d, 0.0f);
  }
}

// The eight 6-bit scales and minima of Q4_K and Q5_K, packed into 12 bytes.
struct SubScale {
  int scale;
  int minimum;
};
SubScale SubScaleAt(const uint8_t* packed, uint32_t i) {
  if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
  return {(packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4, (packed[i + 4] >> 4) | (packed[i] >> 6)
                                                                                       << 4};
}

void ReadQ4Or5K(bool five, const uint8_t* bytes, QuantBlock* blocks) {
  const float d = HalfAt(bytes);
  const float d_minimum = HalfAt(bytes + 2);
  const uint8_t* fifth = bytes + 16;
  const uint8_t* nibbles = bytes + (five ? 48 : 16);
  for (uint32_t i = 0; i < 8; ++i) {
    const SubScale sub = SubScaleAt(bytes + 4, i);
    SetScale(blocks[i], d * static_cast<float>(sub.scale),
             -(d_minimum * static_cast<float>(sub.minimum)));
    for (uint32_t l = 0; l < kBlockColumns; ++l) {
      const uint8_t byte = nibbles[32 * (i / 2) + l];
      int quant = i % 2 == 0 ? byte & 15 : byte >> 4;
      if (five) quant |= ((fifth[l] >> i) & 1) << 4;
      blocks[i].quant[l] = static_cast<int8_t>(quant);
    }
  }
}

void ReadQ6K(const uint8_t* bytes, QuantBlock* blocks) {
  const float d = HalfAt(bytes + 208);
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t half = i / 4;  // 128 columns each
    const uint32_t quarter = i % 4;
    const uint8_t* low = bytes + 64 * half + 32 * (quarter % 2);
    const uint8_t* high = bytes + 128 + 32 * half;
    const auto* scales = reinterpret_cast<const int8_t*>(bytes + 192 + 8 * half + 2 * quarter);
    for (uint32_t l = 0; l < kBlockColumns; ++l) {
      const int nibble = quarter < 2 ? low[l] & 15 : low[l] >> 4;
      const int top = (high[l] >> (2 * quarter)) & 3;
      blocks[i].quant[l] = static_cast<int8_t>((nibble | top << 4) - 32);
    }
    blocks[i].scale[0] = d * static_cast<float>(scales[0]);
    blocks[i].scale[1] = d * static_cast<float>(scales[1]);
    blocks[i].minimum = 0.0f;
  }
}

}  // namespace

bool IsQuantized(TensorType type) {
  return type != TensorType::kF32 && type != TensorType::kF16 && type != TensorType::kBf16;
}

uint32_t SourceBlockColumns(TensorType type) {
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBf16:
      return 1;
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
    case TensorType::kQ6_K:
      return kSuperColumns;
    default:
      return kBlockColumns;
  }
}

uint32_t SourceBlockBytes(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return 4;
    case TensorType::kF16:
    case TensorType::kBf16:
      return 2;
    case TensorType::kQ4_0:
      return 18;
    case TensorType::kQ4_1:
      return 20;
    case TensorType::kQ5_0:
      return 22;
    case TensorType::kQ5_1:
      return 24;
    case TensorType::kQ8_0:
      return 34;
    case TensorType::kQ4_K:
      return 144;
    case TensorType::kQ5_K:
      return 176;
    case TensorType::kQ6_K:
      return 210;
  }
  return 0;
}

void ReadQuantRow(TensorType type, const uint8_t* row, uint32_t columns, QuantBlock* blocks) {
  const uint32_t source_columns = SourceBlockColumns(type);
  const uint32_t source_bytes = SourceBlockBytes(type);
  ENSURE(IsQuantized(type) && columns % source_columns == 0);
  for (uint32_t column = 0; column < columns; column += source_columns) {
    const uint8_t* bytes = row + uint64_t{column / source_columns} * source_bytes;
    QuantBlock* out = blocks + column / kBlockColumns;
    if (source_columns == kBlockColumns) {
      ReadSmall(type, bytes, *out);
    } else if (type == TensorType::kQ6_K) {
      ReadQ6K(bytes, out);
    } else {
      ReadQ4Or5K(type == TensorType::kQ5_K, bytes, out);
    }
  }
}

void ReadFloatRow(TensorType type, const uint8_t* row, uint32_t columns, float* values) {
  ENSURE(!IsQuantized(type));
  if (type == TensorType::kF32) {
    std::memcpy(values, row, uint64_t{columns} * sizeof(float));
    return;
  }
  for (uint32_t i = 0; i < columns; ++i) {
    uint16_t half;
    std::memcpy(&half, row + uint64_t{i} * 2, sizeof(half));
    values[i] = type == TensorType::kF16 ? HalfToFloat(half) : BrainToFloat(half);
  }
}

}  // namespace baton::engine::cpu
