// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/ensure.h"
#include "engine/cpu/float16.h"
#include "engine/cpu/gguf_blocks.h"

namespace baton::engine::cpu {
namespace {

Format FormatOf(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return {.kind = WeightKind::kInt4};
    case TensorType::kQ4_1:
      return {.kind = WeightKind::kInt4, .minimum = true};
    case TensorType::kQ4_K:
      return {.kind = WeightKind::kInt4, .wide = true, .minimum = true};
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
      return {.kind = WeightKind::kInt8};
    case TensorType::kQ5_1:
      return {.kind = WeightKind::kInt8, .minimum = true};
    case TensorType::kQ5_K:
      return {.kind = WeightKind::kInt8, .wide = true, .minimum = true};
    case TensorType::kQ6_K:
      return {.kind = WeightKind::kInt8, .wide = true, .halves = true};
    case TensorType::kF16:
      return {.kind = WeightKind::kHalf};
    case TensorType::kBf16:
    case TensorType::kF32:
      return {.kind = WeightKind::kBrain};
  }
  return {};
}

// Where the parts of one lane of a block are.
struct LaneOfBlock {
  const Format& format;
  uint32_t lanes;
  uint32_t lane;

  uint32_t scale_bytes() const { return format.wide ? 4 : 2; }
  uint32_t scale_at(uint32_t array) const { return (array * lanes + lane) * scale_bytes(); }
  uint32_t minimum_array() const { return format.halves ? 2 : 1; }
  uint32_t quants_at() const {
    return (minimum_array() + (format.minimum ? 1 : 0)) * lanes * scale_bytes();
  }
  // The byte that holds a column; for kInt4 columns 16 apart share one.
  uint32_t quant_at(uint32_t column) const {
    const uint32_t c = format.kind == WeightKind::kInt4 ? column % 16 : column;
    return quants_at() + c / 4 * lanes * 4 + lane * 4 + c % 4;
  }
};

void PutScale(uint8_t* at, bool wide, float scale) {
  if (wide) {
    std::memcpy(at, &scale, sizeof(scale));
  } else {
    const uint16_t half = FloatToHalf(scale);
    std::memcpy(at, &half, sizeof(half));
  }
}

float GetScale(const uint8_t* at, bool wide) {
  if (wide) {
    float scale;
    std::memcpy(&scale, at, sizeof(scale));
    return scale;
  }
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return HalfToFloat(half);
}

uint32_t WordAt(const void* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

void PackLane(const QuantBlock& source, LaneOfBlock lane, uint8_t* block) {
  const Format& format = lane.format;
  PutScale(block + lane.scale_at(0), format.wide, source.scale[0]);
  if (format.halves) PutScale(block + lane.scale_at(1), format.wide, source.scale[1]);
  if (format.minimum) {
    PutScale(block + lane.scale_at(lane.minimum_array()), format.wide, source.minimum);
  }
  ENSURE(QuantOffset(format) == 0);
  const bool nibbles = format.kind == WeightKind::kInt4;
  for (uint32_t column = 0; column < (nibbles ? 16 : kBlockColumns); column += 4) {
    uint32_t word = WordAt(source.quant + column);
    if (nibbles) word |= WordAt(source.quant + column + 16) << 4;
    std::memcpy(block + lane.quant_at(column), &word, sizeof(word));
  }
}

// Blocks of a type that holds what a lane holds, in the same order: halves, then words.
template <uint32_t kHalves, uint32_t kWords>
void MoveLane(const uint8_t* source, uint32_t count, LaneOfBlock lane, uint8_t* block) {
  const uint32_t block_bytes = PackedBlockBytes(lane.format, lane.lanes);
  for (uint32_t b = 0; b < count; ++b, block += block_bytes) {
    for (uint32_t i = 0; i < kHalves; ++i, source += 2) {
      std::memcpy(block + lane.scale_at(i), source, 2);
    }
    for (uint32_t i = 0; i < kWords; ++i, source += 4) {
      std::memcpy(block + lane.quant_at(4 * i), source, 4);
    }
  }
}

// Half and brain floats as they are; floats become brain floats.
void PackFloats(TensorType type, const uint8_t* source, uint32_t count, LaneOfBlock lane,
                uint8_t* block) {
  block += lane.lane * 2;
  for (uint32_t i = 0; i < count * kBlockColumns; ++i, block += lane.lanes * 2) {
    uint16_t value;
    if (type == TensorType::kF32) {
      value = FloatToBrain(GetScale(source + i * 4, true));
    } else {
      std::memcpy(&value, source + i * 2, sizeof(value));
    }
    std::memcpy(block, &value, sizeof(value));
  }
}

// So many blocks of all lanes, source and target, stay in the first-level cache.
// A multiple of every type's SourceBlockColumns.
constexpr uint32_t kRunBlocks = 8;

// `count` blocks, at most kRunBlocks, of one row.
void PackRun(TensorType type, const uint8_t* source, uint32_t count, LaneOfBlock lane,
             uint8_t* block) {
  if (!IsQuantized(type)) return PackFloats(type, source, count, lane, block);
  if (type == TensorType::kQ4_0) return MoveLane<1, 4>(source, count, lane, block);
  if (type == TensorType::kQ4_1) return MoveLane<2, 4>(source, count, lane, block);
  if (type == TensorType::kQ8_0) return MoveLane<1, 8>(source, count, lane, block);
  QuantBlock quants[kRunBlocks];
  ReadQuantRow(type, source, count * kBlockColumns, quants);
  const uint32_t block_bytes = PackedBlockBytes(lane.format, lane.lanes);
  for (uint32_t b = 0; b < count; ++b) PackLane(quants[b], lane, block + b * block_bytes);
}

}  // namespace

std::string PackedName(TensorType type) {
  const Format format = FormatOf(type);
  switch (format.kind) {
    case WeightKind::kInt4:
      return format.minimum ? "W4 with minima" : "W4";
    case WeightKind::kInt8:
      return format.minimum ? "W8 with minima" : "W8";
    case WeightKind::kHalf:
      return "W16 (f16)";
    case WeightKind::kBrain:
      return type == TensorType::kF32 ? "W16 (bf16, rounded)" : "W16 (bf16)";
  }
  return "";
}

uint32_t RowOrder::Source(uint32_t row) const {
  if (head_dim == 0) return row;
  const uint32_t i = row % head_dim;
  if (i >= rope_dims) return row;
  const uint32_t half = rope_dims / 2;
  return row - i + (i < half ? 2 * i : 2 * (i - half) + 1);
}

MatrixView PlanMatrix(const TensorView& tensor, uint32_t lanes) {
  ENSURE(tensor.columns % kBlockColumns == 0);
  return {.format = FormatOf(tensor.type),
          .rows = static_cast<uint32_t>(tensor.rows),
          .columns = static_cast<uint32_t>(tensor.columns),
          .lanes = lanes};
}

void PackGroup(const TensorView& tensor, const MatrixView& matrix, const RowOrder& order,
               uint32_t group, uint8_t* target) {
  const uint32_t lanes = matrix.lanes;
  const uint32_t block_bytes = PackedBlockBytes(matrix.format, lanes);
  const uint32_t source_columns = SourceBlockColumns(tensor.type);
  const uint32_t source_bytes = SourceBlockBytes(tensor.type);
  const uint64_t row_bytes = uint64_t{matrix.columns} / source_columns * source_bytes;
  uint8_t* blocks = target + group * matrix.group_bytes();
  const uint32_t rows = std::min(lanes, matrix.rows - group * lanes);
  if (rows < lanes) std::memset(blocks, 0, matrix.group_bytes());
  for (uint32_t first = 0; first < matrix.blocks(); first += kRunBlocks) {
    const uint32_t count = std::min(kRunBlocks, matrix.blocks() - first);
    const uint64_t skip = uint64_t{first} * kBlockColumns / source_columns * source_bytes;
    for (uint32_t lane = 0; lane < rows; ++lane) {
      const uint8_t* row = tensor.data + order.Source(group * lanes + lane) * row_bytes;
      PackRun(tensor.type, row + skip, count, {matrix.format, lanes, lane},
              blocks + uint64_t{first} * block_bytes);
    }
  }
}

void DequantizeRow(const MatrixView& matrix, uint32_t row, float* values) {
  const Format& format = matrix.format;
  const uint32_t block_bytes = PackedBlockBytes(format, matrix.lanes);
  const LaneOfBlock lane{format, matrix.lanes, row % matrix.lanes};
  const uint8_t* blocks = matrix.data + row / matrix.lanes * matrix.group_bytes();
  for (uint32_t column = 0; column < matrix.columns; ++column) {
    const uint8_t* block = blocks + uint64_t{column / kBlockColumns} * block_bytes;
    const uint32_t c = column % kBlockColumns;
    if (!IsInteger(format.kind)) {
      uint16_t half;
      std::memcpy(&half, block + (c * matrix.lanes + lane.lane) * 2, sizeof(half));
      values[column] = format.kind == WeightKind::kHalf ? HalfToFloat(half) : BrainToFloat(half);
      continue;
    }
    const uint8_t byte = block[lane.quant_at(c)];
    const int quant = format.kind == WeightKind::kInt8 ? static_cast<int8_t>(byte)
                      : c < 16                         ? (byte & 15) - QuantOffset(format)
                                                       : (byte >> 4) - QuantOffset(format);
    const uint32_t array = format.halves && c >= 16 ? 1 : 0;
    const float minimum =
        format.minimum ? GetScale(block + lane.scale_at(lane.minimum_array()), format.wide) : 0;
    values[column] = std::fma(GetScale(block + lane.scale_at(array), format.wide),
                              static_cast<float>(quant), minimum);
  }
}

}  // namespace baton::engine::cpu
