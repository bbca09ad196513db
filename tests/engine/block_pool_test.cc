// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The block pool: contiguous allocation, and states that always add up (K1, K2).
#include "engine/block_pool.h"

#include <catch2/catch.hpp>
#include <vector>

#include "base/random.h"

namespace baton::engine {
namespace {

using Blocks = std::vector<BlockIndex>;

TEST_CASE("a fresh pool hands out one ascending run", "[block_pool]") {
  BlockPool pool(8);
  CHECK(pool.Take(5) == Blocks{0, 1, 2, 3, 4});
  CHECK(pool.counts() == BlockCounts{.free = 3, .used = 5});
}

TEST_CASE("too few free blocks: nothing is taken", "[block_pool]") {
  BlockPool pool(4);
  CHECK(pool.Take(5) == std::nullopt);
  CHECK(pool.counts() == BlockCounts{.free = 4});
  CHECK(pool.Take(0) == Blocks{});
}

TEST_CASE("the smallest run that holds them all is taken", "[block_pool]") {
  // Holes of 3 [0,3), 2 [4,6) and 4 [7,11): taking 2 must not break up a larger one.
  BlockPool pool(12);
  REQUIRE(pool.Take(12).has_value());
  for (const BlockIndex block : {0, 1, 2, 4, 5, 7, 8, 9, 10}) pool.Release(block);
  CHECK(pool.Take(2) == Blocks{4, 5});
  CHECK(pool.Take(3) == Blocks{0, 1, 2});
}

TEST_CASE("no run holds them all: the largest runs are joined", "[block_pool]") {
  BlockPool pool(12);
  REQUIRE(pool.Take(12).has_value());
  for (const BlockIndex block : {0, 1, 2, 4, 5, 7, 8, 9, 10}) pool.Release(block);
  CHECK(pool.Take(6) == Blocks{7, 8, 9, 10, 0, 1});
}

TEST_CASE("a growing sequence gets the block behind its last one", "[block_pool]") {
  BlockPool pool(8);
  REQUIRE(pool.Take(6).has_value());
  pool.Release(0);
  pool.Release(3);
  CHECK(pool.Take(1, 2) == Blocks{3});
  CHECK(pool.Take(2, 4) == Blocks{6, 7});  // 5 is in use: any run will do
}

TEST_CASE("a ticket's block passes through reserved and quarantined back to free", "[block_pool]") {
  BlockPool pool(4);
  const Blocks blocks = *pool.Take(2);
  pool.Reserve(blocks);
  CHECK(pool.counts() == BlockCounts{.free = 2, .reserved = 2});
  pool.Quarantine(blocks);
  CHECK(pool.counts() == BlockCounts{.free = 2, .quarantined = 2});
  CHECK(pool.Take(3) == std::nullopt);  // a block that may still be written is not free
  pool.Quiet(blocks);
  CHECK(pool.counts() == BlockCounts{.free = 4});
}

TEST_CASE("a landed block is used, then cached, then forgotten", "[block_pool]") {
  BlockPool pool(2);
  const Blocks blocks = *pool.Take(1);
  pool.Reserve(blocks);
  pool.Land(blocks);
  pool.SetKnown(blocks[0]);
  pool.Share(blocks[0]);
  pool.Release(blocks[0]);
  CHECK(pool.state(blocks[0]) == BlockState::kUsed);
  pool.Release(blocks[0]);
  CHECK(pool.state(blocks[0]) == BlockState::kCached);
  CHECK(pool.OldestCached() == blocks[0]);
  CHECK(pool.available() == 2);
  pool.Forget(blocks[0]);
  CHECK(pool.counts() == BlockCounts{.free = 2});
}

TEST_CASE("the cached block without a reader for longest is the oldest", "[block_pool]") {
  BlockPool pool(3);
  REQUIRE(pool.Take(3).has_value());
  for (const BlockIndex block : {0, 1, 2}) pool.SetKnown(block);
  for (const BlockIndex block : {1, 0, 2}) pool.Release(block);
  CHECK(pool.OldestCached() == 1u);
  pool.Share(1);
  pool.Release(1);
  CHECK(pool.OldestCached() == 0u);
}

TEST_CASE("random transitions: the counts are those of the states, and add up", "[block_pool]") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    BlockPool pool(static_cast<uint32_t>(random.Between(1, 40)));
    std::vector<Blocks> used, reserved, quarantined;
    const auto pick = [&](std::vector<Blocks>& from) {
      const size_t i = random.Below(from.size());
      Blocks blocks = from[i];
      from.erase(from.begin() + static_cast<int64_t>(i));
      return blocks;
    };
    for (int i = 0; i < 400; ++i) {
      switch (random.Below(5)) {
        case 0:
          if (auto taken = pool.Take(static_cast<uint32_t>(random.Below(8)))) {
            used.push_back(*taken);
          }
          break;
        case 1:
          if (used.empty()) break;
          for (const BlockIndex block : pick(used)) {
            if (random.Chance(0.3)) pool.SetKnown(block);
            pool.Release(block);
          }
          break;
        case 2:
          if (used.empty()) break;
          reserved.push_back(pick(used));
          pool.Reserve(reserved.back());
          break;
        case 3:
          if (reserved.empty()) break;
          quarantined.push_back(pick(reserved));
          pool.Quarantine(quarantined.back());
          break;
        case 4:
          if (!quarantined.empty()) pool.Quiet(pick(quarantined));
          if (pool.OldestCached().has_value()) pool.Forget(*pool.OldestCached());
          break;
      }
      BlockCounts counted;
      for (BlockIndex block = 0; block < pool.size(); ++block) {
        switch (pool.state(block)) {
          case BlockState::kFree:
            ++counted.free;
            break;
          case BlockState::kCached:
            ++counted.cached;
            break;
          case BlockState::kUsed:
            ++counted.used;
            break;
          case BlockState::kReserved:
            ++counted.reserved;
            break;
          case BlockState::kQuarantined:
            ++counted.quarantined;
            break;
        }
      }
      REQUIRE(counted == pool.counts());
      REQUIRE(counted.total() == pool.size());
    }
  }
}

}  // namespace
}  // namespace baton::engine
