// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/cpu_forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/ensure.h"
#include "base/status_macros.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/packed_matrix.h"

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kFfnStep = 32;    // columns of gate and up that become one block
constexpr uint32_t kInlineRows = 4;  // up to this many are not worth a region
constexpr uint32_t kRowsPerChunk = 4;
constexpr uint32_t kChunksPerThread = 4;
constexpr uint32_t kManyRows = 16;   // from here on a chunk needs only few groups
constexpr uint32_t kRowBlock = 120;  // so many rows stay in cache for all groups
constexpr uint32_t kThreadsMax = 256;

// Whole tiles of rows.
uint32_t RowBlock(uint32_t token_tile) { return kRowBlock / token_tile * token_tile; }

// Groups per chunk, so that each thread has several chunks and many rows stay in cache.
uint32_t GroupsPerChunk(uint32_t groups, uint32_t rows, uint32_t row_blocks, uint32_t threads) {
  if (threads == 1 && rows < kManyRows) return groups;
  const uint32_t wanted = std::max(1u, groups * row_blocks / (threads * kChunksPerThread));
  return rows < kManyRows ? wanted : std::min(wanted, 8u);
}

}  // namespace

CpuForward::CpuForward(const Kernels& kernels, PackedModel model,
                       std::unique_ptr<ThreadPool> threads, Activations activations)
    : kernels_(kernels),
      model_(std::move(model)),
      spec_(model_.spec),
      activations_(activations),
      threads_(std::move(threads)),
      q_columns_(spec_.heads * spec_.head_dim),
      kv_columns_(spec_.kv_heads * spec_.head_dim) {
  const auto padded = [](uint64_t floats) { return (floats + 31) & ~uint64_t{31}; };
  const uint64_t sizes[] = {padded(MatMulScratchFloats()),
                            padded(spec_.hidden),
                            padded(RowBlock(kernels_.token_tile) * kFfnStep),
                            padded(RowBlock(kernels_.token_tile) * kFfnStep),
                            padded(AttentionScratchFloats(spec_.head_dim)),
                            kAttentionRowsMax,
                            kAttentionRowsMax,
                            padded(kAttentionRowsMax * spec_.head_dim)};
  uint64_t floats = 0;
  for (const uint64_t size : sizes) floats += size;
  scratch_memory_.Reserve(threads_->threads() * floats * sizeof(float));
  auto* next = scratch_memory_.as<float>();
  scratch_.resize(threads_->threads());
  for (Scratch& scratch : scratch_) {
    float** const parts[] = {&scratch.weights,   &scratch.row,         &scratch.gate,
                             &scratch.up,        &scratch.attention,   &scratch.state.maximum,
                             &scratch.state.sum, &scratch.state.values};
    for (uint32_t i = 0; i < std::size(parts); ++i) {
      *parts[i] = next;
      next += sizes[i];
    }
  }
}

void CpuForward::Run(absl::Span<const ForwardSlice> slices, const KvPool& pool,
                     const std::function<void(uint32_t)>& layer_done, std::vector<float>& logits) {
  ENSURE(pool.layout.layers == spec_.layers && pool.layout.kv_heads == spec_.kv_heads &&
         pool.layout.head_dim == spec_.head_dim);
  rows_.Assign(slices);
  if (rows_.count() == 0) return logits.clear();
  Resize(rows_.count());
  Embed(slices);
  for (uint32_t layer = 0; layer < spec_.layers; ++layer) {
    RunLayer(layer, slices, pool, layer_done);
  }
  FinishLogits(logits);
}

void CpuForward::Resize(uint32_t rows) {
  residual_.Reserve(uint64_t{rows} * spec_.hidden * sizeof(float));
  q_.Reserve(uint64_t{rows} * q_columns_ * sizeof(float));
  k_.Reserve(uint64_t{rows} * kv_columns_ * sizeof(float));
  v_.Reserve(uint64_t{rows} * kv_columns_ * sizeof(float));
  context_.Reserve(uint64_t{rows} * q_columns_ * sizeof(float));
}

void CpuForward::Embed(absl::Span<const ForwardSlice> slices) {
  uint32_t row = 0;
  for (const ForwardSlice& slice : slices) {
    const uint64_t end = uint64_t{slice.position} + slice.tokens.size();
    ENSURE(end <= spec_.context && slice.block_table.size() >= BlocksFor(end));
    for (const TokenId token : slice.tokens) {
      ENSURE(token >= 0 && static_cast<uint32_t>(token) < spec_.vocab);
      DequantizeRow(model_.embedding, static_cast<uint32_t>(token),
                    residual_.as<float>() + uint64_t{row++} * spec_.hidden);
    }
  }
}

void CpuForward::RunLayer(uint32_t index, absl::Span<const ForwardSlice> slices, const KvPool& pool,
                          const std::function<void(uint32_t)>& layer_done) {
  const PackedLayer& layer = model_.layers[index];
  const bool quants = Quantised(layer.q) || Quantised(layer.k) || Quantised(layer.v);
  const bool values = !(Quantised(layer.q) && Quantised(layer.k) && Quantised(layer.v));
  NormRows(layer.attention_norm, quants, values);
  const Product products[] = {{&layer.q, q_.as<float>(), q_columns_, false},
                              {&layer.k, k_.as<float>(), kv_columns_, false},
                              {&layer.v, v_.as<float>(), kv_columns_, false}};
  Multiply(input_.get(), products);
  RotateAndStore(layer, index, pool);
  if (layer_done) layer_done(index);
  if (index + 1 == spec_.layers) KeepWanted(slices);
  if (rows_.count() == 0) return;
  if (index == 0 || index + 1 == spec_.layers) {
    plan_.Assign(rows_.runs(), spec_, threads_->threads());
  }
  RunAttention(index, pool);
  const Product projection{&layer.attention_output, residual_.as<float>(), spec_.hidden, true};
  Multiply(attended_.get(), {&projection, 1});
  NormRows(layer.ffn_norm, Quantised(layer.gate) || Quantised(layer.up),
           !Quantised(layer.gate) || !Quantised(layer.up));
  GateAndUp(layer);
  const Product down{&layer.down, residual_.as<float>(), spec_.hidden, true};
  Multiply(ffn_.get(), {&down, 1});
}

void CpuForward::FinishLogits(std::vector<float>& logits) {
  logits.resize(uint64_t{rows_.count()} * spec_.vocab);
  if (rows_.count() == 0) return;
  NormRows(model_.output_norm, Quantised(model_.output), !Quantised(model_.output));
  const Product head{&model_.output, logits.data(), spec_.vocab, false};
  Multiply(input_.get(), {&head, 1});
}

void CpuForward::ForRows(absl::FunctionRef<void(uint32_t row, Scratch& scratch)> work) {
  const uint32_t rows = rows_.count();
  if (rows <= kInlineRows) {
    for (uint32_t row = 0; row < rows; ++row) work(row, scratch_[0]);
    return;
  }
  threads_->Run((rows + kRowsPerChunk - 1) / kRowsPerChunk, [&](uint32_t chunk, uint32_t t) {
    const uint32_t end = std::min(rows, (chunk + 1) * kRowsPerChunk);
    for (uint32_t row = chunk * kRowsPerChunk; row < end; ++row) work(row, scratch_[t]);
  });
}

void CpuForward::NormRows(const std::vector<float>& weight, bool quants, bool values) {
  const Inputs& inputs =
      input_.Resize(rows_.count(), spec_.hidden, kernels_.token_tile, quants, values);
  ForRows([&](uint32_t row, Scratch& scratch) {
    kernels_.rms_norm(residual_.as<float>() + uint64_t{row} * spec_.hidden, weight.data(),
                      spec_.hidden, spec_.rms_epsilon, scratch.row);
    kernels_.store_inputs(scratch.row, row, 0, spec_.hidden, inputs);
  });
}

void CpuForward::Multiply(const Inputs& inputs, absl::Span<const Product> products) {
  uint32_t groups = 0;
  for (const Product& product : products) groups += product.matrix->groups();
  const uint32_t row_block = RowBlock(inputs.token_tile);
  const uint32_t row_blocks = (inputs.rows + row_block - 1) / row_block;
  const uint32_t step = GroupsPerChunk(groups, inputs.rows, row_blocks, threads_->threads());
  const uint32_t group_chunks = (groups + step - 1) / step;
  threads_->Run(row_blocks * group_chunks, [&](uint32_t chunk, uint32_t thread) {
    const uint32_t row_begin = chunk / group_chunks * row_block;
    const uint32_t row_end = std::min(inputs.rows, row_begin + row_block);
    uint32_t begin = chunk % group_chunks * step;
    uint32_t end = std::min(groups, begin + step);
    // The chunk's groups, counted through all products.
    for (const Product& product : products) {
      const uint32_t own = product.matrix->groups();
      if (begin < own && begin < end) {
        MultiplyRange(inputs, product, row_begin, row_end, begin, std::min(end, own),
                      scratch_[thread].weights);
        begin = std::min(end, own);
      }
      begin -= std::min(begin, own);
      end -= std::min(end, own);
    }
  });
}

void CpuForward::MultiplyRange(const Inputs& inputs, const Product& product, uint32_t row_begin,
                               uint32_t row_end, uint32_t group_begin, uint32_t group_end,
                               float* scratch) {
  const MatMul task{.matrix = *product.matrix,
                    .inputs = inputs,
                    .row_begin = row_begin,
                    .row_end = row_end,
                    .group_begin = group_begin,
                    .group_end = group_end,
                    .output = product.output + row_begin * product.output_stride +
                              uint64_t{group_begin} * product.matrix->lanes,
                    .output_stride = product.output_stride,
                    .add = product.add};
  if (Quantised(*product.matrix)) {
    kernels_.matmul_int8(task);
  } else {
    kernels_.matmul_f32(task, scratch);
  }
}

void CpuForward::RotateAndStore(const PackedLayer& layer, uint32_t index, const KvPool& pool) {
  const uint32_t half = spec_.rope_dims / 2;
  const uint32_t head_dim = spec_.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  const auto add = [](const std::vector<float>& bias, float* values) {
    for (size_t i = 0; i < bias.size(); ++i) values[i] += bias[i];
  };
  const auto norm = [&](const std::vector<float>& weight, float* head) {
    if (weight.empty()) return;
    kernels_.rms_norm(head, weight.data(), head_dim, spec_.rms_epsilon, head);
  };
  const KvLayout& layout = pool.layout;
  const auto store = [&](const float* values, uint32_t which, uint32_t head, uint32_t token,
                         uint8_t* block) {
    uint8_t* row = block + layout.rows_offset(which, head) + token * layout.row_bytes();
    auto* scales = reinterpret_cast<float*>(block + layout.scales_offset(which, head));
    kernels_.store_kv(values, head_dim, layout.type, row, scales + token);
  };
  ForRows([&](uint32_t row, Scratch&) {
    const Row& at = rows_.at(row);
    const float* cosine = model_.cosines.data() + uint64_t{at.position} * half;
    const float* sine = model_.sines.data() + uint64_t{at.position} * half;
    float* q = q_.as<float>() + uint64_t{row} * q_columns_;
    float* k = k_.as<float>() + uint64_t{row} * kv_columns_;
    float* v = v_.as<float>() + uint64_t{row} * kv_columns_;
    add(layer.q_bias, q);
    add(layer.k_bias, k);
    add(layer.v_bias, v);
    for (uint32_t head = 0; head < spec_.heads; ++head) {
      norm(layer.q_norm, q + head * head_dim);
      kernels_.rope(q + head * head_dim, cosine, sine, half, head_dim, scale);
    }
    uint8_t* block = pool.at(index, at.block_table[at.position / kBlockTokens]);
    const uint32_t token = at.position % kBlockTokens;
    for (uint32_t head = 0; head < spec_.kv_heads; ++head) {
      norm(layer.k_norm, k + head * head_dim);
      kernels_.rope(k + head * head_dim, cosine, sine, half, head_dim, 1.0f);
      store(k + head * head_dim, 0, head, token, block);
      store(v + head * head_dim, 1, head, token, block);
    }
  });
}

void CpuForward::KeepWanted(absl::Span<const ForwardSlice> slices) {
  rows_.KeepWanted(slices);
  auto* residual = residual_.as<float>();
  auto* q = q_.as<float>();
  for (uint32_t row = 0; row < rows_.count(); ++row) {
    const uint32_t old = rows_.kept()[row];  // old >= row
    if (old == row) continue;
    std::memcpy(residual + uint64_t{row} * spec_.hidden, residual + uint64_t{old} * spec_.hidden,
                spec_.hidden * sizeof(float));
    std::memcpy(q + uint64_t{row} * q_columns_, q + uint64_t{old} * q_columns_,
                q_columns_ * sizeof(float));
  }
}

void CpuForward::GateAndUp(const PackedLayer& layer) {
  const bool quantised = Quantised(layer.down);
  const uint32_t rows = rows_.count();
  ffn_.Resize(rows, spec_.ffn, kernels_.token_tile, quantised, !quantised);
  const uint32_t row_block = RowBlock(input_.get().token_tile);
  const uint32_t row_blocks = (rows + row_block - 1) / row_block;
  const uint32_t units = spec_.ffn / kFfnStep;
  const uint32_t step = GroupsPerChunk(units, rows, row_blocks, threads_->threads());
  const uint32_t chunks = (units + step - 1) / step;
  threads_->Run(row_blocks * chunks, [&](uint32_t chunk, uint32_t thread) {
    const uint32_t row_begin = chunk / chunks * row_block;
    const uint32_t row_end = std::min(rows, row_begin + row_block);
    const uint32_t end = std::min(units, (chunk % chunks + 1) * step);
    for (uint32_t unit = chunk % chunks * step; unit < end; ++unit) {
      GateAndUpRange(layer, row_begin, row_end, unit * kFfnStep, scratch_[thread]);
    }
  });
}

void CpuForward::GateAndUpRange(const PackedLayer& layer, uint32_t row_begin, uint32_t row_end,
                                uint32_t column, Scratch& scratch) {
  const auto multiply = [&](const MatrixView& matrix, float* output) {
    const uint32_t group = column / matrix.lanes;
    const MatMul task{.matrix = matrix,
                      .inputs = input_.get(),
                      .row_begin = row_begin,
                      .row_end = row_end,
                      .group_begin = group,
                      .group_end = group + kFfnStep / matrix.lanes,
                      .output = output,
                      .output_stride = kFfnStep};
    if (Quantised(matrix)) {
      kernels_.matmul_int8(task);
    } else {
      kernels_.matmul_f32(task, scratch.weights);
    }
  };
  multiply(layer.gate, scratch.gate);
  multiply(layer.up, scratch.up);
  kernels_.swiglu(scratch.gate, scratch.up, (row_end - row_begin) * kFfnStep);
  for (uint32_t row = row_begin; row < row_end; ++row) {
    kernels_.store_inputs(scratch.gate + uint64_t{row - row_begin} * kFfnStep, row, column,
                          kFfnStep, ffn_.get());
  }
}

}  // namespace baton::engine::cpu

namespace baton::engine {

absl::StatusOr<std::unique_ptr<Forward>> Forward::Create(const ModelWeights& weights,
                                                         const ForwardOptions& options) {
  if (options.threads == 0 || options.threads > cpu::kThreadsMax) {
    return absl::InvalidArgumentError("threads must be between 1 and 256");
  }
  ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::ChooseKernels(options.isa));
  auto threads = std::make_unique<cpu::ThreadPool>(options.threads);
  ASSIGN_OR_RETURN(cpu::PackedModel model,
                   cpu::PackModel(weights, kernels->lanes, *threads, options.progress));
  return std::make_unique<cpu::CpuForward>(*kernels, std::move(model), std::move(threads),
                                           options.activations);
}

}  // namespace baton::engine
