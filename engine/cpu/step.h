// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What one step computes: its rows, the tasks of its attention, and the memory for both.
//
// Everything here is kept from step to step and only grows, so a step of a size seen before
// allocates nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "engine/cpu/buffer.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/packed.h"
#include "engine/forward.h"
#include "engine/model_spec.h"

namespace baton::engine::cpu {

// Consecutive rows that are consecutive positions of one sequence.
struct RowRun {
  uint32_t row = 0;
  uint32_t count = 0;
  uint32_t position = 0;
  const BlockIndex* block_table = nullptr;
};

struct Row {
  uint32_t position = 0;
  const BlockIndex* block_table = nullptr;
};

// Either a few query rows of one run and one KV head against all their keys, or a single row
// and all heads against a range of KV tiles, whose partials are merged afterwards.
struct AttentionTask {
  uint32_t row = 0;
  uint32_t tokens = 0;
  uint32_t position = 0;
  const BlockIndex* block_table = nullptr;
  uint32_t kv_head = 0;
  uint32_t tile_begin = 0;
  uint32_t tile_end = 0;
  bool tiled = false;    // the second kind
  uint64_t partial = 0;  // index of the row's first
};

// The partials of one row and KV head, to be merged in order.
struct MergeTask {
  uint32_t row = 0;
  uint32_t kv_head = 0;
  uint32_t tiles = 0;
  uint64_t partial = 0;
};

class Rows {
 public:
  void Assign(absl::Span<const ForwardSlice> slices);
  // Keeps only the rows whose logits are wanted, in order; kept()[new row] = old row.
  void KeepWanted(absl::Span<const ForwardSlice> slices);

  uint32_t count() const { return static_cast<uint32_t>(rows_.size()); }
  const Row& at(uint32_t row) const { return rows_[row]; }
  absl::Span<const RowRun> runs() const { return runs_; }
  absl::Span<const uint32_t> kept() const { return kept_; }

 private:
  void Add(const ForwardSlice& slice, uint32_t first, uint32_t count);

  std::vector<Row> rows_;
  std::vector<RowRun> runs_;
  std::vector<uint32_t> kept_;
};

// The cut of a step's attention into tasks.  The cut never changes a result.
class AttentionPlan {
 public:
  void Assign(absl::Span<const RowRun> runs, const ModelSpec& spec, uint32_t threads);

  absl::Span<const AttentionTask> tasks() const { return tasks_; }
  // Of rows whose tiles are spread over several tasks.
  absl::Span<const MergeTask> merges() const { return merges_; }
  uint64_t partials() const { return partials_; }

 private:
  void AddTiled(const RowRun& run, const ModelSpec& spec, uint32_t tiles_per_task);

  std::vector<AttentionTask> tasks_;
  std::vector<MergeTask> merges_;
  uint64_t partials_ = 0;
};

// One input of a matrix, with memory for the number of rows at hand.
class InputRows {
 public:
  // Tiles of equal size, as few as `token_tile_max` allows.
  // REQUIRES: columns is a multiple of 32.
  const Inputs& Resize(uint32_t rows, uint32_t columns, uint32_t token_tile_max, bool quants,
                       bool values);
  const Inputs& get() const { return inputs_; }

 private:
  Inputs inputs_;
  Buffer values_;
  Buffer quants_;
  Buffer scales_;
};

}  // namespace baton::engine::cpu
