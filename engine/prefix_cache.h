// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Finds blocks whose KV was already computed for the same prefix.
//
// A block's name is a keyed 128-bit hash of its 16 tokens and its predecessor's name, so
// equal names mean equal prefixes.  The chain starts from the tenant's salt and the numeric
// class (K6): entries are shared only under both.  The key is drawn per process, so nobody
// outside can construct a collision.  Only full, immutable blocks enter (K1).
//
// Thread: one owner.  Ownership: the pool is borrowed and outlives the cache; it knows which
// blocks have readers.  Bounded: at most one entry per block of the pool.
// Cost: a lookup per block, logarithmic; hashing costs about 30 ns per block.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/request.h"
#include "engine/block_pool.h"

namespace baton::engine {

struct PrefixKey {
  uint64_t k0 = 0;
  uint64_t k1 = 0;
};

struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  auto operator<=>(const BlockHash&) const = default;
};

// SipHash-2-4 with a 128-bit result (Aumasson, Bernstein), over 64-bit words.
BlockHash KeyedHash(const PrefixKey& key, absl::Span<const uint64_t> words);

class PrefixCache {
 public:
  struct Options {
    bool enabled = true;
    PrefixKey key;
    uint64_t numeric_class = 0;  // model fingerprint and numeric class in one number
  };

  PrefixCache(const Options& options, BlockPool& pool);

  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Appends the names of the sequence's full blocks that `chain` lacks.
  void ExtendChain(const Sequence& sequence, std::vector<BlockHash>& chain) const;

  // The longest known prefix of `chain`; each of its blocks gets a reader.
  std::vector<BlockIndex> Acquire(absl::Span<const BlockHash> chain);

  // From now on `block` is found under `hash`, unless another one already is.
  // REQUIRES: the block is used, full, computed and never written again.
  void Insert(const BlockHash& hash, BlockIndex block);

  // As BlockPool::Take, after forgetting as many idle cached blocks as that needs.
  std::optional<std::vector<BlockIndex>> Take(uint32_t count,
                                              std::optional<BlockIndex> after = std::nullopt);

  // Drops one reader of each, last block first: the tail of a prefix is forgotten before
  // its head.
  void Release(absl::Span<const BlockIndex> blocks);

  uint32_t size() const { return static_cast<uint32_t>(blocks_.size()); }

  // The number of leading blocks that a lookup may use: the last token is always computed.
  static uint32_t HitsMax(uint32_t tokens) { return tokens == 0 ? 0 : (tokens - 1) / kBlockTokens; }

 private:
  const Options options_;
  BlockPool& pool_;
  absl::btree_map<BlockHash, BlockIndex> blocks_;
  std::vector<BlockHash> names_;  // of each known block
};

}  // namespace baton::engine
