// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Random tensors of every GGUF type, and a small model made of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "base/random.h"
#include "engine/cpu/float16.h"
#include "engine/cpu/gguf_blocks.h"
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

// 3 query heads per KV head; every matrix of one type except where `mixed`.
inline RandomModel MakeRandomModel(TensorType type, bool mixed = false) {
  RandomModel model;
  ModelSpec& spec = model.weights.spec;
  spec = {.architecture = "llama",
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
          .rope_interleaved = true};
  // attention_output has heads * head_dim = 384 columns, no multiple of 256.
  const TensorType narrow = SourceBlockColumns(type) == 256 ? TensorType::kQ5_0 : type;
  const uint32_t q_rows = spec.heads * spec.head_dim;
  const uint32_t kv_rows = spec.kv_heads * spec.head_dim;
  RandomTensors& make = model.tensors;
  for (uint32_t l = 0; l < spec.layers; ++l) {
    LayerWeights& layer = model.weights.layers.emplace_back();
    layer.attention_norm = make.MakeNorm(spec.hidden);
    layer.q = make.Make(type, q_rows, spec.hidden);
    layer.k = make.Make(type, kv_rows, spec.hidden);
    layer.v = make.Make(mixed ? TensorType::kF16 : type, kv_rows, spec.hidden);
    layer.attention_output = make.Make(narrow, spec.hidden, q_rows);
    layer.ffn_norm = make.MakeNorm(spec.hidden);
    layer.gate = make.Make(type, spec.ffn, spec.hidden);
    layer.up = make.Make(mixed ? TensorType::kBf16 : type, spec.ffn, spec.hidden);
    layer.down = make.Make(mixed ? TensorType::kF32 : type, spec.hidden, spec.ffn);
  }
  model.weights.output_norm = make.MakeNorm(spec.hidden);
  model.weights.output = make.Make(TensorType::kQ8_0, spec.vocab, spec.hidden);
  model.weights.embedding =
      mixed ? make.Make(TensorType::kF16, spec.vocab, spec.hidden, 1.0f) : model.weights.output;
  return model;
}

}  // namespace baton::engine::cpu
