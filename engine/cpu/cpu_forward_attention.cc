// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The attention of one layer: runs the plan's tasks, merges what they left in parts, and
// hands the result on as the output projection's input.
#include <algorithm>
#include <cmath>

#include "engine/cpu/cpu_forward.h"

namespace baton::engine::cpu {

AttentionState CpuForward::Partial(uint64_t index) const {
  const uint32_t group = spec_.heads / spec_.kv_heads;
  float* at = partials_.as<float>() + index * group * (2 + uint64_t{spec_.head_dim});
  return {at, at + group, at + 2 * group};
}

void CpuForward::RunAttention(uint32_t layer, const KvPool& pool) {
  const uint32_t group = spec_.heads / spec_.kv_heads;
  partials_.Reserve(plan_.partials() * group * (2 + uint64_t{spec_.head_dim}) * sizeof(float));
  const auto tasks = plan_.tasks();
  const auto count = static_cast<uint32_t>(tasks.size());
  threads_->Run(count, [&](uint32_t chunk, uint32_t thread) {
    Attend(tasks[count - 1 - chunk], layer, pool, scratch_[thread]);  // the longest first
  });
  const auto merges = plan_.merges();
  threads_->Run(static_cast<uint32_t>(merges.size()), [&](uint32_t chunk, uint32_t thread) {
    MergePartials(merges[chunk], scratch_[thread]);
  });
  const bool quantised = Quantised(model_.layers[layer].attention_output);
  const Inputs& inputs =
      attended_.Resize(rows_.count(), q_columns_, kernels_.token_tile, quantised, !quantised);
  ForRows([&](uint32_t row, Scratch&) {
    kernels_.store_inputs(context_.as<float>() + uint64_t{row} * q_columns_, row, 0, q_columns_,
                          inputs);
  });
}

void CpuForward::Attend(const AttentionTask& task, uint32_t layer, const KvPool& pool,
                        Scratch& scratch) {
  const Attention attention{.queries = q_.as<float>() + uint64_t{task.row} * q_columns_,
                            .query_stride = q_columns_,
                            .tokens = task.tokens,
                            .group = spec_.heads / spec_.kv_heads,
                            .head_dim = spec_.head_dim,
                            .position = task.position,
                            .pool = &pool,
                            .block_table = task.block_table,
                            .layer = layer,
                            .scratch = scratch.attention,
                            .state = scratch.state};
  if (task.tiled) {
    AttendTiles(task, attention, scratch);
  } else {
    AttendRows(task, attention, scratch);
  }
}

void CpuForward::AttendRows(const AttentionTask& task, Attention attention,
                            const Scratch& scratch) {
  const uint32_t group = attention.group;
  const uint64_t first_column = uint64_t{task.kv_head} * group * spec_.head_dim;
  attention.queries += first_column;
  attention.kv_head = task.kv_head;
  attention.tile_begin = task.tile_begin;
  attention.tile_end = task.tile_end;
  kernels_.attend(attention);
  for (uint32_t token = 0; token < task.tokens; ++token) {
    const uint32_t row = token * group;
    const AttentionState state{scratch.state.maximum + row, scratch.state.sum + row,
                               scratch.state.values + uint64_t{row} * spec_.head_dim};
    kernels_.finish(state, group, spec_.head_dim,
                    context_.as<float>() + uint64_t{task.row + token} * q_columns_ + first_column);
  }
}

void CpuForward::AttendTiles(const AttentionTask& task, Attention attention,
                             const Scratch& scratch) {
  const uint32_t group = attention.group;
  const uint32_t tiles = task.position / kTileTokens + 1;
  const float* queries = attention.queries;
  attention.heads_follow = true;
  for (uint32_t tile = task.tile_begin; tile < task.tile_end; ++tile) {
    attention.tile_begin = tile;
    attention.tile_end = tile + 1;
    for (uint32_t head = 0; head < spec_.kv_heads; ++head) {
      attention.kv_head = head;
      attention.queries = queries + uint64_t{head} * group * spec_.head_dim;
      attention.state = Partial(task.partial + uint64_t{head} * tiles + tile);
      kernels_.attend(attention);
    }
  }
  if (task.tile_begin > 0 || task.tile_end < tiles) return;  // others have the rest
  for (uint32_t head = 0; head < spec_.kv_heads; ++head) {
    MergePartials({task.row, head, tiles, task.partial + uint64_t{head} * tiles}, scratch);
  }
}

void CpuForward::MergePartials(const MergeTask& task, const Scratch& scratch) {
  const uint32_t group = spec_.heads / spec_.kv_heads;
  const AttentionState& state = scratch.state;
  std::fill_n(state.maximum, group, -INFINITY);
  std::fill_n(state.sum, group, 0.0f);
  std::fill_n(state.values, uint64_t{group} * spec_.head_dim, 0.0f);
  for (uint32_t tile = 0; tile < task.tiles; ++tile) {
    kernels_.merge(state, Partial(task.partial + tile), group, spec_.head_dim);
  }
  kernels_.finish(state, group, spec_.head_dim,
                  context_.as<float>() + uint64_t{task.row} * q_columns_ +
                      uint64_t{task.kv_head} * group * spec_.head_dim);
}

}  // namespace baton::engine::cpu
