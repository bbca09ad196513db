// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The merge step of byte-pair encoding: joins neighbouring symbols of one piece, the best
// ranked pair first, the leftmost of equal pairs first, until no pair has a rule.
//
// A heap of candidates over a linked list: n log n for any input, so that a megabyte
// without a space cannot stall a server.
//
// Thread: BpeMerges is immutable after Add; a Workspace belongs to one call at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace baton::text {

class BpeMerges {
 public:
  // Reusable memory of one caller.
  struct Workspace {
    struct Symbol {
      TokenId id;
      uint32_t previous;
      uint32_t next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // rank << 32 | index of the left symbol; a min-heap
  };

  // `left` `right` become `joined`; a smaller rank goes first.
  void Add(TokenId left, TokenId right, TokenId joined, uint32_t rank);

  // Appends what remains of `symbols` when no rule applies any more.
  void Apply(const std::vector<TokenId>& symbols, Workspace& work, std::vector<TokenId>& out) const;

 private:
  struct Rule {
    TokenId joined;
    uint32_t rank;
  };
  const Rule* Find(TokenId left, TokenId right) const;
  // Puts the pair that starts at `left` into the queue if it has a rule.
  void Propose(Workspace& work, uint32_t left) const;

  absl::flat_hash_map<uint64_t, Rule> rules_;  // left << 32 | right
};

}  // namespace baton::text
