// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/thread_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <vector>

namespace baton::engine::cpu {
namespace {

TEST_CASE("every chunk runs once, and its writes are seen after the region") {
  for (const uint32_t threads : {1u, 2u, 3u, 8u}) {
    ThreadPool pool(threads);
    CHECK(pool.threads() == threads);
    for (uint32_t round = 0; round < 2000; ++round) {
      const uint32_t chunks = round % 37;
      std::vector<uint32_t> counts(chunks);  // not atomic: each belongs to one chunk
      pool.Run(chunks, [&](uint32_t chunk, uint32_t thread) {
        if (thread < threads) counts[chunk] += chunk + round;
      });
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        REQUIRE(counts[chunk] == chunk + round);
      }
    }
  }
}

TEST_CASE("what the caller wrote before a region is seen in it") {
  ThreadPool pool(3);
  uint64_t value = 0;
  for (uint64_t round = 1; round < 3000; ++round) {
    value = round;
    std::atomic<uint32_t> right{0};
    pool.Run(7, [&](uint32_t, uint32_t) { right += value == round ? 1 : 0; });
    REQUIRE(right == 7);
  }
}

TEST_CASE("a region ends although no other thread has woken") {
  // More threads than any machine here has cores: most are asleep or not scheduled.
  ThreadPool pool(64);
  std::atomic<uint32_t> ran{0};
  for (uint32_t round = 0; round < 50; ++round) {
    pool.Run(3, [&](uint32_t, uint32_t) { ++ran; });
  }
  CHECK(ran == 150);
}

TEST_CASE("a pool that never ran ends") {
  for (uint32_t i = 0; i < 20; ++i) ThreadPool pool(4);
  SUCCEED();
}

}  // namespace
}  // namespace baton::engine::cpu
