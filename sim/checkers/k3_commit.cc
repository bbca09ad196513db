// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k3_commit.h"

#include <algorithm>

namespace baton::sim {

void K3Commit::Committed(LifeId writer, const kv::Commit& commit) {
  const GrantFacts* grant = book_.Find(commit.key);
  if (grant == nullptr) return;  // its owner is gone
  const std::string& name = book_.life(writer).name();
  const kv::Layout& layout = book_.life(grant->owner).hello.layout;
  const uint64_t pieces = grant->done.size();
  const auto missing = std::count(grant->done.begin(), grant->done.end(), false);
  if (missing > 0 && grant->accepted) {
    log_.Violation("K3: ", name, " commits generation ", commit.key.generation.value(), " with ",
                   missing, " of ", pieces, " pieces not written");
  }
  if (commit.blocks != grant->ticket.blocks.size() || commit.layers != layout.layers ||
      commit.bytes != pieces * layout.block_bytes()) {
    log_.Violation("K3: ", name, " commits ", commit.blocks, " blocks of ",
                   grant->ticket.blocks.size(), ", ", commit.bytes, " bytes");
  }
}

// OK means visible: every byte of the write is in the owner's pool.
void K3Commit::Done(LifeId writer, const kv::WriteDone& done) {
  if (!done.status.ok()) return;
  const auto mine = book_.writes.find(writer);
  if (mine == book_.writes.end()) return;
  const auto it = mine->second.find(done.id);
  const GrantFacts* grant = it == mine->second.end() ? nullptr : book_.Find(it->second.key);
  if (grant == nullptr || !book_.life(grant->owner).alive) return;
  const uint64_t size = book_.life(grant->owner).hello.layout.block_bytes();
  for (const kv::WritePiece& piece : it->second.pieces) {
    const size_t place = it->second.layer * grant->ticket.blocks.size() + piece.target_index;
    if (grant->landed[place] >= size) continue;
    log_.Violation("K3: ", book_.life(writer).name(), " is told that a write of generation ",
                   it->second.key.generation.value(), " is done, but only ", grant->landed[place],
                   " of ", size, " bytes are there");
    return;
  }
}

void K3Commit::Told(LifeId owner, const kv::TransportEvent& event) {
  if (const auto* done = std::get_if<kv::WriteDone>(&event)) return Done(owner, *done);
  const auto* arrived = std::get_if<kv::CommitArrived>(&event);
  if (arrived == nullptr) return;
  const kv::Commit& commit = arrived->commit;
  const LifeFacts& life = book_.life(owner);
  const GrantFacts* grant = book_.Find(commit.key);
  if (grant == nullptr) return;  // K4's
  if (grant->damaged) {
    log_.Violation("K3: ", life.name(), " is told the Commit of generation ",
                   commit.key.generation.value(), ", of which bytes arrived damaged");
  }
  const uint64_t size = life.hello.layout.block_bytes();
  for (size_t place = 0; place < grant->landed.size(); ++place) {
    if (grant->landed[place] >= size) continue;
    const size_t blocks = grant->ticket.blocks.size();
    log_.Violation("K3: ", life.name(), " is told the Commit of generation ",
                   commit.key.generation.value(), ", but of block ",
                   grant->ticket.blocks[place % blocks], " in layer ", place / blocks, " only ",
                   grant->landed[place], " of ", size, " bytes are there");
    return;
  }
}

void K3Commit::Used(LifeId owner, BlockIndex block) {
  const Generation* other = book_.Under(owner, block);
  if (other == nullptr) return;
  const GrantFacts* grant = book_.Find({book_.life(owner).incarnation, *other});
  if (grant == nullptr || grant->state != GrantState::kOpen) return;  // revoked: K2's
  log_.Violation("K3: a step of ", book_.life(owner).name(), " uses block ", block,
                 " before the Commit of generation ", other->value());
}

}  // namespace baton::sim
