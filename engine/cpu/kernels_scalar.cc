// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The definition of the kernels, in plain C++, for any machine and for tests.
#include "engine/cpu/kernels.h"
// In the order of their needs.
// clang-format off
#include "engine/cpu/simd_scalar.h"
#include "engine/cpu/simd_pair.h"
#include "engine/cpu/rows_inl.h"
#include "engine/cpu/attention_inl.h"
#include "engine/cpu/matmul_f32_inl.h"
// clang-format on

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kGroupRows = 8;

float ScaleAt(const uint8_t* scales, bool wide, uint32_t i) {
  if (wide) {
    float value;
    __builtin_memcpy(&value, scales + 4 * i, sizeof(value));
    return value;
  }
  uint16_t half;
  __builtin_memcpy(&half, scales + 2 * i, sizeof(half));
  return HalfToFloat(half);
}

// Sum over 16 columns (half = 0: 0..15, 1: 16..31) of weight * activation, as integers.
int32_t DotHalf(Format format, const uint8_t* quants, const int8_t* x, uint32_t lane,
                uint32_t half) {
  int32_t sum = 0;
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t at = kGroupRows * 4 * (i / 4) + 4 * lane + i % 4;
    const int32_t weight = format.kind == WeightKind::kInt4
                               ? ((quants[at] >> (4 * half)) & 15) - QuantOffset(format)
                               : static_cast<int8_t>(quants[at + half * kGroupRows * 16]);
    sum += weight * x[16 * half + i];
  }
  return sum;
}

float DotLane(const MatMul& task, uint32_t group, uint32_t lane, uint32_t row) {
  const MatrixView& m = task.matrix;
  const Format& format = m.format;
  const uint32_t block_bytes = PackedBlockBytes(format, kGroupRows);
  const uint32_t array_bytes = kGroupRows * (format.wide ? 4 : 2);
  float sum = 0.0f;
  for (uint32_t b = 0; b < m.blocks(); ++b) {
    const uint8_t* block = m.data + group * m.group_bytes() + uint64_t{b} * block_bytes;
    const uint8_t* quants =
        block + array_bytes * (1u + (format.halves ? 1u : 0u) + (format.minimum ? 1u : 0u));
    const uint64_t at = task.inputs.block_index(row, b);
    const int8_t* x = task.inputs.quants + at * 32;
    const float x_scale = task.inputs.scales[at];
    const int32_t low = DotHalf(format, quants, x, lane, 0);
    const int32_t high = DotHalf(format, quants, x, lane, 1);
    const float scale = ScaleAt(block, format.wide, lane) * x_scale;
    if (format.halves) {
      const float second = ScaleAt(block + array_bytes, format.wide, lane) * x_scale;
      sum = std::fma(scale, static_cast<float>(low), sum);
      sum = std::fma(second, static_cast<float>(high), sum);
    } else {
      sum = std::fma(scale, static_cast<float>(low + high), sum);
    }
    if (format.minimum) {
      const float minimum = ScaleAt(quants - array_bytes, format.wide, lane);
      sum = std::fma(minimum, task.inputs.sums[at], sum);
    }
  }
  return sum;
}

void MatMulInt8(const MatMul& task) {
  for (uint32_t group = task.group_begin; group < task.group_end; ++group) {
    for (uint32_t row = task.row_begin; row < task.row_end; ++row) {
      float sums[kGroupRows];
      for (uint32_t lane = 0; lane < kGroupRows; ++lane) {
        sums[lane] = DotLane(task, group, lane, row);
      }
      StoreSums(task, group, row, sums);
    }
  }
}

}  // namespace

const Kernels& ScalarKernels() {
  static const Kernels kernels{.name = "scalar",
                               .lanes = kGroupRows,
                               .token_tile = 6,
                               .matmul_int8 = MatMulInt8,
                               .matmul_f32 = MatMulF32,
                               .store_inputs = StoreInputs,
                               .rms_norm = RmsNorm,
                               .swiglu = SwiGlu,
                               .rope = Rope,
                               .store_kv = StoreKv,
                               .attend = Attend,
                               .merge = Merge,
                               .finish = Finish};
  return kernels;
}

}  // namespace baton::engine::cpu
