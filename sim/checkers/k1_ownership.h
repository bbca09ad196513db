// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K1: a block that may be written belongs to one attempt; a shared block is full, immutable, in
// no ticket and never written.
//
// A shadow of every pool: which prefix of tokens each block holds, from the slices of the steps
// and the pieces of the pushes alone.  A slice must read blocks that continue one another, up to
// where it starts; so a block that was given away under a reader, lost, misplaced or found under
// a wrong name is seen at the next step that reads it.
// Cost: per slice one look at each block of its table.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "sim/checkers/book.h"
#include "sim/event_log.h"

namespace baton::sim {

class K1Ownership {
 public:
  K1Ownership(const Book& book, EventLog& log) : book_(book), log_(log) {}

  void Started(LifeId life, uint32_t blocks) { pools_[life].blocks.resize(blocks); }
  void Gone(LifeId life) { pools_.erase(life); }
  void Granted(LifeId owner, const kv::Ticket& ticket);
  void Wrote(LifeId writer, const WriteFacts& write);
  // No piece is written twice under a grant: asked for, or posted.
  void Posted(LifeId writer, const kv::DataWrite& write);
  void Wrote(LifeId writer, const kv::GrantKey& key, uint32_t layer,
             absl::Span<const kv::WritePiece> pieces);
  void Told(LifeId life, const kv::TransportEvent& event);
  void Stepped(LifeId life, const engine::Step& step);
  void StepDone(LifeId life) { pools_.at(life).stepping.clear(); }

 private:
  struct Content {
    uint64_t before = 0;  // the prefix up to the block
    uint64_t prefix = 0;  // and including what is filled
    uint32_t filled = 0;  // positions
    bool operator==(const Content&) const = default;
  };
  struct Pool {
    std::vector<Content> blocks;
    absl::btree_set<BlockIndex> stepping;  // in the tables of the step that runs
    Generation last;                       // granted
  };

  void Twice(LifeId writer, const GrantFacts& grant, uint32_t layer, uint32_t target);
  void Read(const LifeFacts& life, Pool& pool, const engine::Slice& slice);
  void Write(const LifeFacts& life, Pool& pool, const engine::Slice& slice);

  const Book& book_;
  EventLog& log_;
  absl::btree_map<LifeId, Pool> pools_;
  absl::btree_map<kv::GrantKey, std::vector<Content>> pushed_;  // by target
};

}  // namespace baton::sim
