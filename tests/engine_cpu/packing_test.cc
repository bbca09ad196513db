// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Packing keeps every weight: against GGUF's formulas, written down here a second time.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/cpu/packed_matrix.h"
#include "tests/engine_cpu/random_model.h"

namespace baton::engine::cpu {
namespace {

double Half(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, 2);
  return double{HalfToFloat(half)};
}

uint32_t Bit(const uint8_t* bytes, uint32_t i) { return (bytes[i / 8] >> (i % 8)) & 1u; }

uint32_t Nibble(const uint8_t* bytes, uint32_t column) {
  return column < 16 ? bytes[column] & 15u : bytes[column - 16] >> 4;
}

// The i-th 6-bit scale (or minimum) of a K-quant of 8 x 32 columns.
uint32_t SixBits(const uint8_t* packed, uint32_t i, bool minimum) {
  const uint32_t half = minimum ? 4 : 0;
  if (i < 4) return packed[i + half] & 63u;
  const uint32_t low = minimum ? packed[i + 4] >> 4 : packed[i + 4] & 15u;
  return low + 16 * (packed[i - 4 + half] >> 6);
}

double KQuant(const uint8_t* at, uint32_t column, bool five) {
  const uint32_t sub = column / 32;
  const uint32_t l = column % 32;
  const uint8_t byte = at[(five ? 48 : 16) + 32 * (sub / 2) + l];
  uint32_t quant = sub % 2 == 0 ? byte & 15u : byte >> 4;
  if (five) quant += 16 * ((at[16 + l] >> sub) & 1u);
  return Half(at) * SixBits(at + 4, sub, false) * quant - Half(at + 2) * SixBits(at + 4, sub, true);
}

double Q6K(const uint8_t* at, uint32_t column) {
  const uint32_t half = column / 128;
  const uint32_t quarter = column % 128 / 32;
  const uint32_t l = column % 32;
  const uint8_t low = at[64 * half + 32 * (quarter % 2) + l];
  const uint32_t high = (at[128 + 32 * half + l] >> (2 * quarter)) & 3u;
  const int quant = static_cast<int>((quarter < 2 ? low & 15u : low >> 4) + 16 * high) - 32;
  const auto scale = static_cast<int8_t>(at[192 + column / 16]);
  return Half(at + 208) * scale * quant;
}

double Weight(const TensorView& tensor, uint32_t row, uint32_t column) {
  const uint32_t block_columns = SourceBlockColumns(tensor.type);
  const uint64_t block = (uint64_t{row} * tensor.columns + column) / block_columns;
  const uint8_t* at = tensor.data + block * SourceBlockBytes(tensor.type);
  const uint32_t c = column % block_columns;
  float value;
  uint16_t brain;
  switch (tensor.type) {
    case TensorType::kF32:
      std::memcpy(&value, at, 4);
      return double{value};
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

std::vector<float> Unpack(const TensorView& tensor, uint32_t lanes, RowOrder order) {
  MatrixView view = PlanMatrix(tensor, lanes);
  std::vector<uint8_t> memory(view.size_bytes());
  for (uint32_t g = 0; g < view.groups(); ++g) PackGroup(tensor, view, order, g, memory.data());
  view.data = memory.data();
  std::vector<float> values(tensor.rows * tensor.columns);
  for (uint32_t row = 0; row < tensor.rows; ++row) {
    DequantizeRow(view, row, values.data() + row * tensor.columns);
  }
  return values;
}

TEST_CASE("a packed matrix holds the file's values, rounded once") {
  const auto type =
      GENERATE(TensorType::kF32, TensorType::kF16, TensorType::kBf16, TensorType::kQ4_0,
               TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ8_0,
               TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K);
  const auto lanes = GENERATE(8u, 16u);
  INFO("type " << static_cast<int>(type) << " lanes " << lanes);
  RandomTensors tensors(5);
  const TensorView tensor = tensors.Make(type, 21, 512);
  const auto values = Unpack(tensor, lanes, {});
  for (uint32_t row = 0; row < tensor.rows; ++row) {
    for (uint32_t column = 0; column < tensor.columns; ++column) {
      const auto exact = static_cast<float>(Weight(tensor, row, column));
      const float value = values[row * tensor.columns + column];
      // The K-quants' minimum is a product that is rounded before.
      if (value != exact) CHECK(value == Approx(exact).epsilon(1e-6));
    }
  }
}

TEST_CASE("rotated pairs of a head come apart by half of the rotated dimensions") {
  RandomTensors tensors(6);
  const TensorView tensor = tensors.Make(TensorType::kQ8_0, 24, 32);
  const auto plain = Unpack(tensor, 8, {});
  const auto apart = Unpack(tensor, 8, {.head_dim = 12, .rope_dims = 8});
  // Rows 0 and 4 of a head are the file's 0 and 1; rows past the rotated ones stay.
  const uint32_t sources[12] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11};
  for (uint32_t row = 0; row < 24; ++row) {
    const uint32_t source = row / 12 * 12 + sources[row % 12];
    CHECK(std::memcmp(apart.data() + row * 32, plain.data() + source * 32, 128) == 0);
  }
}

TEST_CASE("half floats convert as IEEE 754 says") {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = HalfToFloat(static_cast<uint16_t>(half));
    if (std::isnan(value)) continue;
    if (FloatToHalf(value) != half) FAIL_CHECK("half " << half);
  }
  CHECK(FloatToHalf(1.0f + 0x1p-11f) == 0x3c00);             // a tie goes to even
  CHECK(FloatToHalf(1.0f + 0x1p-11f + 0x1p-20f) == 0x3c01);  // above it, up
  CHECK(FloatToHalf(65519.0f) == 0x7bff);
  CHECK(FloatToHalf(65520.0f) == 0x7c00);
  CHECK(FloatToHalf(0x1p-25f) == 0);
  CHECK(FloatToHalf(0x1.8p-25f) == 1);
}

}  // namespace
}  // namespace baton::engine::cpu
