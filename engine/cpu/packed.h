// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The forms in which kernels see weights and activations.  Plain structs: this header is
// included by files compiled for other instruction sets.
//
// A packed matrix is made of groups of `lanes` rows (8 or 16: one row per lane of a vector
// of the chosen instruction set); a group is a run of blocks of 32 columns:
//
//   kInt4   scale[lanes] (minimum[lanes]) u8[lanes * 16]  vector t (of 4), byte 4 r + j:
//           low nibble row r, column 4 t + j; high nibble column 16 + 4 t + j; a quant
//           without a minimum is stored as quant + 8
//   kInt8   scale[lanes] (x 2 if halves) (minimum[lanes]) s8[lanes * 32]
//           vector t (of 8), byte 4 r + j: row r, column 4 t + j
//   kHalf, kBrain   column by column, `lanes` values each
//
// Scales are halves, or floats where the source's scale is a product (K-quants).  Rows past
// the last are zero.
//
// Activations are quantised per row and 32 columns: x = scale * quant, |quant| <= 127.
// They are tiled for the kernels, `token_tile` rows at a time: [tile][block][row of tile].
#pragma once

#include <cstdint>

namespace baton::engine::cpu {

enum class WeightKind : uint8_t { kInt4, kInt8, kHalf, kBrain };

struct Format {
  WeightKind kind = WeightKind::kBrain;
  bool wide = false;  // scales and minima are floats
  bool minimum = false;
  bool halves = false;  // two scales, for columns 0..15 and 16..31 (kInt8)
  bool operator==(const Format&) const = default;
};

static inline bool IsInteger(WeightKind kind) {
  return kind == WeightKind::kInt4 || kind == WeightKind::kInt8;
}

inline constexpr int kNibbleOffset = 8;  // makes -8..7 a nibble

// What is added to a quant where it is stored.
static inline int QuantOffset(Format format) {
  return format.kind == WeightKind::kInt4 && !format.minimum ? kNibbleOffset : 0;
}

// Bytes of one block of 32 columns of a group.
static inline uint32_t PackedBlockBytes(Format format, uint32_t lanes) {
  const uint32_t scale = format.wide ? 4 : 2;
  const uint32_t scales = scale * ((format.halves ? 2u : 1u) + (format.minimum ? 1u : 0u));
  switch (format.kind) {
    case WeightKind::kInt4:
      return lanes * (scales + 16);
    case WeightKind::kInt8:
      return lanes * (scales + 32);
    default:
      return lanes * 32 * 2;
  }
}

struct MatrixView {
  Format format;
  uint32_t rows = 0;
  uint32_t columns = 0;  // a multiple of 32
  uint32_t lanes = 0;
  const uint8_t* data = nullptr;

  uint32_t blocks() const { return columns / 32; }
  uint32_t groups() const { return (rows + lanes - 1) / lanes; }
  uint64_t group_bytes() const { return uint64_t{blocks()} * PackedBlockBytes(format, lanes); }
  uint64_t size_bytes() const { return groups() * group_bytes(); }
};

// The rows that a matrix is multiplied with: quantised, as floats, or both.
struct Inputs {
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t token_tile = 0;        // at most the kernels'; the last tile may be shorter
  float* values = nullptr;        // (rows, columns)
  int8_t* quants = nullptr;       // [tile][block][row of tile][32]
  float* scales = nullptr;        // [tile][block][row of tile]
  float* sums = nullptr;          // likewise: scale * sum of the quants
  int32_t* quant_sums = nullptr;  // likewise: sum of the quants

  uint32_t blocks() const { return columns / 32; }
  uint32_t tile_rows(uint32_t tile) const {
    const uint32_t left = rows - tile * token_tile;
    return left < token_tile ? left : token_tile;
  }
  // Index of a row's block in the [tile][block][row of tile] arrays.
  uint64_t block_index(uint32_t row, uint32_t block) const {
    const uint32_t tile = row / token_tile;
    return uint64_t{tile} * token_tile * blocks() + uint64_t{block} * tile_rows(tile) +
           row % token_tile;
  }
};

}  // namespace baton::engine::cpu
