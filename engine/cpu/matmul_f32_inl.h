// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Products of any packed matrix with float activations: the kernel of unquantised matrices,
// and the definition that integer kernels approximate.
//
// An output is one lane's sum over the columns in order.  Integer weights are first written
// out as floats, a group of rows and kDequantColumns columns at a time.
//
// Included once per instruction set, after attention_inl.h (for its From types).
#pragma once

#include "engine/cpu/kernels.h"

namespace baton::engine::cpu {
namespace {

inline V8 LoadScales(const uint8_t* scales, bool wide) {
  if (wide) return Load(reinterpret_cast<const float*>(scales));
  return LoadHalf(scales);
}

// 32 columns of 8 of a group's rows, from lane `lane` on, as target[column * lanes].
void Dequantize8(const MatrixView& matrix, const uint8_t* block, uint32_t lane, float* target) {
  const Format& format = matrix.format;
  const uint32_t lanes = matrix.lanes;
  const uint32_t scale_bytes = format.wide ? 4 : 2;
  const uint32_t array_bytes = lanes * scale_bytes;
  const uint8_t* at = block + lane * scale_bytes;
  const V8 first = LoadScales(at, format.wide);
  V8 second = first;
  V8 minimum = Zero();
  if (format.halves) second = LoadScales(at += array_bytes, format.wide);
  if (format.minimum) minimum = LoadScales(at += array_bytes, format.wide);
  const uint8_t* quants = at + array_bytes - lane * scale_bytes + 4 * lane;
  for (uint32_t column = 0; column < 32; ++column) {
    const uint32_t t = column / 4;
    V8 quant;
    if (format.kind == WeightKind::kInt4) {
      const int shift = static_cast<int>(8 * (column % 4) + (t >= 4 ? 4 : 0));
      quant = LoadNibbles(quants + uint64_t{t % 4} * lanes * 4, shift);
    } else {
      quant = LoadBytes(quants + uint64_t{t} * lanes * 4, static_cast<int>(column % 4));
    }
    Store(target + uint64_t{column} * lanes, Fma(column < 16 ? first : second, quant, minimum));
  }
}

// sums[c] += weights[k] * inputs[c][k] for 8 rows and C inputs; `weights` advances by
// `stride` bytes a column.
template <uint32_t C, typename From>
inline void SumColumns(const uint8_t* weights, uint32_t stride, const float* values,
                       uint64_t value_stride, uint32_t columns, float* sums, uint32_t lanes) {
  V8 sum[C];
  for (uint32_t c = 0; c < C; ++c) sum[c] = Load(sums + uint64_t{c} * lanes);
  for (uint32_t k = 0; k < columns; ++k) {
    const V8 weight = From::Get(weights + uint64_t{k} * stride);
    for (uint32_t c = 0; c < C; ++c) {
      sum[c] = Fma(weight, Set1(values[c * value_stride + k]), sum[c]);
    }
  }
  for (uint32_t c = 0; c < C; ++c) Store(sums + uint64_t{c} * lanes, sum[c]);
}

template <typename From>
void SumTile(uint32_t count, const uint8_t* weights, uint32_t stride, const float* values,
             uint64_t value_stride, uint32_t columns, float* sums, uint32_t lanes) {
  uint32_t c = 0;
  for (; c + 4 <= count; c += 4) {
    SumColumns<4, From>(weights, stride, values + c * value_stride, value_stride, columns,
                        sums + uint64_t{c} * lanes, lanes);
  }
  for (; c < count; ++c) {
    SumColumns<1, From>(weights, stride, values + c * value_stride, value_stride, columns,
                        sums + uint64_t{c} * lanes, lanes);
  }
}

// Columns [column, column + columns) of one group times the inputs, added to `sums`
// (row of tile, lane).  `weights`: the group's column `column`.
template <typename From>
void SumGroup(const MatMul& task, const uint8_t* weights, uint32_t first_row, uint32_t count,
              uint32_t column, uint32_t columns, float* sums) {
  const uint32_t lanes = task.matrix.lanes;
  const float* values = task.inputs.values + uint64_t{first_row} * task.inputs.columns + column;
  for (uint32_t lane = 0; lane < lanes; lane += kLanes) {
    SumTile<From>(count, weights + lane * From::kBytes, lanes * From::kBytes, values,
                  task.inputs.columns, columns, sums + lane, lanes);
  }
}

void StoreSums(const MatMul& task, uint32_t group, uint32_t row, const float* sums) {
  const uint32_t lanes = task.matrix.lanes;
  const uint32_t first = group * lanes;
  const uint32_t count = task.matrix.rows - first < lanes ? task.matrix.rows - first : lanes;
  float* output = task.output + (row - task.row_begin) * task.output_stride +
                  (group - task.group_begin) * lanes;
  for (uint32_t i = 0; i < count; ++i) output[i] = task.add ? output[i] + sums[i] : sums[i];
}

constexpr uint32_t kSumRows = 16;

// scratch: the weights as floats where they are integers.
void MatMulF32(const MatMul& task, float* scratch) {
  const MatrixView& m = task.matrix;
  const uint32_t block_bytes = PackedBlockBytes(m.format, m.lanes);
  alignas(32) float sums[kSumRows * 16];
  for (uint32_t group = task.group_begin; group < task.group_end; ++group) {
    const uint8_t* blocks = m.data + group * m.group_bytes();
    for (uint32_t row = task.row_begin; row < task.row_end; row += kSumRows) {
      const uint32_t count = task.row_end - row < kSumRows ? task.row_end - row : kSumRows;
      for (uint32_t i = 0; i < count * m.lanes; ++i) sums[i] = 0.0f;
      for (uint32_t column = 0; column < m.columns; column += kDequantColumns) {
        const uint32_t left = m.columns - column;
        const uint32_t columns = left < kDequantColumns ? left : kDequantColumns;
        const uint8_t* weights = blocks + uint64_t{column / 32} * block_bytes;
        if (m.format.kind == WeightKind::kHalf) {
          SumGroup<FromHalf>(task, weights, row, count, column, columns, sums);
        } else if (m.format.kind == WeightKind::kBrain) {
          SumGroup<FromBrain>(task, weights, row, count, column, columns, sums);
        } else {
          for (uint32_t b = 0; b < columns / 32; ++b) {
            for (uint32_t lane = 0; lane < m.lanes; lane += kLanes) {
              Dequantize8(m, weights + uint64_t{b} * block_bytes, lane,
                          scratch + uint64_t{b} * 32 * m.lanes + lane);
            }
          }
          SumGroup<FromFloat>(task, reinterpret_cast<const uint8_t*>(scratch), row, count, column,
                              columns, sums);
        }
      }
      for (uint32_t c = 0; c < count; ++c) StoreSums(task, group, row + c, sums + c * m.lanes);
    }
  }
}

}  // namespace
}  // namespace baton::engine::cpu
