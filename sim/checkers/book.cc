// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/book.h"

#include <algorithm>
#include <utility>

namespace baton::sim {

void Book::Started(LifeId life, const kv::Hello& hello) {
  LifeFacts& facts = lives[life];
  facts.id = life;
  facts.hello = hello;
  facts.incarnation = hello.self.incarnation;
}

void Book::Gone(LifeId life) {
  LifeFacts& facts = lives.at(life);
  facts.alive = false;
  under.erase(life);
  unsettled.erase(life);
  writes.erase(life);
  // What the dead process granted concerns nobody any more: its memory is gone.
  const Incarnation owner = facts.hello.self.incarnation;
  grants.erase(grants.lower_bound({owner, Generation()}),
               grants.upper_bound({owner, Generation(UINT64_MAX)}));
}

void Book::Granted(LifeId life, const kv::Ticket& ticket) {
  GrantFacts& grant = grants[ticket.key];
  grant = GrantFacts{};
  grant.ticket = ticket;
  grant.owner = life;
  const auto& links = lives.at(life).links;
  if (const auto it = links.find(ticket.writer); it != links.end())
    grant.writer = it->second.worker;
  const size_t pieces = ticket.blocks.size() * lives.at(life).hello.layout.layers;
  grant.landed.resize(pieces);
  grant.wrote.resize(pieces);
  grant.posted.resize(pieces);
  grant.done.resize(pieces);
  unsettled[life].insert(ticket.key.generation);
  for (const BlockIndex block : ticket.blocks) under[life][block] = ticket.key.generation;
}

void Book::Revoked(LifeId life, Generation generation) {
  if (GrantFacts* grant = Find({lives.at(life).incarnation, generation})) {
    if (grant->state == GrantState::kOpen) grant->state = GrantState::kRevoked;
  }
}

void Book::Close(const kv::GrantKey& key) {
  GrantFacts* grant = Find(key);
  if (grant == nullptr || grant->state == GrantState::kClosed) return;
  grant->state = GrantState::kClosed;
  unsettled[grant->owner].erase(key.generation);
  auto& blocks = under[grant->owner];
  for (const BlockIndex block : grant->ticket.blocks) {
    const auto it = blocks.find(block);
    if (it != blocks.end() && it->second == key.generation) blocks.erase(it);
  }
  closed.push_back(key);
  if (closed.size() <= kClosedMax) return;
  grants.erase(closed.front());
  closed.pop_front();
}

void Book::Accepted(LifeId, const kv::Ticket& ticket) {
  GrantFacts* grant = Find(ticket.key);
  if (grant == nullptr) return;
  grant->accepted = true;
  grant->wrote.assign(grant->wrote.size(), false);
}

void Book::Wrote(LifeId life, kv::WriteId id, WriteFacts write) {
  if (GrantFacts* grant = Find(write.key)) {
    for (const kv::WritePiece& piece : write.pieces) {
      const size_t place = write.layer * grant->ticket.blocks.size() + piece.target_index;
      if (place < grant->wrote.size()) grant->wrote[place] = true;
    }
  }
  writes[life][id] = std::move(write);
}

void Book::Committed(const kv::Commit& commit) {
  if (GrantFacts* grant = Find(commit.key)) grant->committed = true;
}

void Book::Told(LifeId life, const kv::TransportEvent& event) {
  LifeFacts& facts = lives.at(life);
  if (const auto* commit = std::get_if<kv::CommitArrived>(&event)) {
    Close(commit->commit.key);
  } else if (const auto* quiet = std::get_if<kv::Quiet>(&event)) {
    Close({facts.incarnation, quiet->generation});
  } else if (const auto* done = std::get_if<kv::WriteDone>(&event)) {
    auto& mine = writes[life];
    const auto it = mine.find(done->id);
    if (it == mine.end()) return;
    GrantFacts* grant = Find(it->second.key);
    if (grant != nullptr && done->status.ok()) {
      const size_t blocks = grant->ticket.blocks.size();
      for (const kv::WritePiece& piece : it->second.pieces) {
        const size_t place = it->second.layer * blocks + piece.target_index;
        if (place < grant->done.size()) grant->done[place] = true;
      }
    }
    mine.erase(it);
  } else if (const auto* failed = std::get_if<kv::WriterFailed>(&event)) {
    if (GrantFacts* grant = Find({facts.incarnation, failed->generation})) grant->failed = true;
  } else if (const auto* ended = std::get_if<kv::PushEnded>(&event)) {
    if (GrantFacts* grant = Find(ended->key)) grant->accepted = false;
  } else if (const auto* up = std::get_if<kv::PeerUp>(&event)) {
    facts.links[up->peer.incarnation] = up->peer;
    facts.refused.erase(up->peer.incarnation);
  } else if (const auto* down = std::get_if<kv::PeerDown>(&event)) {
    const bool was_up = facts.links.erase(down->peer.incarnation) > 0;
    if (down->declared_dead) facts.dead.insert(down->peer.incarnation);
    if (!was_up && absl::IsFailedPrecondition(down->why)) {
      facts.refused.insert(down->peer.incarnation);
    }
  } else if (const auto* reborn = std::get_if<kv::Reborn>(&event)) {
    facts.incarnation = reborn->incarnation;
  }
}

void Book::Posted(const kv::DataWrite& write, char path, bool fences) {
  GrantFacts* grant = Find(write.header.key);
  if (grant == nullptr) return;
  grant->path = path;
  grant->fences = fences;
  ++grant->writes_out;
  for (const uint32_t target : write.header.targets) {
    const size_t place = write.header.layer * grant->ticket.blocks.size() + target;
    if (place < grant->posted.size()) grant->posted[place] = true;
  }
}

void Book::WriteEnded(const kv::GrantKey& key) {
  GrantFacts* grant = Find(key);
  if (grant != nullptr && grant->writes_out > 0) --grant->writes_out;
}

void Book::Damaged(const kv::GrantKey& key) {
  if (GrantFacts* grant = Find(key)) grant->damaged = true;
}

void Book::Landed(const kv::GrantKey& key, uint64_t target_offset, uint64_t bytes) {
  GrantFacts* grant = Find(key);
  if (grant == nullptr) return;
  const kv::Layout& layout = lives.at(grant->owner).hello.layout;
  const uint64_t size = layout.block_bytes();
  while (bytes > 0) {  // a part may cover the ends of several blocks
    const uint64_t run = target_offset / size;
    const uint64_t here = std::min(bytes, size - target_offset % size);
    const auto layer = static_cast<uint32_t>(run / layout.blocks);
    const auto block = static_cast<BlockIndex>(run % layout.blocks);
    const auto& blocks = grant->ticket.blocks;
    const auto at = std::find(blocks.begin(), blocks.end(), block);
    if (at != blocks.end()) {
      grant->landed[layer * blocks.size() + static_cast<size_t>(at - blocks.begin())] +=
          static_cast<uint32_t>(here);
      grant->landed_bytes += here;
    }
    target_offset += here;
    bytes -= here;
  }
}

}  // namespace baton::sim
