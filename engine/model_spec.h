// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a model is: dimensions and switches of one data-driven forward pass, and where its
// tensors lie in the mapped file.  No class per model.
//
// Shapes are (rows, columns), row-major: a matrix maps `columns` inputs to `rows` outputs.
// A TensorView borrows the mapped file's bytes; the file outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton::engine {

// The numbers are GGUF's own type codes.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBf16 = 30,
};

struct TensorView {
  TensorType type = TensorType::kF32;
  uint64_t rows = 0;     // 1 for a vector
  uint64_t columns = 0;  // contiguous
  const uint8_t* data = nullptr;
  uint64_t size_bytes = 0;
  bool present() const { return data != nullptr; }
};

struct LayerWeights {
  TensorView attention_norm;  // (1, hidden)
  TensorView q, k, v;         // (heads * head_dim, hidden), (kv_heads * head_dim, hidden) twice
  TensorView q_bias, k_bias, v_bias;  // absent in Llama
  TensorView q_norm, k_norm;          // (1, head_dim), of each head before RoPE; Qwen3
  TensorView attention_output;        // (hidden, heads * head_dim)
  TensorView ffn_norm;                // (1, hidden)
  TensorView gate, up;                // (ffn, hidden)
  TensorView down;                    // (hidden, ffn)
};

struct ModelSpec {
  std::string architecture;  // GGUF's general.architecture
  uint32_t layers = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;  // not always hidden / heads
  uint32_t ffn = 0;
  uint32_t vocab = 0;
  uint32_t context = 0;  // positions the model was made for
  float rms_epsilon = 1e-5f;
  float rope_theta = 10000.0f;
  uint32_t rope_dims = 0;  // rotated dimensions of a head
  // true: pairs (2i, 2i+1), q and k rows permuted at conversion (GGUF "llama");
  // false: pairs (i, i + rope_dims / 2).
  bool rope_interleaved = true;
};

struct ModelWeights {
  ModelSpec spec;
  TensorView embedding;  // (vocab, hidden)
  std::vector<LayerWeights> layers;
  TensorView output_norm;   // (1, hidden)
  TensorView output;        // (vocab, hidden); the embedding itself when tied
  TensorView rope_factors;  // (1, rope_dims / 2) divisors, absent for most
};

}  // namespace baton::engine
