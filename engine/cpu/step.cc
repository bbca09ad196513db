// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/step.h"

#include <algorithm>

namespace baton::engine::cpu {
namespace {

constexpr uint32_t kTokensPerTask = 16;
constexpr uint32_t kTasksPerThread = 16;  // so that all end together

uint32_t TilesFor(uint32_t tokens) { return (tokens + kTileTokens - 1) / kTileTokens; }

}  // namespace

void Rows::Add(const ForwardSlice& slice, uint32_t first, uint32_t count) {
  if (count == 0) return;
  runs_.push_back({this->count(), count, slice.position + first, slice.block_table.data()});
  for (uint32_t i = 0; i < count; ++i) {
    rows_.push_back({slice.position + first + i, slice.block_table.data()});
  }
}

void Rows::Assign(absl::Span<const ForwardSlice> slices) {
  rows_.clear();
  runs_.clear();
  for (const ForwardSlice& slice : slices) {
    Add(slice, 0, static_cast<uint32_t>(slice.tokens.size()));
  }
}

void Rows::KeepWanted(absl::Span<const ForwardSlice> slices) {
  rows_.clear();
  runs_.clear();
  kept_.clear();
  uint32_t row = 0;
  for (const ForwardSlice& slice : slices) {
    const auto count = static_cast<uint32_t>(slice.tokens.size());
    uint32_t wanted = 0;
    if (slice.logits == ForwardSlice::Logits::kAll) wanted = count;
    if (slice.logits == ForwardSlice::Logits::kLast) wanted = std::min(count, 1u);
    Add(slice, count - wanted, wanted);
    for (uint32_t i = count - wanted; i < count; ++i) kept_.push_back(row + i);
    row += count;
  }
}

void AttentionPlan::Assign(absl::Span<const RowRun> runs, const ModelSpec& spec, uint32_t threads) {
  tasks_.clear();
  merges_.clear();
  partials_ = 0;
  const uint32_t group = spec.heads / spec.kv_heads;
  const uint32_t tokens_max = std::min(kTokensPerTask, kAttentionRowsMax / group);
  // A decoding sequence reads its blocks once, whole, for all heads; with few sequences, a
  // long one is cut along its keys so that no thread idles.
  const uint32_t wanted = threads > 1 ? threads * kTasksPerThread : 1;
  const auto count = static_cast<uint32_t>(runs.size());
  const uint32_t pieces = (wanted + count - 1) / std::max(count, 1u);
  for (const RowRun& run : runs) {
    const uint32_t tiles = TilesFor(run.position + run.count);
    if (run.count == 1 && tiles > 1) {
      AddTiled(run, spec, (tiles + pieces - 1) / pieces);
      continue;
    }
    for (uint32_t first = 0; first < run.count; first += tokens_max) {
      const uint32_t tokens = std::min(run.count - first, tokens_max);
      const uint32_t position = run.position + first;
      for (uint32_t head = 0; head < spec.kv_heads; ++head) {
        tasks_.push_back({run.row + first, tokens, position, run.block_table, head, 0,
                          TilesFor(position + tokens)});
      }
    }
  }
}

void AttentionPlan::AddTiled(const RowRun& run, const ModelSpec& spec, uint32_t tiles_per_task) {
  const uint32_t tiles = TilesFor(run.position + 1);
  // Tasks are taken from the last on: then a thread's next one holds the tiles that follow,
  // which the kernel asks for meanwhile.
  const uint32_t tasks = (tiles + tiles_per_task - 1) / tiles_per_task;
  for (uint32_t task = tasks; task-- > 0;) {
    const uint32_t tile = task * tiles_per_task;
    tasks_.push_back({run.row, 1, run.position, run.block_table, 0, tile,
                      std::min(tile + tiles_per_task, tiles), true, partials_});
  }
  for (uint32_t head = 0; head < spec.kv_heads; ++head) {
    if (tiles_per_task < tiles) merges_.push_back({run.row, head, tiles, partials_});
    partials_ += tiles;
  }
}

const Inputs& InputRows::Resize(uint32_t rows, uint32_t columns, uint32_t token_tile_max,
                                bool quants, bool values) {
  const uint64_t count = uint64_t{rows} * columns;
  const uint64_t blocks = count / 32;
  const uint32_t tiles = (rows + token_tile_max - 1) / token_tile_max;
  inputs_ = {.rows = rows, .columns = columns, .token_tile = (rows + tiles - 1) / tiles};
  if (values) {
    values_.Reserve(count * sizeof(float));
    inputs_.values = values_.as<float>();
  }
  if (quants) {
    quants_.Reserve(count);
    scales_.Reserve(blocks * (2 * sizeof(float) + sizeof(int32_t)));
    inputs_.quants = quants_.as<int8_t>();
    inputs_.scales = scales_.as<float>();
    inputs_.sums = inputs_.scales + blocks;
    inputs_.quant_sums = reinterpret_cast<int32_t*>(inputs_.sums + blocks);
  }
  return inputs_;
}

}  // namespace baton::engine::cpu
