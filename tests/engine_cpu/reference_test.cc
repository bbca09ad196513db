// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The forward pass against one in doubles that shares nothing with it but the model: every
// switch of a ModelSpec, odd shapes, every KV type, more keys than a tile has.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <vector>

#include "engine/forward.h"
#include "tests/engine_cpu/gguf_reference.h"
#include "tests/engine_cpu/random_model.h"

namespace baton::engine::cpu {
namespace {

using Vector = std::vector<double>;

struct Matrix {
  explicit Matrix(const TensorView& tensor) : rows(tensor.rows), columns(tensor.columns) {
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t column = 0; column < columns; ++column) {
        values.push_back(Weight(tensor, row, column));
      }
    }
  }
  Vector Times(const Vector& x) const {
    Vector y(rows);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t column = 0; column < columns; ++column) {
        y[row] += values[row * columns + column] * x[column];
      }
    }
    return y;
  }
  Vector Row(size_t row) const {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(row * columns);
    return {begin, begin + static_cast<ptrdiff_t>(columns)};
  }
  size_t rows, columns;
  Vector values;
};

// An F32 vector as it is, or nothing.
Vector Floats(const TensorView& tensor) {
  Vector values;
  for (uint64_t i = 0; tensor.present() && i < tensor.columns; ++i) {
    float value;
    std::memcpy(&value, tensor.data + 4 * i, 4);
    values.push_back(double{value});
  }
  return values;
}

void Add(Vector& to, const Vector& x) {
  for (size_t i = 0; i < x.size(); ++i) to[i] += x[i];
}

// Of `count` elements from `at` on.
void Norm(Vector& x, size_t at, size_t count, const Vector& weight, double epsilon) {
  double squares = 0;
  for (size_t i = 0; i < count; ++i) squares += x[at + i] * x[at + i];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(count) + epsilon);
  for (size_t i = 0; i < count; ++i) x[at + i] *= scale * weight[i];
}

class Reference {
 public:
  explicit Reference(const ModelWeights& weights)
      : weights_(weights), spec_(weights.spec), embedding_(weights.embedding) {}

  // (tokens, vocab).
  Vector Logits(const std::vector<TokenId>& tokens) {
    std::vector<Vector> rows;
    for (const TokenId token : tokens) rows.push_back(embedding_.Row(static_cast<size_t>(token)));
    for (const LayerWeights& layer : weights_.layers) RunLayer(layer, rows);
    const Matrix output(weights_.output);
    const Vector norm = Floats(weights_.output_norm);
    Vector logits;
    for (Vector& row : rows) {
      Norm(row, 0, spec_.hidden, norm, double{spec_.rms_epsilon});
      const Vector y = output.Times(row);
      logits.insert(logits.end(), y.begin(), y.end());
    }
    return logits;
  }

 private:
  // One head's pairs, as the spec pairs them.
  void Rotate(Vector& x, size_t at, size_t position) const {
    const size_t half = spec_.rope_dims / 2;
    for (size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(double{spec_.rope_theta}, -2.0 * static_cast<double>(i) / spec_.rope_dims);
      double& a = x[at + (spec_.rope_interleaved ? 2 * i : i)];
      double& b = x[at + (spec_.rope_interleaved ? 2 * i + 1 : i + half)];
      const double first = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = first;
    }
  }

  void Prepare(Vector& x, uint32_t heads, const Vector& bias, const Vector& norm,
               size_t position) const {
    Add(x, bias);
    for (uint32_t head = 0; head < heads; ++head) {
      const size_t at = size_t{head} * spec_.head_dim;
      if (!norm.empty()) Norm(x, at, spec_.head_dim, norm, double{spec_.rms_epsilon});
      Rotate(x, at, position);
    }
  }

  Vector Attend(const Vector& q, const std::vector<Vector>& k, const std::vector<Vector>& v) const {
    Vector result(q.size());
    for (uint32_t head = 0; head < spec_.heads; ++head) {
      const size_t q_at = size_t{head} * spec_.head_dim;
      const size_t kv_at = size_t{head / (spec_.heads / spec_.kv_heads)} * spec_.head_dim;
      Vector weights;
      double sum = 0;
      for (const Vector& key : k) {
        double score = 0;
        for (size_t d = 0; d < spec_.head_dim; ++d) score += q[q_at + d] * key[kv_at + d];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(spec_.head_dim))));
        sum += weights.back();
      }
      for (size_t i = 0; i < v.size(); ++i) {
        for (size_t d = 0; d < spec_.head_dim; ++d) {
          result[q_at + d] += weights[i] / sum * v[i][kv_at + d];
        }
      }
    }
    return result;
  }

  void RunLayer(const LayerWeights& layer, std::vector<Vector>& rows) const {
    const Matrix q(layer.q), k(layer.k), v(layer.v), out(layer.attention_output);
    const Matrix gate(layer.gate), up(layer.up), down(layer.down);
    const Vector attention_norm = Floats(layer.attention_norm), ffn_norm = Floats(layer.ffn_norm);
    const Vector q_bias = Floats(layer.q_bias), k_bias = Floats(layer.k_bias);
    const Vector v_bias = Floats(layer.v_bias);
    const Vector q_norm = Floats(layer.q_norm), k_norm = Floats(layer.k_norm);
    std::vector<Vector> keys, values;
    for (size_t position = 0; position < rows.size(); ++position) {
      Vector x = rows[position];
      Norm(x, 0, spec_.hidden, attention_norm, double{spec_.rms_epsilon});
      Vector query = q.Times(x);
      keys.push_back(k.Times(x));
      values.push_back(v.Times(x));
      Add(values.back(), v_bias);
      Prepare(query, spec_.heads, q_bias, q_norm, position);
      Prepare(keys.back(), spec_.kv_heads, k_bias, k_norm, position);
      Add(rows[position], out.Times(Attend(query, keys, values)));
      x = rows[position];
      Norm(x, 0, spec_.hidden, ffn_norm, double{spec_.rms_epsilon});
      Vector inner = gate.Times(x);
      const Vector other = up.Times(x);
      for (size_t i = 0; i < inner.size(); ++i) {
        inner[i] *= other[i] / (1 + std::exp(-inner[i]));
      }
      Add(rows[position], down.Times(inner));
    }
  }

  const ModelWeights& weights_;
  const ModelSpec& spec_;
  const Matrix embedding_;
};

struct Shape {
  uint32_t hidden, heads, kv_heads, head_dim, ffn, rope_dims;
  bool interleaved, biases, head_norms;
  TensorType type;
};

RandomModel Make(const Shape& shape) {
  return MakeRandomModel({.architecture = "test",
                          .layers = 2,
                          .hidden = shape.hidden,
                          .heads = shape.heads,
                          .kv_heads = shape.kv_heads,
                          .head_dim = shape.head_dim,
                          .ffn = shape.ffn,
                          .vocab = 61,
                          .context = 256,
                          .rms_epsilon = 1e-5f,
                          .rope_theta = 1000.0f,
                          .rope_dims = shape.rope_dims,
                          .rope_interleaved = shape.interleaved},
                         {.type = shape.type,
                          .mixed = shape.type == TensorType::kF16,
                          .biases = shape.biases,
                          .head_norms = shape.head_norms},
                         shape.hidden);
}

std::vector<float> Run(const ModelWeights& weights, Activations activations, KvType type,
                       const std::vector<TokenId>& tokens) {
  const auto forward = Forward::Create(weights, {.threads = 2, .activations = activations});
  REQUIRE(forward.status().ToString() == "OK");
  const auto blocks = BlocksFor(tokens.size());
  NanPool pool(weights.spec, type, blocks);
  std::vector<BlockIndex> table;
  for (uint32_t i = blocks; i > 0; --i) table.push_back(i - 1);
  const ForwardSlice slice{tokens, 0, table, ForwardSlice::Logits::kAll};
  std::vector<float> logits;
  (*forward)->Run({&slice, 1}, pool.pool, {}, logits);
  return logits;
}

// Of a row of logits: the root mean square of the difference, over that of the reference.
struct Distance {
  double median = 0;  // of all rows
  double worst = 0;
};
Distance Compare(const std::vector<float>& logits, const Vector& exact, size_t rows) {
  REQUIRE(logits.size() == exact.size());
  const size_t columns = exact.size() / rows;
  Vector distances;
  for (size_t row = 0; row < rows; ++row) {
    double difference = 0, size = 0;
    for (size_t i = row * columns; i < (row + 1) * columns; ++i) {
      difference += (logits[i] - exact[i]) * (logits[i] - exact[i]);
      size += exact[i] * exact[i];
    }
    distances.push_back(std::sqrt(difference / size));
  }
  std::sort(distances.begin(), distances.end());
  return {distances[rows / 2], distances.back()};
}

TEST_CASE("the forward pass is that of the formulas, for every switch and KV type") {
  const auto shape = GENERATE(
      Shape{64, 4, 2, 32, 96, 32, true, false, false, TensorType::kQ8_0},     // Llama
      Shape{96, 6, 1, 64, 160, 64, false, true, false, TensorType::kQ4_1},    // Qwen2
      Shape{160, 4, 2, 80, 96, 80, false, false, true, TensorType::kQ5_1},    // Qwen3
      Shape{64, 16, 1, 32, 64, 16, true, true, true, TensorType::kBf16},      // all, half rotated
      Shape{256, 3, 3, 96, 256, 96, false, true, false, TensorType::kQ6_K},   // no groups
      Shape{256, 5, 1, 128, 512, 128, true, false, true, TensorType::kQ4_K},  // five
      Shape{32, 2, 2, 32, 32, 32, false, true, true, TensorType::kF16},       // and mixed
      Shape{64, 4, 4, 32, 96, 32, true, true, false, TensorType::kF32});
  INFO("hidden " << shape.hidden << " heads " << shape.heads << " of " << shape.head_dim);
  const RandomModel model = Make(shape);
  Random random(8);
  std::vector<TokenId> tokens(171);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.Below(61));
  const Vector exact = Reference(model.weights).Logits(tokens);
  const auto compare = [&](Activations activations, KvType type) {
    return Compare(Run(model.weights, activations, type, tokens), exact, tokens.size());
  };
  CHECK(compare(Activations::kF32, KvType::kF32).worst < 5e-5);
  // Rounding decides near-ties of attention in single rows of a random model: the median.
  CHECK(compare(Activations::kF32, KvType::kF16).median < 1e-3);
  CHECK(compare(Activations::kF32, KvType::kBf16).median < 8e-3);
  CHECK(compare(Activations::kF32, KvType::kInt8).median < 2e-2);
  CHECK(compare(Activations::kInt8, KvType::kBf16).median < 5e-2);
}

}  // namespace
}  // namespace baton::engine::cpu
