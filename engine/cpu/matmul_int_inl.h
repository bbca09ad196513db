// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The loops around the products of quantised matrices with quantised activations.
//
// Included by the files of the vector instruction sets, after they have defined, for C rows
// of activations and one group of weights,
//
//   SumInt4<C, wide, minimum>(block, blocks, tile, total)
//   SumInt8<C, wide, minimum, halves>(block, blocks, tile, total)
//
// which write C vectors of sums over all blocks of the group; kTokenTile is the largest C.
#pragma once

#include "engine/cpu/kernels.h"

namespace baton::engine::cpu {
namespace {

// Runs sum<count>(...) for the tile's number of rows, at most C.
template <uint32_t C, typename Sum>
inline void SumRows(uint32_t count, const uint8_t* weights, uint32_t blocks, const Tile& tile,
                    Wide* total, Sum sum) {
  if constexpr (C > 1) {
    if (count < C) return SumRows<C - 1>(count, weights, blocks, tile, total, sum);
  }
  sum.template operator()<C>(weights, blocks, tile, total);
}

// Runs `sum` over the task's groups and tiles.
template <typename Sum>
void ForTiles(const MatMul& task, Sum sum) {
  const MatrixView& m = task.matrix;
  const uint32_t blocks = m.blocks();
  const uint32_t step = task.inputs.token_tile;
  for (uint32_t group = task.group_begin; group < task.group_end; ++group) {
    const uint8_t* weights = m.data + group * m.group_bytes();
    for (uint32_t row = task.row_begin; row < task.row_end; row += step) {
      const uint64_t at = uint64_t{row} * blocks;
      const Tile tile{task.inputs.quants + at * 32, task.inputs.scales + at, task.inputs.sums + at,
                      task.inputs.quant_sums + at};
      const uint32_t count = task.inputs.tile_rows(row / step);
      Wide total[kTokenTile];
      SumRows<kTokenTile>(count, weights, blocks, tile, total, sum);
      for (uint32_t c = 0; c < count; ++c) StoreSums(task, group, row + c, total[c]);
    }
  }
}

template <bool kWideScales, bool kMinimum>
void RunInt4(const MatMul& task) {
  ForTiles(task, []<uint32_t C>(const uint8_t* w, uint32_t blocks, const Tile& tile, Wide* total) {
    SumInt4<C, kWideScales, kMinimum>(w, blocks, tile, total);
  });
}

template <bool kWideScales, bool kMinimum, bool kHalves>
void RunInt8(const MatMul& task) {
  ForTiles(task, []<uint32_t C>(const uint8_t* w, uint32_t blocks, const Tile& tile, Wide* total) {
    SumInt8<C, kWideScales, kMinimum, kHalves>(w, blocks, tile, total);
  });
}

void MatMulInt8(const MatMul& task) {
  const Format& format = task.matrix.format;
  if (format.kind == WeightKind::kInt4) {
    if (!format.minimum) return RunInt4<false, false>(task);
    return format.wide ? RunInt4<true, true>(task) : RunInt4<false, true>(task);
  }
  if (format.halves) return RunInt8<true, false, true>(task);
  if (format.wide) return RunInt8<true, true, false>(task);
  return format.minimum ? RunInt8<false, true, false>(task) : RunInt8<false, false, false>(task);
}

}  // namespace
}  // namespace baton::engine::cpu
