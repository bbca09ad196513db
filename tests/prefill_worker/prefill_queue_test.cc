// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Order and chunking of prompts.
#include "prefill_worker/prefill_queue.h"

#include <catch2/catch.hpp>
#include <map>

#include "base/ids.h"
#include "base/random.h"

namespace baton::prefill {
namespace {

using Chunks = std::vector<Chunk>;

TEST_CASE("one long prompt takes the whole step", "[prefill_queue]") {
  const std::vector<Prompt> prompts = {{1, 0, 1000}};
  CHECK(PlanStep(prompts, 512) == Chunks{{1, 0, 512}});
}

TEST_CASE("the last chunk ends where the prompt does", "[prefill_queue]") {
  const std::vector<Prompt> prompts = {{1, 512, 1000}};
  CHECK(PlanStep(prompts, 512) == Chunks{{1, 512, 1000}});
}

TEST_CASE("short prompts share a step", "[prefill_queue]") {
  const std::vector<Prompt> prompts = {{1, 0, 20}, {2, 16, 30}, {3, 0, 200}};
  CHECK(PlanStep(prompts, 128) == Chunks{{1, 0, 20}, {2, 16, 30}, {3, 0, 80}});
}

TEST_CASE("what is left of the budget ends at a block's border, or goes to who can finish",
          "[prefill_queue]") {
  // 12 tokens are left after the first: no block of the second, but all of the third.
  const std::vector<Prompt> prompts = {{1, 0, 20}, {2, 0, 100}, {3, 0, 12}};
  CHECK(PlanStep(prompts, 32) == Chunks{{1, 0, 20}, {3, 0, 12}});
}

TEST_CASE("no prompts, no chunks", "[prefill_queue]") { CHECK(PlanStep({}, 64).empty()); }

TEST_CASE("random prompts: the oldest progresses, every block is completed by one chunk",
          "[prefill_queue]") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    const auto budget = static_cast<uint32_t>(random.Between(1, 8)) * kBlockTokens;
    std::vector<Prompt> prompts;
    std::map<uint64_t, std::vector<uint32_t>> completed;  // by prompt: times per block
    for (uint64_t key = 1; key <= random.Between(1, 6); ++key) {
      const auto tokens = static_cast<uint32_t>(random.Between(1, 300));
      prompts.push_back({key, 0, tokens});
      completed[key].resize(BlocksFor(tokens));
    }
    while (!prompts.empty()) {
      const Chunks chunks = PlanStep(prompts, budget);
      REQUIRE(!chunks.empty());
      REQUIRE(chunks.front().key == prompts.front().key);
      uint32_t total = 0;
      for (const Chunk& chunk : chunks) {
        total += chunk.end - chunk.begin;
        const auto prompt = std::find_if(prompts.begin(), prompts.end(),
                                         [&](const Prompt& p) { return p.key == chunk.key; });
        REQUIRE(prompt != prompts.end());
        REQUIRE(chunk.begin == prompt->computed);
        for (uint32_t b = chunk.begin / kBlockTokens; b < BlocksFor(chunk.end); ++b) {
          ++completed[chunk.key][b];
        }
        prompt->computed = chunk.end;
        if (prompt->computed == prompt->tokens) prompts.erase(prompt);
      }
      REQUIRE(total <= budget);
    }
    for (const auto& [key, times] : completed) {
      for (const uint32_t count : times) REQUIRE(count == 1);
    }
  }
}

}  // namespace
}  // namespace baton::prefill
