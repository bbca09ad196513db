// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/block_checker.h"

#include "base/ids.h"

namespace baton::sim {

void BlockChecker::Granted(const kv::Ticket& ticket) {
  const Generation generation = ticket.key.generation;
  if (generation <= last_) log_.Violation(who_, " K1: generation used twice");
  last_ = generation;
  if (dead_.contains(ticket.writer)) log_.Violation(who_, " K7: a ticket for a dead writer");
  for (const BlockIndex block : ticket.blocks) {
    const auto [it, fresh] = under_.try_emplace(block, generation);
    if (!fresh) {
      log_.Violation(who_, " K1/K2: block ", block, " granted under ", generation.value(),
                     " while ", it->second.value(), " may still write it");
    }
  }
  grants_[generation] = {ticket.blocks, false};
}

void BlockChecker::Revoked(Generation generation) {
  const auto it = grants_.find(generation);
  if (it == grants_.end() || it->second.revoked) {
    log_.Violation(who_, " Revoke of ", generation.value(), ", which is not open");
    return;
  }
  it->second.revoked = true;
}

void BlockChecker::PeerUp(const WorkerRef& writer) {
  if (dead_.contains(writer.incarnation)) {
    log_.Violation(who_, " K7: a link to ", writer.worker, ", which was declared dead");
  }
}

void BlockChecker::Committed(Generation generation) { Drop(generation, false); }
void BlockChecker::Quiet(Generation generation) { Drop(generation, true); }

void BlockChecker::Drop(Generation generation, bool quiet) {
  const auto it = grants_.find(generation);
  if (it == grants_.end() || it->second.revoked != quiet) {
    log_.Violation(who_, quiet ? " Quiet" : " Commit", " of generation ", generation.value(),
                   " out of turn");
    return;
  }
  for (const BlockIndex block : it->second.blocks) under_.erase(block);
  grants_.erase(it);
}

void BlockChecker::Stepped(const engine::Step& step) {
  absl::btree_map<BlockIndex, uint64_t> writers;  // block → tag
  for (const engine::Slice& slice : step.slices) {
    const uint64_t end = slice.position + slice.tokens.size();
    for (uint32_t i = slice.position / kBlockTokens; i < BlocksFor(end); ++i) {
      writers[slice.block_table[i]] = slice.tag;
    }
  }
  for (const engine::Slice& slice : step.slices) {
    const uint64_t end = slice.position + slice.tokens.size();
    for (uint32_t i = 0; i < BlocksFor(end); ++i) {
      const BlockIndex block = slice.block_table[i];
      if (const auto it = under_.find(block); it != under_.end()) {
        log_.Violation(who_, " K2/K3: a step uses block ", block, ", which generation ",
                       it->second.value(), " may still write");
      }
      if (const auto it = writers.find(block); it != writers.end() && it->second != slice.tag) {
        log_.Violation(who_, " K1: a step writes block ", block, ", which another reads");
      }
    }
  }
}

void CheckedOwner::Grant(const kv::Ticket& ticket) {
  log_.Add(who_, "grants generation ", ticket.key.generation.value(), ", ", ticket.blocks.size(),
           " blocks");
  checker_.Granted(ticket);
  real_.Grant(ticket);
}

void CheckedOwner::Revoke(Generation generation) {
  log_.Add(who_, "revokes generation ", generation.value());
  checker_.Revoked(generation);
  real_.Revoke(generation);
}

void CheckedOwner::Poll(std::vector<kv::TransportEvent>& events) {
  const size_t before = events.size();
  real_.Poll(events);
  for (size_t i = before; i < events.size(); ++i) {
    if (const auto* commit = std::get_if<kv::CommitArrived>(&events[i])) {
      log_.Add(who_, "Commit of generation ", commit->commit.key.generation.value());
      checker_.Committed(commit->commit.key.generation);
    } else if (const auto* quiet = std::get_if<kv::Quiet>(&events[i])) {
      log_.Add(who_, "Quiet of generation ", quiet->generation.value());
      checker_.Quiet(quiet->generation);
    } else if (const auto* failed = std::get_if<kv::WriterFailed>(&events[i])) {
      log_.Add(who_, "writer of generation ", failed->generation.value(), " failed");
    } else if (const auto* up = std::get_if<kv::PeerUp>(&events[i])) {
      log_.Add(who_, "link to ", up->peer.worker, " up");
      checker_.PeerUp(up->peer);
    } else if (const auto* down = std::get_if<kv::PeerDown>(&events[i])) {
      log_.Add(who_, "link to ", down->peer.worker, down->declared_dead ? " dead" : " down");
      if (down->declared_dead) checker_.PeerDead(down->peer.incarnation);
    }
  }
}

void CheckedEngine::Submit(engine::Step step) {
  checker_.Stepped(step);
  real_.Submit(std::move(step));
}

}  // namespace baton::sim
