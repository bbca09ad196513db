// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The hash chain, and the map from names to blocks.
#include "engine/prefix_cache.h"

#include <array>
#include <bit>

#include "base/ensure.h"

namespace baton::engine {
namespace {

struct SipState {
  uint64_t v0, v1, v2, v3;

  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void Absorb(uint64_t word) {
    v3 ^= word;
    Rounds(2);
    v0 ^= word;
  }
  uint64_t Fold() const { return v0 ^ v1 ^ v2 ^ v3; }
};

}  // namespace

BlockHash KeyedHash(const PrefixKey& key, absl::Span<const uint64_t> words) {
  SipState state{key.k0 ^ 0x736f6d6570736575u, key.k1 ^ 0x646f72616e646f6du ^ 0xeeu,
                 key.k0 ^ 0x6c7967656e657261u, key.k1 ^ 0x7465646279746573u};
  for (const uint64_t word : words) state.Absorb(word);
  state.Absorb((uint64_t{words.size()} * 8) << 56);  // the length byte; the tail is empty
  state.v2 ^= 0xeeu;
  state.Rounds(4);
  BlockHash hash;
  hash.low = state.Fold();
  state.v1 ^= 0xddu;
  state.Rounds(4);
  hash.high = state.Fold();
  return hash;
}

PrefixCache::PrefixCache(const Options& options, BlockPool& pool)
    : options_(options), pool_(pool), names_(pool.size()) {}

void PrefixCache::ExtendChain(const Sequence& sequence, std::vector<BlockHash>& chain) const {
  if (!options_.enabled) return;
  constexpr uint32_t kTokenWords = kBlockTokens / 2;
  std::array<uint64_t, 2 + kTokenWords> words;
  const uint32_t full = sequence.size() / kBlockTokens;
  while (chain.size() < full) {
    if (chain.empty()) {
      const std::array<uint64_t, 2> root = {options_.numeric_class, sequence.cache_salt};
      const BlockHash start = KeyedHash(options_.key, root);
      words[0] = start.low;
      words[1] = start.high;
    } else {
      words[0] = chain.back().low;
      words[1] = chain.back().high;
    }
    const uint32_t first = static_cast<uint32_t>(chain.size()) * kBlockTokens;
    for (uint32_t i = 0; i < kTokenWords; ++i) {
      const auto even = static_cast<uint32_t>(sequence.at(first + 2 * i));
      const auto odd = static_cast<uint32_t>(sequence.at(first + 2 * i + 1));
      words[2 + i] = uint64_t{even} | uint64_t{odd} << 32;
    }
    chain.push_back(KeyedHash(options_.key, words));
  }
}

std::vector<BlockIndex> PrefixCache::Acquire(absl::Span<const BlockHash> chain) {
  std::vector<BlockIndex> hits;
  for (const BlockHash& hash : chain) {
    const auto found = blocks_.find(hash);
    if (found == blocks_.end()) break;
    pool_.Share(found->second);
    hits.push_back(found->second);
  }
  return hits;
}

void PrefixCache::Insert(const BlockHash& hash, BlockIndex block) {
  if (!options_.enabled || pool_.known(block)) return;
  if (!blocks_.try_emplace(hash, block).second) return;
  pool_.SetKnown(block);
  names_[block] = hash;
  ENSURE(blocks_.size() <= pool_.size());
}

std::optional<std::vector<BlockIndex>> PrefixCache::Take(uint32_t count,
                                                         std::optional<BlockIndex> after) {
  if (pool_.available() < count) return std::nullopt;
  while (pool_.counts().free < count) {
    const std::optional<BlockIndex> oldest = pool_.OldestCached();
    ENSURE(oldest.has_value());
    ENSURE(blocks_.erase(names_[*oldest]) == 1);
    pool_.Forget(*oldest);
  }
  return pool_.Take(count, after);
}

void PrefixCache::Release(absl::Span<const BlockIndex> blocks) {
  for (size_t i = blocks.size(); i-- > 0;) pool_.Release(blocks[i]);
}

}  // namespace baton::engine
