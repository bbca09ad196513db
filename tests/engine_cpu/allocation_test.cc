// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A step of a size seen before allocates nothing.  A program of its own: it replaces the
// allocation functions.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/ensure.h"
#include "engine/forward.h"
#include "tests/engine_cpu/random_model.h"

namespace {

std::atomic<uint64_t> allocations{0};

void* Allocate(size_t size) {
  ++allocations;
  void* memory = std::malloc(size);
  ENSURE(memory != nullptr);
  return memory;
}

}  // namespace

void* operator new(size_t size) { return Allocate(size); }
void* operator new[](size_t size) { return Allocate(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return Allocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace baton::engine::cpu {
namespace {

TEST_CASE("a step of a size seen before allocates nothing") {
  const auto type = GENERATE(TensorType::kQ4_1, TensorType::kF16);
  const RandomModel model = MakeRandomModel(type);
  auto created = Forward::Create(model.weights, {.threads = 2});
  REQUIRE(created.ok());
  Forward& forward = **created;
  const ModelSpec& spec = forward.spec();

  constexpr uint32_t kSequences = 5;
  constexpr uint32_t kBlocks = 6;
  KvPool pool;
  pool.layout = {spec.layers, spec.kv_heads, spec.head_dim, kSequences * kBlocks, KvType::kBf16};
  std::vector<uint8_t> memory(pool.layout.pool_bytes());
  pool.base = memory.data();
  const std::vector<TokenId> tokens(64, 3);
  std::vector<std::vector<BlockIndex>> tables(kSequences);
  for (uint32_t i = 0; i < kSequences * kBlocks; ++i) tables[i / kBlocks].push_back(i);

  // Four sequences decode; the fifth is a prompt's chunk.
  std::vector<ForwardSlice> slices(kSequences);
  std::vector<float> logits;
  const auto step = [&](uint32_t position) {
    for (uint32_t s = 0; s < kSequences; ++s) {
      const uint32_t count = s + 1 < kSequences ? 1 : 20;
      slices[s] = {absl::MakeConstSpan(tokens).first(count), position, tables[s],
                   ForwardSlice::Logits::kLast};
    }
    forward.Run(slices, pool, {}, logits);
  };
  step(70);
  const uint64_t before = allocations;
  for (uint32_t position = 71; position < 76; ++position) step(position);
  const uint64_t after = allocations;
  CHECK(after == before);
  logits.emplace_back();  // the counter counts
  CHECK(allocations > after);
}

}  // namespace
}  // namespace baton::engine::cpu
