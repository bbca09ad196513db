// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The merge step of byte-pair encoding: joins neighbouring symbols of one piece, the best
// ranked pair first, the leftmost of equal pairs first, until no pair has a rule.
//
// n log n for any input, so that a megabyte without a space cannot stall a server.  Words
// use a heap of candidates.  Long pieces use a list of places per rule instead: a rule's
// places are then visited in the order of memory, and only rules are in the heap.
//
// Thread: BpeMerges is immutable after Add; a Workspace belongs to one call at a time.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace baton::text {

class BpeMerges {
  struct Rule {
    TokenId joined;
    uint32_t rank;
  };

 public:
  // Reusable memory of one caller, for one BpeMerges.
  class Workspace {
    friend class BpeMerges;
    // Answers of the rule table, by some bits of the pair: most pairs come again soon.
    struct Known {
      uint64_t pair = UINT64_MAX;
      const Rule* rule = nullptr;
    };
    std::array<Known, 512> known_;
    struct Symbol {
      TokenId id;
      uint32_t previous;
      uint32_t next;
    };
    // The places, by their left symbol, where one rule may apply.
    struct Places {
      TokenId left;
      TokenId right;
      TokenId joined;
      bool sorted;
      uint32_t visited;
      std::vector<uint32_t> at;
    };
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> candidates_;      // rank << 32 | left symbol; a min-heap
    std::vector<Places> places_;            // of the rules met
    std::vector<uint32_t> places_of_rank_;  // index in places_ + 1; 0: not met
    std::vector<uint32_t> ranks_;           // of rules that have places; a min-heap
  };

  // `left` `right` become `joined`; a smaller rank goes first.
  void Add(TokenId left, TokenId right, TokenId joined, uint32_t rank);

  // Appends what remains of `symbols` when no rule applies any more.
  void Apply(const std::vector<TokenId>& symbols, Workspace& work, std::vector<TokenId>& out) const;

 private:
  // The rule of the pair that starts at `left`, if there is a pair and it has one.
  const Rule* FindAt(Workspace& work, uint32_t left) const;

  void JoinByCandidates(Workspace& work) const;
  void AddCandidate(Workspace& work, uint32_t left) const;
  void JoinByPlaces(Workspace& work) const;
  void AddPlace(Workspace& work, uint32_t left) const;
  // Visits one rule's places until all are visited or a better rule has places.
  void VisitPlaces(Workspace& work, uint32_t rank) const;

  absl::flat_hash_map<uint64_t, Rule> rules_;  // left << 32 | right
  uint32_t ranks_ = 0;                         // every rank is less
};

}  // namespace baton::text
