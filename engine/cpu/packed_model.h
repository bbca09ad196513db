// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A model's weights as the kernels want them, in one allocation.
//
// Ownership: copies everything; the file may be unmapped afterwards.
// Fails:     InvalidArgument for shapes, sizes or types that the kernels cannot run.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cpu/buffer.h"
#include "engine/cpu/packed.h"
#include "engine/cpu/thread_pool.h"
#include "engine/model_spec.h"

namespace baton::engine::cpu {

struct PackedLayer {
  std::vector<float> attention_norm, ffn_norm;
  std::vector<float> q_bias, k_bias, v_bias, q_norm, k_norm;  // empty if the model has none
  MatrixView q, k, v, attention_output, gate, up, down;
};

struct PackedModel {
  ModelSpec spec;
  std::vector<PackedLayer> layers;
  std::vector<float> output_norm;
  MatrixView embedding;
  MatrixView output;  // the same memory if tied
  Buffer memory;
  uint64_t step_bytes = 0;  // read by every step: all but an untied embedding

  // (context, rope_dims / 2) each.
  std::vector<float> cosines, sines;
};

absl::StatusOr<PackedModel> PackModel(const ModelWeights& weights, uint32_t lanes, ThreadPool& pool,
                                      const std::function<void(double)>& progress);

}  // namespace baton::engine::cpu
