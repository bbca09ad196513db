// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Products of any packed matrix with float activations: the kernel of unquantised matrices,
// and the definition that integer kernels approximate.
//
// An output is one lane's sum over the columns in order.  Integer weights are first written
// out as floats, a group of rows and kDequantColumns columns at a time.
//
// A group of rows is as wide as a register here.  Included once per instruction set, after
// attention_inl.h (for its From types and Sums).
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
  const V8 offset = Set1(static_cast<float>(QuantOffset(format)));
  if (format.halves) second = LoadScales(at += array_bytes, format.wide);
  if (format.minimum) minimum = LoadScales(at += array_bytes, format.wide);
  const uint8_t* quants = at + array_bytes - lane * scale_bytes + 4 * lane;
  for (uint32_t column = 0; column < 32; ++column) {
    const uint32_t t = column / 4;
    V8 quant;
    if (format.kind == WeightKind::kInt4) {
      const int shift = static_cast<int>(8 * (column % 4) + (t >= 4 ? 4 : 0));
      quant = Sub(LoadNibbles(quants + uint64_t{t % 4} * lanes * 4, shift), offset);
    } else {
      quant = LoadBytes(quants + uint64_t{t} * lanes * 4, static_cast<int>(column % 4));
    }
    Store(target + uint64_t{column} * lanes, Fma(column < 16 ? first : second, quant, minimum));
  }
}

// sums[row of tile][lane] += one group times `count` inputs from `row` on, for columns
// [column, column + columns), whose weights are floats.
void SumGroup(const MatMul& task, const float* weights, uint32_t row, uint32_t count,
              uint32_t column, uint32_t columns, float* sums) {
  for (uint32_t i = 0; i < count; ++i) {
    const float* values = task.inputs.values + uint64_t{row + i} * task.inputs.columns + column;
    Wide sum = LoadAs<Wide>(sums + i * kWide);
    for (uint32_t k = 0; k < columns; ++k) {
      sum = Fma(LoadAs<Wide>(weights + uint64_t{k} * kWide), Splat<Wide>(values[k]), sum);
    }
    Store(sums + i * kWide, sum);
  }
}

// Writes, or adds, one input's products with a group of rows.
void StoreSums(const MatMul& task, uint32_t group, uint32_t row, const float* sums) {
  const uint32_t lanes = task.matrix.lanes;
  const uint32_t first = group * lanes;
  const uint32_t count = task.matrix.rows - first < lanes ? task.matrix.rows - first : lanes;
  float* output = task.output + (row - task.row_begin) * task.output_stride +
                  (group - task.group_begin) * lanes;
  for (uint32_t i = 0; i < count; ++i) output[i] = task.add ? output[i] + sums[i] : sums[i];
}
inline void StoreSums(const MatMul& task, uint32_t group, uint32_t row, Wide sums) {
  if ((group + 1) * kWide > task.matrix.rows) {
    float lanes[kWide];
    Store(lanes, sums);
    return StoreSums(task, group, row, lanes);
  }
  float* output = task.output + (row - task.row_begin) * task.output_stride +
                  (group - task.group_begin) * kWide;
  Store(output, task.add ? Add(LoadAs<Wide>(output), sums) : sums);
}

// R inputs times G groups of floats.
template <uint32_t R, uint32_t G, typename From>
void SumFloats(const MatMul& task, uint32_t group, uint32_t row) {
  const MatrixView& m = task.matrix;
  const uint64_t group_bytes = m.group_bytes();
  const uint8_t* weights = m.data + group * group_bytes;
  const float* values = task.inputs.values + uint64_t{row} * m.columns;
  const uint64_t stride = m.columns;
  Sums<Wide, R, G> sums;
  for (uint32_t k = 0; k < m.columns; ++k, weights += kWide * From::kBytes) {
    sums.Add([&](uint32_t r) { return values[r * stride + k]; },
             [&](uint32_t g) { return From::template Get<Wide>(weights + g * group_bytes); });
  }
#pragma GCC unroll 16
  for (uint32_t r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (uint32_t g = 0; g < G; ++g) StoreSums(task, group + g, row + r, sums.sums[r][g]);
  }
}

// All rows of the task, R at a time, and the rest by smaller steps.
template <uint32_t R, uint32_t G, typename From>
void SumFloatRows(const MatMul& task, uint32_t group, uint32_t row) {
  for (; row + R <= task.row_end; row += R) SumFloats<R, G, From>(task, group, row);
  constexpr uint32_t kLess = R > 8 ? 8 : R == 6 ? 4 : R / 2;
  if constexpr (R > 1) SumFloatRows<kLess, G, From>(task, group, row);
}

template <typename From>
void MatMulFloats(const MatMul& task) {
  // Four groups keep enough sums going for a single row.
  constexpr uint32_t kFew = 4;
  uint32_t group = task.group_begin;
  if (task.row_end - task.row_begin < kFew) {
    for (; group + 4 <= task.group_end; group += 4) {
      SumFloatRows<2, 4, From>(task, group, task.row_begin);
    }
  }
  for (; group + 2 <= task.group_end; group += 2) {
    SumFloatRows<kWideSums / 2, 2, From>(task, group, task.row_begin);
  }
  if (group < task.group_end) SumFloatRows<8, 1, From>(task, group, task.row_begin);
}

constexpr uint32_t kSumRows = 16;

// scratch: the weights as floats.
void MatMulIntegers(const MatMul& task, float* scratch) {
  const MatrixView& m = task.matrix;
  const uint32_t block_bytes = PackedBlockBytes(m.format, m.lanes);
  float sums[kSumRows * kWide];
  for (uint32_t group = task.group_begin; group < task.group_end; ++group) {
    const uint8_t* blocks = m.data + group * m.group_bytes();
    for (uint32_t row = task.row_begin; row < task.row_end; row += kSumRows) {
      const uint32_t count = task.row_end - row < kSumRows ? task.row_end - row : kSumRows;
      for (uint32_t i = 0; i < count * kWide; ++i) sums[i] = 0.0f;
      for (uint32_t column = 0; column < m.columns; column += kDequantColumns) {
        const uint32_t left = m.columns - column;
        const uint32_t columns = left < kDequantColumns ? left : kDequantColumns;
        const uint8_t* weights = blocks + uint64_t{column / 32} * block_bytes;
        for (uint32_t b = 0; b < columns / 32; ++b) {
          for (uint32_t lane = 0; lane < kWide; lane += kLanes) {
            Dequantize8(m, weights + uint64_t{b} * block_bytes, lane,
                        scratch + uint64_t{b} * 32 * kWide + lane);
          }
        }
        SumGroup(task, scratch, row, count, column, columns, sums);
      }
      for (uint32_t c = 0; c < count; ++c) StoreSums(task, group, row + c, sums + c * kWide);
    }
  }
}

void MatMulF32(const MatMul& task, float* scratch) {
  switch (task.matrix.format.kind) {
    case WeightKind::kHalf:
      return MatMulFloats<FromHalf>(task);
    case WeightKind::kBrain:
      return MatMulFloats<FromBrain>(task);
    default:
      return MatMulIntegers(task, scratch);
  }
}

}  // namespace
}  // namespace baton::engine::cpu
