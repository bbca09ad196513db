// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Packing keeps every weight: against GGUF's formulas, written down a second time.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/cpu/packed_matrix.h"
#include "tests/engine_cpu/gguf_reference.h"
#include "tests/engine_cpu/random_model.h"

namespace baton::engine::cpu {
namespace {

// All rows of all groups, those past the tensor's last included.
std::vector<float> UnpackGroups(const TensorView& tensor, uint32_t lanes, RowOrder order) {
  MatrixView view = PlanMatrix(tensor, lanes);
  std::vector<uint8_t> memory(view.size_bytes(), 0xa5);
  for (uint32_t g = 0; g < view.groups(); ++g) PackGroup(tensor, view, order, g, memory.data());
  view.data = memory.data();
  const uint32_t rows = view.groups() * lanes;
  std::vector<float> values(uint64_t{rows} * tensor.columns);
  for (uint32_t row = 0; row < rows; ++row) {
    DequantizeRow(view, row, values.data() + row * tensor.columns);
  }
  return values;
}

std::vector<float> Unpack(const TensorView& tensor, uint32_t lanes, RowOrder order) {
  std::vector<float> values = UnpackGroups(tensor, lanes, order);
  values.resize(tensor.rows * tensor.columns);
  return values;
}

constexpr TensorType kAllTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBf16,
                                    TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                    TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ4_K,
                                    TensorType::kQ5_K, TensorType::kQ6_K};

TEST_CASE("a packed matrix holds the file's values, each rounded once to a float") {
  const TensorType type = kAllTypes[GENERATE(range(0, 11))];
  const auto lanes = GENERATE(8u, 16u);
  const auto columns = GENERATE(352u, 512u);  // 11 and 16 blocks
  if (columns % SourceBlockColumns(type) != 0) return;
  INFO("type " << static_cast<int>(type) << " lanes " << lanes << " columns " << columns);
  RandomTensors tensors(5);
  const TensorView tensor = tensors.Make(type, 21, columns);
  const auto values = Unpack(tensor, lanes, {});
  for (uint32_t row = 0; row < tensor.rows; ++row) {
    for (uint32_t column = 0; column < tensor.columns; ++column) {
      const auto exact = static_cast<float>(Weight(tensor, row, column));
      const float value = values[row * tensor.columns + column];
      if (value != exact) FAIL_CHECK(row << ", " << column << ": " << value << ", not " << exact);
    }
  }
}

TEST_CASE("rows past a matrix's last are zero, whatever the memory held") {
  const TensorType type = kAllTypes[GENERATE(range(0, 11))];
  const auto lanes = GENERATE(8u, 16u);
  INFO("type " << static_cast<int>(type) << " lanes " << lanes);
  RandomTensors tensors(7);
  const TensorView tensor = tensors.Make(type, 21, 256);
  const auto values = UnpackGroups(tensor, lanes, {});
  REQUIRE(values.size() > tensor.rows * tensor.columns);
  for (size_t i = tensor.rows * tensor.columns; i < values.size(); ++i) {
    if (values[i] != 0) FAIL_CHECK(i << ": " << values[i]);
  }
}

std::vector<uint8_t> FromHex(const std::string& text) {
  const std::string bytes = absl::HexStringToBytes(text);
  return {bytes.begin(), bytes.end()};
}

TEST_CASE("a packed matrix holds what GGUF's own package makes of the blocks") {
  std::ifstream in(std::string(BATON_SOURCE_DIR) + "/tests/golden/gguf_blocks.json");
  const auto golden = nlohmann::json::parse(in);
  const uint32_t columns = golden["columns"];
  REQUIRE(golden["types"].size() == 8);
  for (const auto& one : golden["types"]) {
    INFO(one["name"]);
    const auto bytes = FromHex(one["bytes"]);
    const auto expected = FromHex(one["values"]);
    REQUIRE(expected.size() == columns * sizeof(float));
    const TensorView tensor{one["type"].get<TensorType>(), 1, columns, bytes.data(), bytes.size()};
    for (const uint32_t lanes : {8u, 16u}) {
      const auto values = Unpack(tensor, lanes, {});
      for (uint32_t i = 0; i < columns; ++i) {
        float value;
        std::memcpy(&value, expected.data() + i * sizeof(value), sizeof(value));
        // The package rounds the product and the sum, we the sum only.  A product is at most
        // 31 times a scale of 63 * 0.1; a quant that is wrong by one would show as 0.001 or more.
        REQUIRE(std::abs(double{values[i]} - double{value}) <= 0x1p-23 * 31 * 63 * 0.1);
      }
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
