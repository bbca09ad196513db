// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The forward pass: one layer after another, each in five parallel regions.
//
//   q, k, v | attention | output projection | gate, up and their product | down projection
//
// Norms, rotation and the writing of K and V lie between them, on the caller's thread for a
// few rows, in parallel for many.  A layer's KV is reported before its attention runs.  The
// last layer goes on with only the rows whose logits are wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/cpu/buffer.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/packed_model.h"
#include "engine/cpu/step.h"
#include "engine/cpu/thread_pool.h"
#include "engine/forward.h"

namespace baton::engine::cpu {

class CpuForward final : public Forward {
 public:
  CpuForward(const Kernels& kernels, PackedModel model, std::unique_ptr<ThreadPool> threads,
             Activations activations);

  const ModelSpec& spec() const override { return spec_; }
  std::string isa_name() const override { return kernels_.name; }
  uint64_t weight_bytes() const override { return model_.step_bytes; }
  void Run(absl::Span<const ForwardSlice> slices, const KvPool& pool,
           const std::function<void(uint32_t)>& layer_done, std::vector<float>& logits) override;

 private:
  // A matrix and where its product goes.
  struct Product {
    const MatrixView* matrix;
    float* output;
    uint64_t output_stride;
    bool add;
  };
  // Memory of one thread.
  struct Scratch {
    float* weights;  // of matmul_f32
    float* row;      // one row of hidden
    float* gate;     // (row block, kFfnStep)
    float* up;
    float* attention;  // AttentionScratchFloats
    AttentionState state;
  };

  void Resize(uint32_t rows);
  void Embed(absl::Span<const ForwardSlice> slices);
  void RunLayer(uint32_t layer, absl::Span<const ForwardSlice> slices, const KvPool& pool,
                const std::function<void(uint32_t)>& layer_done);
  void FinishLogits(std::vector<float>& logits);

  // Normed residual rows into input_.
  void NormRows(const std::vector<float>& weight, bool quants, bool values);
  void Multiply(const Inputs& inputs, absl::Span<const Product> products);
  void MultiplyRange(const Inputs& inputs, const Product& product, uint32_t row_begin,
                     uint32_t row_end, uint32_t group_begin, uint32_t group_end, float* scratch);
  void RotateAndStore(const PackedLayer& layer, uint32_t index, const KvPool& pool);
  void KeepWanted(absl::Span<const ForwardSlice> slices);
  void RunAttention(uint32_t layer, const KvPool& pool);
  void Attend(const AttentionTask& task, uint32_t layer, const KvPool& pool, Scratch& scratch);
  void AttendRows(const AttentionTask& task, Attention attention, const Scratch& scratch);
  void AttendTiles(const AttentionTask& task, Attention attention, const Scratch& scratch);
  void MergePartials(const MergeTask& task, const Scratch& scratch);
  void GateAndUp(const PackedLayer& layer);
  void GateAndUpRange(const PackedLayer& layer, uint32_t row_begin, uint32_t row_end,
                      uint32_t column, Scratch& scratch);

  // work(row, scratch) for all rows: on this thread if there are few.
  void ForRows(absl::FunctionRef<void(uint32_t row, Scratch& scratch)> work);
  bool Quantised(const MatrixView& matrix) const {
    return activations_ == Activations::kInt8 && IsInteger(matrix.format.kind);
  }
  AttentionState Partial(uint64_t index) const;

  const Kernels& kernels_;
  const PackedModel model_;
  const ModelSpec& spec_;
  const Activations activations_;
  const std::unique_ptr<ThreadPool> threads_;
  const uint32_t q_columns_;
  const uint32_t kv_columns_;

  Rows rows_;
  AttentionPlan plan_;
  InputRows input_;     // of q, k, v, gate, up and the head
  InputRows attended_;  // of the output projection
  InputRows ffn_;       // of the down projection
  Buffer residual_;     // (rows, hidden)
  Buffer q_, k_, v_;    // (rows, columns)
  Buffer context_;      // (rows, q_columns): attention's result
  Buffer partials_;
  Buffer scratch_memory_;
  std::vector<Scratch> scratch_;  // by thread
};

}  // namespace baton::engine::cpu
