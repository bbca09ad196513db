// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Each kernel of each instruction set against the scalar definition, bit by bit.
#include "engine/cpu/kernels.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/cpu/isa.h"
#include "engine/cpu/packed_matrix.h"
#include "engine/cpu/step.h"
#include "tests/engine_cpu/random_model.h"

namespace baton::engine::cpu {

const Kernels& EmulatedAvx512Kernels();

namespace {

constexpr TensorType kTypes[] = {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                 TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ4_K,
                                 TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kF32,
                                 TensorType::kF16,  TensorType::kBf16};

// Those that run here, without the scalar ones; AVX-512 emulated in any case.
std::vector<const Kernels*> Others() {
  std::vector<const Kernels*> others;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    if (const auto kernels = ChooseKernels(isa); kernels.ok()) others.push_back(*kernels);
  }
  if (ChooseKernels(Isa::kAvx2).ok()) others.push_back(&EmulatedAvx512Kernels());
  return others;
}

struct PackedTensor {
  PackedTensor(const TensorView& tensor, uint32_t lanes) : view(PlanMatrix(tensor, lanes)) {
    memory.Reserve(view.size_bytes());
    for (uint32_t g = 0; g < view.groups(); ++g) {
      PackGroup(tensor, view, {}, g, memory.data());
    }
    view.data = memory.data();
  }
  MatrixView view;
  Buffer memory;
};

std::vector<float> RandomFloats(Random& random, size_t count, float size) {
  std::vector<float> values(count);
  for (float& value : values) value = RandomFloat(random, size);
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// The product in doubles; inputs as `kernels` see them (quantised or not).
std::vector<double> Exact(const PackedTensor& matrix, const Inputs& inputs) {
  const uint32_t columns = matrix.view.columns;
  std::vector<double> result;
  std::vector<float> weights(columns);
  for (uint32_t row = 0; row < inputs.rows; ++row) {
    for (uint32_t m = 0; m < matrix.view.rows; ++m) {
      DequantizeRow(matrix.view, m, weights.data());
      double sum = 0;
      for (uint32_t c = 0; c < columns; ++c) {
        double x = 0;
        if (inputs.quants != nullptr) {
          const uint64_t at = inputs.block_index(row, c / 32);
          x = double{inputs.scales[at]} * inputs.quants[at * 32 + c % 32];
        } else {
          x = inputs.values[uint64_t{row} * columns + c];
        }
        sum += x * double{weights[c]};
      }
      result.push_back(sum);
    }
  }
  return result;
}

// (rows of inputs, rows of matrix), added to 0.5 if `add`.
std::vector<float> Product(const Kernels& kernels, const PackedTensor& matrix, const Inputs& inputs,
                           bool add) {
  std::vector<float> output(uint64_t{inputs.rows} * matrix.view.rows, 0.5f);
  std::vector<float> scratch(MatMulScratchFloats());
  const MatMul task{.matrix = matrix.view,
                    .inputs = inputs,
                    .row_begin = 0,
                    .row_end = inputs.rows,
                    .group_begin = 0,
                    .group_end = matrix.view.groups(),
                    .output = output.data(),
                    .output_stride = matrix.view.rows,
                    .add = add};
  if (inputs.quants != nullptr) {
    kernels.matmul_int8(task);
  } else {
    kernels.matmul_f32(task, scratch.data());
  }
  return output;
}

void FillInputs(const Kernels& kernels, const std::vector<float>& values, const Inputs& inputs) {
  for (uint32_t row = 0; row < inputs.rows; ++row) {
    kernels.store_inputs(values.data() + uint64_t{row} * inputs.columns, row, 0, inputs.columns,
                         inputs);
  }
}

TEST_CASE("products are exact to rounding and the same bits on every instruction set") {
  for (const TensorType type : kTypes) {
    for (const bool quants : {true, false}) {
      if (quants && !IsQuantized(type)) continue;
      for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 13u, 19u}) {
        INFO("type " << static_cast<int>(type) << " quants " << quants << " rows " << rows);
        RandomTensors tensors(rows);
        const uint32_t columns = SourceBlockColumns(type) == 256 ? 512 : 32 * (1 + rows % 4);
        const TensorView tensor = tensors.Make(type, 8 * (rows % 5) + 1 + rows % 8, columns);
        const auto values = RandomFloats(tensors.random(), uint64_t{rows} * columns, 3.0f);
        const bool add = rows % 2 == 1;
        const PackedTensor scalar_matrix(tensor, ScalarKernels().lanes);
        InputRows scalar_inputs;
        FillInputs(ScalarKernels(), values,
                   scalar_inputs.Resize(rows, columns, 6, quants, !quants));
        const auto expected = Product(ScalarKernels(), scalar_matrix, scalar_inputs.get(), add);
        const auto exact = Exact(scalar_matrix, scalar_inputs.get());
        for (size_t i = 0; i < exact.size(); ++i) {
          REQUIRE(expected[i] - (add ? 0.5 : 0.0) == Approx(exact[i]).margin(2e-4));
        }
        for (const Kernels* kernels : Others()) {
          INFO(kernels->name);
          const PackedTensor matrix(tensor, kernels->lanes);
          InputRows inputs;
          FillInputs(*kernels, values,
                     inputs.Resize(rows, columns, kernels->token_tile, quants, !quants));
          CHECK(SameBits(Product(*kernels, matrix, inputs.get(), add), expected));
        }
      }
    }
  }
}

TEST_CASE("the largest quants do not saturate") {
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ8_0}) {
    for (const uint8_t fill : {0x00, 0x7f, 0x80, 0xff}) {
      const uint32_t block_bytes = SourceBlockBytes(type);
      std::vector<uint8_t> bytes(8 * block_bytes, fill);
      for (uint32_t row = 0; row < 8; ++row) {
        const uint16_t one = FloatToHalf(1.0f);
        std::memcpy(bytes.data() + row * block_bytes, &one, 2);
      }
      const TensorView tensor{type, 8, 32, bytes.data(), bytes.size()};
      for (const float sign : {1.0f, -1.0f}) {
        const std::vector<float> values(32, sign * 127.0f);
        std::vector<const Kernels*> all = Others();
        all.push_back(&ScalarKernels());
        for (const Kernels* kernels : all) {
          const PackedTensor matrix(tensor, kernels->lanes);
          InputRows inputs;
          FillInputs(*kernels, values, inputs.Resize(1, 32, 1, true, false));
          const auto exact = Exact(matrix, inputs.get());
          CHECK(Product(*kernels, matrix, inputs.get(), false)[0] == exact[0]);
        }
      }
    }
  }
}

TEST_CASE("quantised activations are within half a step, and zero and NaN rows are harmless") {
  Random random(4);
  std::vector<float> values = RandomFloats(random, 64, 5.0f);
  std::fill(values.begin() + 32, values.end(), 0.0f);
  std::vector<const Kernels*> all = Others();
  all.push_back(&ScalarKernels());
  for (const Kernels* kernels : all) {
    InputRows rows;
    const Inputs& inputs = rows.Resize(1, 64, 1, true, false);
    FillInputs(*kernels, values, inputs);
    int32_t sum = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      sum += inputs.quants[i];
      CHECK(std::abs(inputs.scales[0] * inputs.quants[i] - values[i]) <=
            inputs.scales[0] * 0.5001f);
    }
    CHECK(inputs.quant_sums[0] == sum);
    CHECK(inputs.sums[0] == inputs.scales[0] * static_cast<float>(sum));
    CHECK(inputs.scales[1] == 0.0f);
    CHECK(inputs.quant_sums[1] == 0);
    std::vector<float> odd(64, std::numeric_limits<float>::quiet_NaN());
    odd[40] = std::numeric_limits<float>::infinity();
    odd[3] = 1.0f;
    FillInputs(*kernels, odd, inputs);
    for (uint32_t i = 0; i < 64; ++i) CHECK(inputs.quants[i] != -128);
    CHECK(std::isfinite(inputs.scales[1]));
  }
}

TEST_CASE("what works along a row is the same bits on every instruction set") {
  Random random(9);
  const Kernels& scalar = ScalarKernels();
  for (const Kernels* kernels : Others()) {
    for (const uint32_t count : {8u, 64u, 576u}) {
      auto a = RandomFloats(random, count, 30.0f);
      const auto b = RandomFloats(random, count, 2.0f);
      std::vector<float> x(count), y(count);
      scalar.rms_norm(a.data(), b.data(), count, 1e-5f, x.data());
      kernels->rms_norm(a.data(), b.data(), count, 1e-5f, y.data());
      CHECK(SameBits(x, y));
      x = a;
      y = a;
      scalar.swiglu(x.data(), b.data(), count);
      kernels->swiglu(y.data(), b.data(), count);
      CHECK(SameBits(x, y));
      for (uint32_t i = 0; i < count; ++i) {
        const double exact = a[i] / (1.0 + std::exp(-double{a[i]})) * b[i];
        CHECK(x[i] == Approx(exact).epsilon(1e-6).margin(1e-9));
      }
    }
    for (const uint32_t half : {4u, 6u, 16u, 32u}) {
      const auto cosine = RandomFloats(random, half, 1.0f);
      const auto sine = RandomFloats(random, half, 1.0f);
      auto x = RandomFloats(random, 72, 1.0f);
      auto y = x;
      scalar.rope(x.data(), cosine.data(), sine.data(), half, 72, 0.125f);
      kernels->rope(y.data(), cosine.data(), sine.data(), half, 72, 0.125f);
      CHECK(SameBits(x, y));
    }
  }
}

TEST_CASE("stored KV is always finite and rounds to the nearest") {
  std::vector<float> values = {0.0f, -0.0f, 1.0f, 65519.0f, 1e30f, -1e30f, 1e-7f, 0.1f};
  values.push_back(std::numeric_limits<float>::infinity());
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  Random random(11);
  while (values.size() < 64) {
    const auto bits = static_cast<uint32_t>(random.Next());
    values.push_back(FloatFromBits(bits));
  }
  for (const KvType type : {KvType::kF16, KvType::kBf16, KvType::kF32}) {
    std::vector<uint8_t> expected(values.size() * KvTypeBytes(type));
    ScalarKernels().store_kv(values.data(), 64, type, expected.data());
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half = 0;
      float value = 0;
      if (type == KvType::kF32) {
        std::memcpy(&value, expected.data() + i * 4, 4);
      } else {
        std::memcpy(&half, expected.data() + i * 2, 2);
        value = type == KvType::kF16 ? HalfToFloat(half) : BrainToFloat(half);
      }
      CHECK(std::isfinite(value));
    }
    for (const Kernels* kernels : Others()) {
      std::vector<uint8_t> stored(expected.size());
      kernels->store_kv(values.data(), 64, type, stored.data());
      CHECK(stored == expected);
    }
  }
}

}  // namespace
}  // namespace baton::engine::cpu
