// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which KV blocks are in use, by how many, and which of them may not be touched.
//
// Every block is in exactly one state, and the counts always add up to the pool.  A block
// under a ticket is reserved: one attempt owns it and a peer may write it (K1).  Taken back
// from a peer it is quarantined until the transport says Quiet (K2).  A used block has one
// reference per sequence that reads it; more than one only when it is full and immutable.
// A cached block has no reference, but its content is known to the prefix cache.
//
// Thread: one owner.  Cost: Take scans the pool once (10,000 blocks: some microseconds).
// Fails:  Take returns nothing when there are too few free blocks; all else is ENSUREd.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace baton::engine {

// One state per block; where several would fit, the larger one is reported.
enum class BlockState : uint8_t {
  kFree = 0,
  kCached = 1,
  kUsed = 2,
  kReserved = 3,
  kQuarantined = 4,
};

struct BlockCounts {
  uint32_t free = 0;
  uint32_t cached = 0;
  uint32_t used = 0;
  uint32_t reserved = 0;
  uint32_t quarantined = 0;
  uint32_t total() const { return free + cached + used + reserved + quarantined; }
  bool operator==(const BlockCounts&) const = default;
};

class BlockPool {
 public:
  explicit BlockPool(uint32_t blocks);

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Takes `count` free blocks with one reference each: all of them or none.  In ascending
  // runs: the smallest run that holds them all, else the largest runs first.  A free run
  // that starts right behind `after` comes first, so that a growing sequence stays in one.
  std::optional<std::vector<BlockIndex>> Take(uint32_t count,
                                              std::optional<BlockIndex> after = std::nullopt);

  // One more reader of a used or cached block.
  void Share(BlockIndex block);
  // One reader less.  Without readers a block is cached if the prefix cache knows it, else
  // free.  REQUIRES: used.
  void Release(BlockIndex block);

  // used → reserved: a ticket names them.  REQUIRES: one reference, not known to the cache.
  void Reserve(absl::Span<const BlockIndex> blocks);
  // reserved → used: the Commit arrived, or the ticket was never handed out.
  void Land(absl::Span<const BlockIndex> blocks);
  // reserved → quarantined: the ticket was taken back.
  void Quarantine(absl::Span<const BlockIndex> blocks);
  // quarantined → free: nothing can land any more.
  void Quiet(absl::Span<const BlockIndex> blocks);

  // The prefix cache knows the content of this used block from now on.
  void SetKnown(BlockIndex block);
  // Forgets it.  REQUIRES: cached; the block becomes free.
  void Forget(BlockIndex block);
  // The cached block that has been without a reader for the longest time.
  std::optional<BlockIndex> OldestCached() const;

  BlockState state(BlockIndex block) const { return blocks_.at(block).state; }
  uint32_t readers(BlockIndex block) const { return blocks_.at(block).readers; }
  bool known(BlockIndex block) const { return blocks_.at(block).known; }
  uint32_t size() const { return static_cast<uint32_t>(blocks_.size()); }
  const BlockCounts& counts() const { return counts_; }
  // Free, or cached and therefore to be had.
  uint32_t available() const { return counts_.free + counts_.cached; }

 private:
  struct Block {
    BlockState state = BlockState::kFree;
    bool known = false;  // to the prefix cache
    uint32_t readers = 0;
    uint64_t idle_since = 0;  // stamp of the moment it became cached
  };
  struct Run {
    BlockIndex first = 0;
    uint32_t length = 0;
  };

  void Move(BlockIndex block, BlockState to);
  uint32_t& CountOf(BlockState state);
  std::vector<Run> FreeRuns() const;
  void TakeRun(Run run, uint32_t count, std::vector<BlockIndex>& taken);

  std::vector<Block> blocks_;
  BlockCounts counts_;
  absl::btree_set<std::pair<uint64_t, BlockIndex>> idle_;  // cached blocks, oldest first
  uint64_t stamp_ = 0;
};

}  // namespace baton::engine
