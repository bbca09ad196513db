// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Random tensors of every GGUF type, small models made of them, and a KV pool for those.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "base/random.h"
#include "engine/cpu/float16.h"
#include "engine/cpu/gguf_blocks.h"
#include "engine/kv_layout.h"
#include "engine/model_spec.h"

namespace baton::engine::cpu {

inline float RandomFloat(Random& random, float size) {
  return static_cast<float>(2.0 * random.Unit() - 1.0) * size;
}

// Owns the bytes of the tensors it makes.
class RandomTensors {
 public:
  explicit RandomTensors(uint64_t seed) : random_(seed) {}

  // Values of about +-`size`.
  TensorView Make(TensorType type, uint32_t rows, uint32_t columns, float size = 0.2f) {
    const uint32_t block_columns = SourceBlockColumns(type);
    const uint32_t block_bytes = SourceBlockBytes(type);
    std::vector<uint8_t>& bytes =
        memory_.emplace_back(uint64_t{rows} * (columns / block_columns) * block_bytes);
    for (uint8_t* at = bytes.data(); at < bytes.data() + bytes.size(); at += block_bytes) {
      Fill(type, at, block_bytes, size);
    }
    return {type, rows, columns, bytes.data(), bytes.size()};
  }

  // Floats around 1, as norms have.
  TensorView MakeNorm(uint32_t columns) {
    TensorView view = Make(TensorType::kF32, 1, columns, 0.2f);
    for (uint32_t i = 0; i < columns; ++i) {
      float value;
      std::memcpy(&value, view.data + 4 * i, 4);
      value += 1.0f;
      std::memcpy(memory_.back().data() + 4 * i, &value, 4);
    }
    return view;
  }
  Random& random() { return random_; }

 private:
  static void PutHalf(uint8_t* at, float value) {
    const uint16_t half = FloatToHalf(value);
    std::memcpy(at, &half, 2);
  }

  void Fill(TensorType type, uint8_t* at, uint32_t bytes, float size) {
    if (type == TensorType::kF32) {
      const float value = RandomFloat(random_, size);
      std::memcpy(at, &value, 4);
      return;
    }
    if (type == TensorType::kF16) return PutHalf(at, RandomFloat(random_, size));
    if (type == TensorType::kBf16) {
      const uint16_t brain = FloatToBrain(RandomFloat(random_, size));
      std::memcpy(at, &brain, 2);
      return;
    }
    for (uint32_t i = 0; i < bytes; ++i) at[i] = static_cast<uint8_t>(random_.Next());
    const float unit = static_cast<float>(0.5 + random_.Unit()) * size;
    switch (type) {
      case TensorType::kQ4_1:
      case TensorType::kQ5_1:
        PutHalf(at, unit / 16);
        return PutHalf(at + 2, -unit / 2);
      case TensorType::kQ4_K:
      case TensorType::kQ5_K:
        PutHalf(at, unit / 500);
        return PutHalf(at + 2, unit / 60);
      case TensorType::kQ6_K:
        return PutHalf(at + 208, unit / 4000);
      case TensorType::kQ8_0:
        return PutHalf(at, unit / 127);
      default:
        return PutHalf(at, unit / 8);
    }
  }

  Random random_;
  std::deque<std::vector<uint8_t>> memory_;
};

struct RandomModel {
  ModelWeights weights;
  RandomTensors tensors{1};
};

// What MakeRandomModel fills a spec with.
struct RandomParts {
  TensorType type = TensorType::kQ8_0;  // of all matrices that `mixed` does not name
  bool mixed = false;                   // some matrices are not quantised, the embedding is untied
  bool biases = false;                  // of q, k and v
  bool head_norms = false;              // of q and k
};

inline RandomModel MakeRandomModel(const ModelSpec& spec, const RandomParts& parts,
                                   uint64_t seed = 1) {
  RandomModel model{.weights = {.spec = spec}, .tensors = RandomTensors(seed)};
  RandomTensors& make = model.tensors;
  // K-quants need columns in multiples of 256.
  const auto matrix = [&](TensorType type, uint32_t rows, uint32_t columns) {
    const bool fits = columns % SourceBlockColumns(type) == 0;
    return make.Make(fits ? type : TensorType::kQ5_0, rows, columns);
  };
  const TensorType type = parts.type;
  const bool mixed = parts.mixed;
  const uint32_t q_rows = spec.heads * spec.head_dim;
  const uint32_t kv_rows = spec.kv_heads * spec.head_dim;
  for (uint32_t l = 0; l < spec.layers; ++l) {
    LayerWeights& layer = model.weights.layers.emplace_back();
    layer.attention_norm = make.MakeNorm(spec.hidden);
    layer.q = matrix(type, q_rows, spec.hidden);
    layer.k = matrix(type, kv_rows, spec.hidden);
    layer.v = matrix(mixed ? TensorType::kF16 : type, kv_rows, spec.hidden);
    if (parts.biases) {
      layer.q_bias = make.Make(TensorType::kF32, 1, q_rows, 1.0f);
      layer.k_bias = make.Make(TensorType::kF32, 1, kv_rows, 1.0f);
      layer.v_bias = make.Make(TensorType::kF32, 1, kv_rows, 1.0f);
    }
    if (parts.head_norms) {
      layer.q_norm = make.MakeNorm(spec.head_dim);
      layer.k_norm = make.MakeNorm(spec.head_dim);
    }
    layer.attention_output = matrix(type, spec.hidden, q_rows);
    layer.ffn_norm = make.MakeNorm(spec.hidden);
    layer.gate = matrix(type, spec.ffn, spec.hidden);
    layer.up = matrix(mixed ? TensorType::kBf16 : type, spec.ffn, spec.hidden);
    layer.down = matrix(mixed ? TensorType::kF32 : type, spec.hidden, spec.ffn);
  }
  model.weights.output_norm = make.MakeNorm(spec.hidden);
  model.weights.output = make.Make(TensorType::kQ8_0, spec.vocab, spec.hidden);
  model.weights.embedding =
      mixed ? make.Make(TensorType::kF16, spec.vocab, spec.hidden, 1.0f) : model.weights.output;
  return model;
}

// 3 query heads per KV head.
inline RandomModel MakeRandomModel(TensorType type, bool mixed = false) {
  return MakeRandomModel({.architecture = "llama",
                          .layers = 2,
                          .hidden = 256,
                          .heads = 6,
                          .kv_heads = 2,
                          .head_dim = 64,
                          .ffn = 512,
                          .vocab = 301,
                          .context = 512,
                          .rms_epsilon = 1e-5f,
                          .rope_theta = 10000.0f,
                          .rope_dims = 64,
                          .rope_interleaved = true},
                         {.type = type, .mixed = mixed});
}

// A KV pool whose unwritten bytes are NaNs.
struct NanPool {
  NanPool(const ModelSpec& spec, KvType type, uint32_t blocks) {
    pool.layout = {spec.layers, spec.kv_heads, spec.head_dim, blocks, type};
    memory.assign(pool.layout.pool_bytes() / sizeof(uint32_t), 0xffffffffu);
    pool.base = reinterpret_cast<uint8_t*>(memory.data());
  }
  void Forget(BlockIndex block) {
    for (uint32_t layer = 0; layer < pool.layout.layers; ++layer) {
      std::memset(pool.at(layer, block), 0xff, pool.layout.block_bytes());
    }
  }
  std::vector<uint32_t> memory;
  KvPool pool;
};

}  // namespace baton::engine::cpu
