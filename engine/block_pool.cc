// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The transitions between block states, each checked against the state it must start from.
#include "engine/block_pool.h"

#include <algorithm>

#include "base/ensure.h"

namespace baton::engine {

BlockPool::BlockPool(uint32_t blocks) : blocks_(blocks) { counts_.free = blocks; }

uint32_t& BlockPool::CountOf(BlockState state) {
  switch (state) {
    case BlockState::kFree:
      return counts_.free;
    case BlockState::kCached:
      return counts_.cached;
    case BlockState::kUsed:
      return counts_.used;
    case BlockState::kReserved:
      return counts_.reserved;
    case BlockState::kQuarantined:
      return counts_.quarantined;
  }
  ENSURE(false);
  return counts_.free;
}

void BlockPool::Move(BlockIndex block, BlockState to) {
  Block& b = blocks_.at(block);
  ENSURE(CountOf(b.state) > 0);
  if (b.state == BlockState::kCached) ENSURE(idle_.erase({b.idle_since, block}) == 1);
  --CountOf(b.state);
  b.state = to;
  ++CountOf(to);
  if (to == BlockState::kCached) {
    b.idle_since = ++stamp_;
    idle_.insert({b.idle_since, block});
  }
}

std::vector<BlockPool::Run> BlockPool::FreeRuns() const {
  std::vector<Run> runs;
  for (BlockIndex block = 0; block < blocks_.size(); ++block) {
    if (blocks_[block].state != BlockState::kFree) continue;
    if (runs.empty() || runs.back().first + runs.back().length != block) runs.push_back({block, 0});
    ++runs.back().length;
  }
  return runs;
}

void BlockPool::TakeRun(Run run, uint32_t count, std::vector<BlockIndex>& taken) {
  for (uint32_t i = 0; i < std::min(run.length, count); ++i) {
    const BlockIndex block = run.first + i;
    ENSURE(blocks_[block].state == BlockState::kFree);
    ENSURE(blocks_[block].readers == 0 && !blocks_[block].known);
    Move(block, BlockState::kUsed);
    blocks_[block].readers = 1;
    taken.push_back(block);
  }
}

std::optional<std::vector<BlockIndex>> BlockPool::Take(uint32_t count,
                                                       std::optional<BlockIndex> after) {
  if (counts_.free < count) return std::nullopt;
  std::vector<BlockIndex> taken;
  taken.reserve(count);
  if (after.has_value()) {
    for (BlockIndex next = *after + 1; next < size() && taken.size() < count; ++next) {
      if (blocks_[next].state != BlockState::kFree) break;
      TakeRun({next, 1}, 1, taken);
    }
  }
  if (taken.size() == count) return taken;

  const uint32_t missing = count - static_cast<uint32_t>(taken.size());
  std::vector<Run> runs = FreeRuns();
  const Run* best = nullptr;
  for (const Run& run : runs) {
    if (run.length >= missing && (best == nullptr || run.length < best->length)) best = &run;
  }
  if (best != nullptr) {
    TakeRun(*best, missing, taken);
  } else {
    std::stable_sort(runs.begin(), runs.end(),
                     [](const Run& a, const Run& b) { return a.length > b.length; });
    for (const Run& run : runs) {
      TakeRun(run, count - static_cast<uint32_t>(taken.size()), taken);
    }
  }
  ENSURE(taken.size() == count);
  return taken;
}

void BlockPool::Share(BlockIndex block) {
  Block& b = blocks_.at(block);
  ENSURE(b.known);  // only full, immutable blocks are shared (K1)
  ENSURE(b.state == BlockState::kUsed || b.state == BlockState::kCached);
  if (b.state == BlockState::kCached) Move(block, BlockState::kUsed);
  ++b.readers;
}

void BlockPool::Release(BlockIndex block) {
  Block& b = blocks_.at(block);
  ENSURE(b.state == BlockState::kUsed && b.readers > 0);
  if (--b.readers == 0) Move(block, b.known ? BlockState::kCached : BlockState::kFree);
}

void BlockPool::Reserve(absl::Span<const BlockIndex> blocks) {
  for (const BlockIndex block : blocks) {
    const Block& b = blocks_.at(block);
    ENSURE(b.state == BlockState::kUsed && b.readers == 1 && !b.known);
    Move(block, BlockState::kReserved);
  }
}

void BlockPool::Land(absl::Span<const BlockIndex> blocks) {
  for (const BlockIndex block : blocks) {
    const Block& b = blocks_.at(block);
    ENSURE(b.state == BlockState::kReserved && b.readers == 1);
    Move(block, BlockState::kUsed);
  }
}

void BlockPool::Quarantine(absl::Span<const BlockIndex> blocks) {
  for (const BlockIndex block : blocks) {
    Block& b = blocks_.at(block);
    ENSURE(b.state == BlockState::kReserved && b.readers == 1);
    b.readers = 0;
    Move(block, BlockState::kQuarantined);
  }
}

void BlockPool::Quiet(absl::Span<const BlockIndex> blocks) {
  for (const BlockIndex block : blocks) {
    const Block& b = blocks_.at(block);
    ENSURE(b.state == BlockState::kQuarantined && b.readers == 0 && !b.known);
    Move(block, BlockState::kFree);
  }
}

void BlockPool::SetKnown(BlockIndex block) {
  Block& b = blocks_.at(block);
  ENSURE(b.state == BlockState::kUsed && b.readers > 0 && !b.known);
  b.known = true;
}

void BlockPool::Forget(BlockIndex block) {
  Block& b = blocks_.at(block);
  ENSURE(b.state == BlockState::kCached && b.readers == 0 && b.known);
  Move(block, BlockState::kFree);
  b.known = false;
}

std::optional<BlockIndex> BlockPool::OldestCached() const {
  if (idle_.empty()) return std::nullopt;
  return idle_.begin()->second;
}

}  // namespace baton::engine
