// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/packed_model.h"

#include <cmath>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/cpu/gguf_blocks.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/packed_matrix.h"
#include "engine/forward.h"
#include "engine/gguf.h"

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kDimensionMax = 1u << 20;
constexpr uint32_t kGroupsPerChunk = 8;

absl::Status CheckTensor(const std::string& name, const TensorView& tensor, uint64_t rows,
                         uint64_t columns) {
  if (!tensor.present()) return absl::InvalidArgumentError(absl::StrCat(name, " is missing"));
  if (tensor.rows != rows || tensor.columns != columns) {
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", tensor.rows, " x ", tensor.columns,
                                                   ", not ", rows, " x ", columns));
  }
  const uint32_t block_columns = SourceBlockColumns(tensor.type);
  const uint32_t block_bytes = SourceBlockBytes(tensor.type);
  if (block_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has type ", static_cast<uint32_t>(tensor.type)));
  }
  if (columns % block_columns != 0 ||
      tensor.size_bytes < rows * (columns / block_columns) * block_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has the wrong size"));
  }
  return absl::OkStatus();
}

absl::Status CheckSpec(const ModelSpec& spec) {
  const auto bad = [](absl::string_view what, uint64_t value) {
    return absl::InvalidArgumentError(
        absl::StrCat("the CPU kernels cannot run ", what, " = ", value));
  };
  const auto in_range = [](uint32_t value) { return value > 0 && value <= kDimensionMax; };
  if (!in_range(spec.layers)) return bad("layers", spec.layers);
  if (!in_range(spec.vocab)) return bad("vocab", spec.vocab);
  if (!in_range(spec.context)) return bad("context", spec.context);
  if (!in_range(spec.hidden) || spec.hidden % 32 != 0) return bad("hidden", spec.hidden);
  if (!in_range(spec.ffn) || spec.ffn % 32 != 0) return bad("ffn", spec.ffn);
  if (spec.head_dim == 0 || spec.head_dim % 8 != 0 || spec.head_dim > kHeadDimMax) {
    return bad("head_dim", spec.head_dim);
  }
  if (!in_range(spec.heads) || uint64_t{spec.heads} * spec.head_dim % 32 != 0 ||
      uint64_t{spec.heads} * spec.head_dim > kDimensionMax) {
    return bad("heads", spec.heads);
  }
  if (spec.kv_heads == 0 || spec.heads % spec.kv_heads != 0 ||
      spec.heads / spec.kv_heads > kAttentionRowsMax) {
    return bad("kv_heads", spec.kv_heads);
  }
  if (spec.rope_dims % 2 != 0 || spec.rope_dims > spec.head_dim) {
    return bad("rope_dims", spec.rope_dims);
  }
  return absl::OkStatus();
}

class Packer {
 public:
  Packer(const ModelWeights& weights, uint32_t lanes, PackedModel& model)
      : weights_(weights), spec_(weights.spec), lanes_(lanes), model_(model) {}

  // Checks all tensors and decides on the place of each.
  absl::Status Plan() {
    model_.spec = spec_;
    RETURN_IF_ERROR(CheckSpec(spec_));
    if (weights_.layers.size() != spec_.layers) {
      return absl::InvalidArgumentError("the number of layers differs from the header's");
    }
    model_.layers.resize(spec_.layers);
    for (uint32_t l = 0; l < spec_.layers; ++l) {
      RETURN_IF_ERROR(
          Annotate(PlanLayer(weights_.layers[l], model_.layers[l]), absl::StrCat("layer ", l)));
    }
    RETURN_IF_ERROR(
        Vector("output_norm", weights_.output_norm, spec_.hidden, {}, model_.output_norm));
    RETURN_IF_ERROR(
        Matrix("output", weights_.output, spec_.vocab, spec_.hidden, {}, model_.output));
    model_.step_bytes = size_bytes_;
    tied_ = weights_.embedding.data == weights_.output.data;
    if (tied_) {
      RETURN_IF_ERROR(CheckTensor("embedding", weights_.embedding, spec_.vocab, spec_.hidden));
    } else {
      RETURN_IF_ERROR(
          Matrix("embedding", weights_.embedding, spec_.vocab, spec_.hidden, {}, model_.embedding));
    }
    return PlanRope();
  }

  void Pack(ThreadPool& pool, const std::function<void(double)>& progress) {
    model_.memory.Reserve(size_bytes_);
    uint64_t done_bytes = 0;
    for (Job& job : jobs_) {
      uint8_t* target = model_.memory.data() + job.offset;
      const uint32_t groups = job.matrix->groups();
      pool.Run((groups + kGroupsPerChunk - 1) / kGroupsPerChunk, [&](uint32_t chunk, uint32_t) {
        const uint32_t begin = chunk * kGroupsPerChunk;
        for (uint32_t g = begin; g < groups && g < begin + kGroupsPerChunk; ++g) {
          PackGroup(*job.tensor, *job.matrix, job.order, g, target);
        }
      });
      job.matrix->data = target;
      done_bytes += job.matrix->size_bytes();
      if (progress) {
        progress(static_cast<double>(done_bytes) / static_cast<double>(size_bytes_));
      }
    }
    if (tied_) model_.embedding = model_.output;
  }

 private:
  struct Job {
    const TensorView* tensor;
    MatrixView* matrix;
    RowOrder order;
    uint64_t offset;
  };

  absl::Status PlanLayer(const LayerWeights& from, PackedLayer& to) {
    const uint32_t q_rows = spec_.heads * spec_.head_dim;
    const uint32_t kv_rows = spec_.kv_heads * spec_.head_dim;
    const RowOrder rotated =
        spec_.rope_interleaved ? RowOrder{spec_.head_dim, spec_.rope_dims} : RowOrder{};
    RETURN_IF_ERROR(
        Vector("attention_norm", from.attention_norm, spec_.hidden, {}, to.attention_norm));
    RETURN_IF_ERROR(Matrix("q", from.q, q_rows, spec_.hidden, rotated, to.q));
    RETURN_IF_ERROR(Matrix("k", from.k, kv_rows, spec_.hidden, rotated, to.k));
    RETURN_IF_ERROR(Matrix("v", from.v, kv_rows, spec_.hidden, {}, to.v));
    RETURN_IF_ERROR(OptionalVector("q_bias", from.q_bias, q_rows, rotated, to.q_bias));
    RETURN_IF_ERROR(OptionalVector("k_bias", from.k_bias, kv_rows, rotated, to.k_bias));
    RETURN_IF_ERROR(OptionalVector("v_bias", from.v_bias, kv_rows, {}, to.v_bias));
    RETURN_IF_ERROR(OptionalVector("q_norm", from.q_norm, spec_.head_dim, rotated, to.q_norm));
    RETURN_IF_ERROR(OptionalVector("k_norm", from.k_norm, spec_.head_dim, rotated, to.k_norm));
    RETURN_IF_ERROR(Matrix("attention_output", from.attention_output, spec_.hidden, q_rows, {},
                           to.attention_output));
    RETURN_IF_ERROR(Vector("ffn_norm", from.ffn_norm, spec_.hidden, {}, to.ffn_norm));
    RETURN_IF_ERROR(Matrix("gate", from.gate, spec_.ffn, spec_.hidden, {}, to.gate));
    RETURN_IF_ERROR(Matrix("up", from.up, spec_.ffn, spec_.hidden, {}, to.up));
    return Matrix("down", from.down, spec_.hidden, spec_.ffn, {}, to.down);
  }

  absl::Status Matrix(const char* name, const TensorView& tensor, uint64_t rows, uint64_t columns,
                      RowOrder order, MatrixView& matrix) {
    RETURN_IF_ERROR(CheckTensor(name, tensor, rows, columns));
    matrix = PlanMatrix(tensor, lanes_);
    jobs_.push_back({&tensor, &matrix, order, size_bytes_});
    size_bytes_ += (matrix.size_bytes() + 63) & ~uint64_t{63};
    return absl::OkStatus();
  }

  absl::Status Vector(const char* name, const TensorView& tensor, uint64_t count, RowOrder order,
                      std::vector<float>& values) {
    RETURN_IF_ERROR(CheckTensor(name, tensor, 1, count));
    if (IsQuantized(tensor.type)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is quantised"));
    }
    std::vector<float> source(count);
    ReadFloatRow(tensor.type, tensor.data, static_cast<uint32_t>(count), source.data());
    values.resize(count);
    for (uint32_t i = 0; i < count; ++i) values[i] = source[order.Source(i)];
    return absl::OkStatus();
  }

  absl::Status OptionalVector(const char* name, const TensorView& tensor, uint64_t count,
                              RowOrder order, std::vector<float>& values) {
    return tensor.present() ? Vector(name, tensor, count, order, values) : absl::OkStatus();
  }

  // Angles in double from the integer position: floats lose the phase of far positions.
  absl::Status PlanRope() {
    const uint32_t half = spec_.rope_dims / 2;
    std::vector<float> divisors(half, 1.0f);
    if (weights_.rope_factors.present()) {
      RETURN_IF_ERROR(Vector("rope_factors", weights_.rope_factors, half, {}, divisors));
    }
    model_.cosines.resize(uint64_t{spec_.context} * half);
    model_.sines.resize(uint64_t{spec_.context} * half);
    for (uint32_t i = 0; i < half; ++i) {
      const double frequency =
          std::pow(double{spec_.rope_theta}, -2.0 * i / spec_.rope_dims) / double{divisors[i]};
      for (uint64_t position = 0; position < spec_.context; ++position) {
        const double angle = static_cast<double>(position) * frequency;
        model_.cosines[position * half + i] = static_cast<float>(std::cos(angle));
        model_.sines[position * half + i] = static_cast<float>(std::sin(angle));
      }
    }
    return absl::OkStatus();
  }

  const ModelWeights& weights_;
  const ModelSpec& spec_;
  const uint32_t lanes_;
  PackedModel& model_;
  std::vector<Job> jobs_;
  uint64_t size_bytes_ = 0;
  bool tied_ = false;
};

}  // namespace

absl::StatusOr<PackedModel> PackModel(const ModelWeights& weights, uint32_t lanes, ThreadPool& pool,
                                      const std::function<void(double)>& progress) {
  PackedModel model;
  Packer packer(weights, lanes, model);
  RETURN_IF_ERROR(packer.Plan());
  packer.Pack(pool, progress);
  return model;
}

}  // namespace baton::engine::cpu

namespace baton::engine {

std::string DescribeWeights(const ModelWeights& weights) {
  absl::btree_map<TensorType, uint32_t> counts;
  const auto count = [&](const TensorView& tensor) { ++counts[tensor.type]; };
  for (const LayerWeights& layer : weights.layers) {
    for (const TensorView* tensor : {&layer.q, &layer.k, &layer.v, &layer.attention_output,
                                     &layer.gate, &layer.up, &layer.down}) {
      count(*tensor);
    }
  }
  count(weights.embedding);
  if (weights.output.data != weights.embedding.data) count(weights.output);
  std::string text;
  for (const auto& [type, matrices] : counts) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", TensorTypeName(type), " as ",
                    cpu::PackedName(type), " (", matrices, ")");
  }
  return text;
}

}  // namespace baton::engine
