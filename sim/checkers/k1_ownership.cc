// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k1_ownership.h"

#include "base/random.h"

namespace baton::sim {

void K1Ownership::Granted(LifeId owner, const kv::Ticket& ticket) {
  Pool& pool = pools_.at(owner);
  const std::string& name = book_.life(owner).name();
  if (ticket.key.generation <= pool.last) {
    log_.Violation("K1: ", name, " uses generation ", ticket.key.generation.value(), " twice");
  }
  pool.last = ticket.key.generation;
  absl::btree_set<BlockIndex> seen;
  for (const BlockIndex block : ticket.blocks) {
    if (!seen.insert(block).second) {
      log_.Violation("K1: ", name, " names block ", block, " twice in a ticket");
    }
    if (pool.stepping.contains(block)) {
      log_.Violation("K1: ", name, " grants block ", block, ", which the running step uses");
    }
    if (block < pool.blocks.size()) pool.blocks[block] = Content{};
  }
}

// What the last layer's source blocks hold is what the targets will.
void K1Ownership::Wrote(LifeId writer, const WriteFacts& write) {
  const GrantFacts* grant = book_.Find(write.key);
  const LifeFacts& life = book_.life(writer);
  if (grant == nullptr || write.layer + 1 != life.hello.layout.layers) return;
  const Pool& pool = pools_.at(writer);
  std::vector<Content>& pushed = pushed_[write.key];
  pushed.resize(grant->ticket.blocks.size());
  for (const kv::WritePiece& piece : write.pieces) {
    if (piece.target_index < pushed.size() && piece.source < pool.blocks.size()) {
      pushed[piece.target_index] = pool.blocks[piece.source];
    }
  }
}

void K1Ownership::Twice(LifeId writer, const GrantFacts& grant, uint32_t layer, uint32_t target) {
  log_.Violation("K1: ", book_.life(writer).name(), " writes layer ", layer, " of block ",
                 grant.ticket.blocks[target], " twice under generation ",
                 grant.ticket.key.generation.value());
}

void K1Ownership::Wrote(LifeId writer, const kv::GrantKey& key, uint32_t layer,
                        absl::Span<const kv::WritePiece> pieces) {
  const GrantFacts* grant = book_.Find(key);
  if (grant == nullptr) return;
  for (const kv::WritePiece& piece : pieces) {
    const size_t place = layer * grant->ticket.blocks.size() + piece.target_index;
    if (place >= grant->wrote.size() || !grant->wrote[place]) continue;
    Twice(writer, *grant, layer, piece.target_index);
  }
}

void K1Ownership::Posted(LifeId writer, const kv::DataWrite& write) {
  const GrantFacts* grant = book_.Find(write.header.key);
  if (grant == nullptr) return;
  for (const uint32_t target : write.header.targets) {
    const size_t place = write.header.layer * grant->ticket.blocks.size() + target;
    if (place >= grant->posted.size() || !grant->posted[place]) continue;
    Twice(writer, *grant, write.header.layer, target);
  }
}

void K1Ownership::Told(LifeId life, const kv::TransportEvent& event) {
  if (const auto* quiet = std::get_if<kv::Quiet>(&event)) {
    pushed_.erase({book_.life(life).incarnation, quiet->generation});
    return;
  }
  const auto* arrived = std::get_if<kv::CommitArrived>(&event);
  if (arrived == nullptr) return;
  const GrantFacts* grant = book_.Find(arrived->commit.key);
  const auto pushed = pushed_.find(arrived->commit.key);
  if (grant == nullptr || pushed == pushed_.end()) return;
  Pool& pool = pools_.at(life);
  for (size_t i = 0; i < pushed->second.size() && i < grant->ticket.blocks.size(); ++i) {
    pool.blocks.at(grant->ticket.blocks[i]) = pushed->second[i];
  }
  pushed_.erase(pushed);
}

void K1Ownership::Read(const LifeFacts& life, Pool& pool, const engine::Slice& slice) {
  uint64_t prefix = 0;
  for (uint32_t i = 0; i < BlocksFor(slice.position); ++i) {
    const BlockIndex block = slice.block_table[i];
    const Content& content = pool.blocks.at(block);
    const uint32_t needed = std::min(kBlockTokens, slice.position - i * kBlockTokens);
    if (content.filled != needed || content.before != prefix) {
      log_.Violation("K1: a step of ", life.name(), " reads block ", block, " as the ", i,
                     "th of a sequence, but it holds ", content.filled, " of ", needed,
                     " positions", content.before != prefix ? " behind another prefix" : "");
    }
    prefix = content.prefix;
  }
}

void K1Ownership::Write(const LifeFacts& life, Pool& pool, const engine::Slice& slice) {
  for (uint32_t i = 0; i < slice.tokens.size(); ++i) {
    const uint32_t position = slice.position + i;
    Content& content = pool.blocks.at(slice.block_table[position / kBlockTokens]);
    if (position % kBlockTokens == 0) {
      const uint64_t before =
          position == 0 ? 0 : pool.blocks.at(slice.block_table[position / kBlockTokens - 1]).prefix;
      content = {.before = before, .prefix = before, .filled = 0};
    }
    content.prefix = SplitMix64(content.prefix + 1) ^
                     SplitMix64(static_cast<uint64_t>(slice.tokens[i]) + 0x9e3779b9);
    ++content.filled;
  }
  const auto writes = book_.writes.find(life.id);
  if (writes == book_.writes.end() || writes->second.empty()) return;
  const uint32_t end = BlocksFor(slice.position + slice.tokens.size());
  absl::btree_set<BlockIndex> written(slice.block_table.begin() + slice.position / kBlockTokens,
                                      slice.block_table.begin() + end);
  for (const auto& [id, write] : writes->second) {
    for (const kv::WritePiece& piece : write.pieces) {
      if (!written.contains(piece.source)) continue;
      log_.Violation("K1: a step of ", life.name(), " writes block ", piece.source,
                     ", which a push of generation ", write.key.generation.value(), " still reads");
    }
  }
}

void K1Ownership::Stepped(LifeId id, const engine::Step& step) {
  Pool& pool = pools_.at(id);
  const LifeFacts& life = book_.life(id);
  absl::btree_map<BlockIndex, uint64_t> writers;  // block → tag
  for (const engine::Slice& slice : step.slices) {
    const auto end = BlocksFor(slice.position + slice.tokens.size());
    for (uint32_t i = slice.position / kBlockTokens; i < end; ++i) {
      if (!writers.emplace(slice.block_table[i], slice.tag).second) {
        log_.Violation("K1: two slices of a step of ", life.name(), " write block ",
                       slice.block_table[i]);
      }
    }
  }
  pool.stepping.clear();
  for (const engine::Slice& slice : step.slices) {
    const auto end = BlocksFor(slice.position + slice.tokens.size());
    for (uint32_t i = 0; i < end; ++i) {
      const BlockIndex block = slice.block_table[i];
      pool.stepping.insert(block);
      const auto it = writers.find(block);
      if (it != writers.end() && it->second != slice.tag) {
        log_.Violation("K1: a step of ", life.name(), " writes block ", block,
                       ", which another slice reads");
      }
    }
    Read(life, pool, slice);
  }
  for (const engine::Slice& slice : step.slices) Write(life, pool, slice);
}

}  // namespace baton::sim
