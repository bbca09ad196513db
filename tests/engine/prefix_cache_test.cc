// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The prefix cache: what it finds, what it must not, and what it forgets first.
#include "engine/prefix_cache.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"
#include "engine/sequence.h"

namespace baton::engine {
namespace {

using Blocks = std::vector<BlockIndex>;

Sequence Prompt(uint32_t tokens, TokenId first = 0) {
  Sequence sequence;
  sequence.prompt.resize(tokens);
  std::iota(sequence.prompt.begin(), sequence.prompt.end(), first);
  return sequence;
}

struct Fixture {
  explicit Fixture(uint32_t blocks, PrefixCache::Options options = {.key = {1, 2}})
      : pool(blocks), cache(options, pool) {}
  std::vector<BlockHash> Chain(const Sequence& sequence) const {
    std::vector<BlockHash> chain;
    cache.ExtendChain(sequence, chain);
    return chain;
  }
  // Runs the sequence: takes its blocks and makes the full ones known.
  Blocks Run(const Sequence& sequence) {
    const std::vector<BlockHash> chain = Chain(sequence);
    Blocks blocks = cache.Acquire(chain);
    const auto hits = static_cast<uint32_t>(blocks.size());
    const auto more = cache.Take(BlocksFor(sequence.size()) - hits);
    REQUIRE(more.has_value());
    blocks.insert(blocks.end(), more->begin(), more->end());
    for (size_t i = 0; i < chain.size(); ++i) cache.Insert(chain[i], blocks[i]);
    return blocks;
  }
  BlockPool pool;
  PrefixCache cache;
};

TEST_CASE("the keyed hash is SipHash-2-4 with 128 bits", "[prefix_cache]") {
  // The reference implementation's vectors for the key 00 01 … 0f: no input, and 00 … 07.
  const PrefixKey key{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  CHECK(KeyedHash(key, {}) == BlockHash{0xe6a825ba047f81a3u, 0x930255c71472f66du});
  const uint64_t word = 0x0706050403020100u;
  CHECK(KeyedHash(key, {&word, 1}) != KeyedHash({1, 2}, {&word, 1}));
}

TEST_CASE("a finished prompt's full blocks are found by an equal prefix", "[prefix_cache]") {
  Fixture f(16);
  const Blocks blocks = f.Run(Prompt(40));
  f.cache.Release(blocks);
  CHECK(f.pool.counts() == BlockCounts{.free = 14, .cached = 2});
  const Blocks hits = f.cache.Acquire(f.Chain(Prompt(100)));
  CHECK(hits == Blocks{blocks[0], blocks[1]});
  f.cache.Release(hits);
}

TEST_CASE("a running prompt's full blocks are shared at once", "[prefix_cache]") {
  Fixture f(16);
  const Blocks first = f.Run(Prompt(33));
  const Blocks second = f.Run(Prompt(33));
  CHECK(second[0] == first[0]);
  CHECK(second[1] == first[1]);
  CHECK(second[2] != first[2]);  // not full: never shared (K1)
  CHECK(f.pool.readers(first[0]) == 2);
}

TEST_CASE("another salt, class or key finds nothing", "[prefix_cache]") {
  Fixture f(16);
  f.Run(Prompt(32));
  Sequence salted = Prompt(32);
  salted.cache_salt = 7;
  CHECK(f.cache.Acquire(f.Chain(salted)).empty());
  const Fixture other_class(1, {.key = {1, 2}, .numeric_class = 9});
  CHECK(other_class.Chain(Prompt(32)) != f.Chain(Prompt(32)));
  const Fixture other_key(1, {.key = {1, 3}});
  CHECK(other_key.Chain(Prompt(32)) != f.Chain(Prompt(32)));
}

TEST_CASE("an equal block behind another prefix has another name", "[prefix_cache]") {
  Fixture f(16);
  Sequence a = Prompt(32), b = Prompt(32);
  b.prompt[0] = 99;
  CHECK(f.Chain(a)[1] != f.Chain(b)[1]);
}

TEST_CASE("the chain counts outputs as any other token, and grows with them", "[prefix_cache]") {
  Fixture f(16);
  Sequence sequence = Prompt(20);
  std::vector<BlockHash> chain = f.Chain(sequence);
  CHECK(chain.size() == 1);
  for (TokenId id = 20; id < 32; ++id) sequence.outputs.push_back(id);
  f.cache.ExtendChain(sequence, chain);
  CHECK(chain == f.Chain(Prompt(32)));
}

TEST_CASE("the last token is never a hit", "[prefix_cache]") {
  CHECK(PrefixCache::HitsMax(1) == 0);
  CHECK(PrefixCache::HitsMax(16) == 0);
  CHECK(PrefixCache::HitsMax(17) == 1);
  CHECK(PrefixCache::HitsMax(32) == 1);
}

TEST_CASE("memory is taken from the least recently used prefix, tail first", "[prefix_cache]") {
  Fixture f(6);
  const Blocks old_blocks = f.Run(Prompt(32));
  const Blocks new_blocks = f.Run(Prompt(32, 500));
  f.cache.Release(old_blocks);
  f.cache.Release(new_blocks);
  REQUIRE(f.cache.Take(3).has_value());  // 2 are free: one must be forgotten
  CHECK(f.pool.known(old_blocks[0]));
  CHECK(!f.pool.known(old_blocks[1]));
  CHECK(f.cache.Acquire(f.Chain(Prompt(32))).size() == 1);
  CHECK(f.cache.Acquire(f.Chain(Prompt(32, 500))).size() == 2);
}

TEST_CASE("blocks with a reader are never forgotten", "[prefix_cache]") {
  Fixture f(4);
  f.Run(Prompt(32));
  CHECK(f.cache.Take(3) == std::nullopt);
  CHECK(f.cache.Take(2).has_value());
}

TEST_CASE("two copies of one prefix: the second stays private", "[prefix_cache]") {
  Fixture f(8);
  const std::vector<BlockHash> chain = f.Chain(Prompt(16));
  const Blocks a = *f.cache.Take(1), b = *f.cache.Take(1);
  f.cache.Insert(chain[0], a[0]);
  f.cache.Insert(chain[0], b[0]);
  CHECK(!f.pool.known(b[0]));
  f.cache.Release(b);
  CHECK(f.pool.state(b[0]) == BlockState::kFree);
}

TEST_CASE("disabled, it finds nothing and keeps nothing", "[prefix_cache]") {
  Fixture f(8, {.enabled = false, .key = {1, 2}});
  const Blocks blocks = f.Run(Prompt(32));
  f.cache.Release(blocks);
  CHECK(f.pool.counts() == BlockCounts{.free = 8});
}

TEST_CASE("random prompts over few prefixes: a hit always holds that very prefix",
          "[prefix_cache]") {
  // The model knows what each block was filled with; a block must be found only by that.
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Random random(seed);
    Fixture f(24);
    std::vector<std::vector<TokenId>> content(24);
    std::vector<Blocks> running;
    for (int i = 0; i < 200; ++i) {
      if (!running.empty() && random.Chance(0.5)) {
        const size_t victim = random.Below(running.size());
        f.cache.Release(running[victim]);
        running.erase(running.begin() + static_cast<int64_t>(victim));
        continue;
      }
      Sequence sequence = Prompt(static_cast<uint32_t>(random.Between(1, 90)));
      for (TokenId& id : sequence.prompt) id %= 16;
      if (sequence.prompt.size() > 20) sequence.prompt[20] = static_cast<TokenId>(random.Below(3));
      std::vector<BlockHash> chain = f.Chain(sequence);
      chain.resize(PrefixCache::HitsMax(sequence.size()));
      Blocks blocks = f.cache.Acquire(chain);
      for (size_t b = 0; b < blocks.size(); ++b) {
        const auto end = static_cast<uint32_t>(b + 1) * kBlockTokens;
        REQUIRE(content[blocks[b]] == TokensOf(sequence, 0, end));
      }
      const auto hits = static_cast<uint32_t>(blocks.size());
      const auto more = f.cache.Take(BlocksFor(sequence.size()) - hits);
      if (!more.has_value()) {
        f.cache.Release(blocks);
        continue;
      }
      blocks.insert(blocks.end(), more->begin(), more->end());
      const std::vector<BlockHash> all = f.Chain(sequence);
      for (uint32_t b = hits; b < blocks.size(); ++b) {
        REQUIRE(f.pool.readers(blocks[b]) == 1);  // what is written is nobody else's
        content[blocks[b]] =
            TokensOf(sequence, 0, std::min((b + 1) * kBlockTokens, sequence.size()));
      }
      for (size_t b = 0; b < all.size(); ++b) f.cache.Insert(all[b], blocks[b]);
      running.push_back(blocks);
      REQUIRE(f.pool.counts().total() == f.pool.size());
    }
    for (const Blocks& blocks : running) f.cache.Release(blocks);
    REQUIRE(f.pool.available() == f.pool.size());
    REQUIRE(f.cache.size() == f.pool.counts().cached);
  }
}

}  // namespace
}  // namespace baton::engine
