// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// From the bytes of one layout to those of another: planned once per pair, run layer by layer.
//
// A plan is the intersection of both layouts as runs: stretches that are neighbours in either.
// Where the element type stays, a run is a copy; where it changes, the rows of a run go through
// floats.  A value that the new type cannot hold becomes its largest, and so does a NaN: the bytes
// are those that an engine of the target's type would have stored of these floats.
//
// The unit of a plan is a group: the fewest blocks of either side that hold the same tokens, one
// of 64 tokens and four of 16.
//
// Thread: any; pure.  Cost: planning, the rows of a group; running, two passes over cached bytes.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/types/span.h"
#include "kv_transfer/layout.h"

namespace baton::kv {

// Bytes that stay as they are.  Blocks are counted within a group, offsets within a block.
struct ByteRun {
  uint32_t source_block = 0, target_block = 0;
  uint32_t source_offset = 0, target_offset = 0;
  uint32_t size_bytes = 0;
  bool operator==(const ByteRun&) const = default;
};

// Rows whose elements change; a side without scales has no use for their offset.
struct RowRun {
  uint32_t source_block = 0, target_block = 0;
  uint32_t source_offset = 0, target_offset = 0;
  uint32_t source_scales = 0, target_scales = 0;
  uint32_t rows = 0;
  bool operator==(const RowRun&) const = default;
};

struct ConversionPlan {
  ElementType source_type = ElementType::kBf16, target_type = ElementType::kBf16;
  uint32_t head_dim = 0;
  uint32_t source_blocks = 1, target_blocks = 1;  // of a group
  uint64_t source_block_bytes = 0, target_block_bytes = 0;
  // The layers that both have; layer i of them is source_layer + i there, target_layer + i here.
  uint32_t layers = 0, source_layer = 0, target_layer = 0;
  bool whole = false;  // a group gets every byte: the source has all heads that the target has
  std::vector<ByteRun> bytes;
  std::vector<RowRun> rows;

  bool numeric() const { return source_type != target_type; }
  // Blocks of the target that hold the tokens of so many blocks of the source.
  uint64_t TargetBlocks(uint64_t source) const {
    return (source * target_blocks + source_blocks - 1) / source_blocks;
  }
};

// The layouts are equal but for the number of blocks.
struct Direct {};

// What it takes to bring one layer's blocks of `source` into `target`.  A refusal names the field
// that stands in the way.
std::variant<Direct, ConversionPlan, Refusal> PlanConversion(const Layout& source,
                                                             const Layout& target);

// Converts blocks of one layer; `target` is whole blocks, one behind the other.  What the source
// does not hold (heads of other shards, tokens behind its last block) stays as it is there.
// REQUIRES: source_block_bytes at each source; at most TargetBlocks(sources) blocks of target.
void Convert(const ConversionPlan& plan, absl::Span<const uint8_t* const> sources,
             absl::Span<uint8_t> target);

// "bf16 to int8", "other row order", or both: for logs and labels.  Empty: nothing changes.
std::string DescribeConversion(const Layout& source, const Layout& target);

}  // namespace baton::kv
