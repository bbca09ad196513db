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
#include "tests/engine_cpu/gguf_reference.h"
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

// A product in doubles, and how far from it a kernel may be.
struct ExactProduct {
  double value = 0;
  double bound = 0;
};

// Inputs as the kernels see them (quantised or not).  An integer kernel rounds a scale, a dot
// product and a minimum per block and half, the others every column: each time by at most
// 2^-24 of the sum of all magnitudes.
std::vector<ExactProduct> Exact(const TensorView& tensor, const Inputs& inputs) {
  const auto columns = static_cast<uint32_t>(tensor.columns);
  const bool quants = inputs.quants != nullptr;
  const double roundings = quants ? 4.0 * columns / 32 + 4 : columns + 4.0;
  std::vector<ExactProduct> result;
  std::vector<QuantBlock> blocks(columns / 32);
  for (uint32_t row = 0; row < inputs.rows; ++row) {
    for (uint32_t m = 0; m < tensor.rows; ++m) {
      const uint8_t* at = tensor.data + m * (tensor.size_bytes / tensor.rows);
      if (IsQuantized(tensor.type)) ReadQuantRow(tensor.type, at, columns, blocks.data());
      ExactProduct product;
      for (uint32_t c = 0; c < columns; ++c) {
        double x = inputs.values == nullptr ? 0 : inputs.values[uint64_t{row} * columns + c];
        if (quants) {
          const uint64_t block = inputs.block_index(row, c / 32);
          x = double{inputs.scales[block]} * inputs.quants[block * 32 + c % 32];
        }
        const double weight = Weight(tensor, m, c);
        const QuantBlock& b = blocks[c / 32];
        const double size = IsQuantized(tensor.type)
                                ? std::abs(double{b.scale[c % 32 / 16]} * b.quant[c % 32]) +
                                      std::abs(double{b.minimum})
                                : std::abs(weight);
        product.value += x * weight;
        product.bound += std::abs(x) * size * roundings * 0x1p-24;
      }
      result.push_back(product);
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
      for (const uint32_t rows : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 12u, 13u, 19u}) {
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
        const auto exact = Exact(tensor, scalar_inputs.get());
        for (size_t i = 0; i < exact.size(); ++i) {
          const double before = add ? 0.5 : 0.0;
          REQUIRE(std::abs(expected[i] - before - exact[i].value) <=
                  exact[i].bound + before * 0x1p-23);
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

// Where a block of the type keeps its halves: scale, and minimum or a second scale.
void PutScales(TensorType type, float scale, uint8_t* block) {
  const uint16_t half = FloatToHalf(scale);
  if (type == TensorType::kQ6_K) {
    std::memcpy(block + 208, &half, 2);
    return;
  }
  std::memcpy(block, &half, 2);
  const bool two = type == TensorType::kQ4_1 || type == TensorType::kQ5_1 ||
                   type == TensorType::kQ4_K || type == TensorType::kQ5_K;
  if (two) std::memcpy(block + 2, &half, 2);
}

// Sums of 16 bits hold 2 * 8 products of at most 15 * 127, or two of 128 * 127; the largest
// quants of both signs, 512 columns of them, with the largest scales, must not leave them.
TEST_CASE("the largest quants and scales neither saturate nor overflow") {
  std::vector<const Kernels*> all = Others();
  all.push_back(&ScalarKernels());
  const auto type =
      GENERATE(TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1,
               TensorType::kQ8_0, TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K);
  const auto fill = GENERATE(0x00, 0x7f, 0x80, 0xff);
  const auto scale = GENERATE(1.0f, 65504.0f / 8);
  INFO("type " << static_cast<int>(type) << " fill " << fill << " scale " << scale);
  const uint32_t block_bytes = SourceBlockBytes(type);
  const uint32_t blocks = 3 * 512 / SourceBlockColumns(type);
  std::vector<uint8_t> bytes(uint64_t{blocks} * block_bytes, static_cast<uint8_t>(fill));
  for (uint32_t b = 0; b < blocks; ++b) PutScales(type, scale, bytes.data() + b * block_bytes);
  const TensorView tensor{type, 3, 512, bytes.data(), bytes.size()};
  for (const float size : {127.0f, -127.0f, 1e20f}) {
    const std::vector<float> values(9 * 512, size);
    for (const Kernels* kernels : all) {
      INFO(kernels->name << " inputs " << size);
      const PackedTensor matrix(tensor, kernels->lanes);
      InputRows inputs;
      FillInputs(*kernels, values, inputs.Resize(9, 512, kernels->token_tile, true, false));
      for (uint32_t i = 0; i < 9 * 512; ++i) {
        REQUIRE(inputs.get().quants[i] == (size < 0 ? -127 : 127));
      }
      const auto exact = Exact(tensor, inputs.get());
      const auto product = Product(*kernels, matrix, inputs.get(), false);
      for (size_t i = 0; i < exact.size(); ++i) {
        REQUIRE(std::abs(product[i] - exact[i].value) <= exact[i].bound);
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
    for (const uint32_t count : {16u, 64u, 576u}) {
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
  for (const KvType type : kKvTypes) {
    std::vector<uint8_t> expected(values.size() * KvTypeBytes(type));
    float scale = -1;
    ScalarKernels().store_kv(values.data(), 64, type, expected.data(), &scale);
    CHECK(std::isfinite(scale));
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half = 0;
      float value = 0;
      if (type == KvType::kInt8) {
        value = scale * static_cast<int8_t>(expected[i]);
      } else if (type == KvType::kF32) {
        std::memcpy(&value, expected.data() + i * 4, 4);
      } else {
        std::memcpy(&half, expected.data() + i * 2, 2);
        value = type == KvType::kF16 ? HalfToFloat(half) : BrainToFloat(half);
      }
      CHECK(std::isfinite(value));
    }
    for (const Kernels* kernels : Others()) {
      std::vector<uint8_t> stored(expected.size());
      float stored_scale = -1;
      kernels->store_kv(values.data(), 64, type, stored.data(), &stored_scale);
      CHECK(stored == expected);
      CHECK(stored_scale == scale);
    }
  }
}

TEST_CASE("a row of int8 KV is within half a step, whatever its size") {
  Random random(12);
  for (const float size : {0.0f, 1e-33f, 1e-6f, 1.0f, 1e30f}) {
    const auto values = RandomFloats(random, 96, size);
    int8_t bytes[96];
    float scale = -1;
    ScalarKernels().store_kv(values.data(), 96, KvType::kInt8, reinterpret_cast<uint8_t*>(bytes),
                             &scale);
    int largest = 0;
    for (uint32_t i = 0; i < 96; ++i) {
      largest = std::max(largest, std::abs(int{bytes[i]}));
      if (size >= 1e-6f) CHECK(std::abs(scale * bytes[i] - values[i]) <= scale * 0.5001f);
    }
    CHECK(largest == (size >= 1e-6f ? 127 : 0));
    CHECK((scale > 0) == (size >= 1e-6f));
  }
}

}  // namespace
}  // namespace baton::engine::cpu
