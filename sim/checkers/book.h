// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What the checkers know: who lives, which grants there are and what has landed under them.
//
// Kept from the outside alone: from what role loops call, what transports tell them, what the
// fabric posts and lands.  Nothing is asked of the code under test.  The hub (checkers.h) writes
// the book; checkers read it, each event before it is entered.
// Thread: one.  Bounds: closed grants are forgotten beyond kClosedMax, oldest first.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "kv_transfer/hello.h"
#include "kv_transfer/link_io.h"
#include "kv_transfer/ticket.h"
#include "kv_transfer/transport.h"

namespace baton::sim {

using LifeId = uint64_t;  // one life of a worker process; never reused, from 1

struct LifeFacts {
  LifeId id = 0;
  kv::Hello hello;
  bool alive = true;
  Incarnation incarnation;  // a reborn writer's changes
  // As the role loop was told.
  absl::btree_map<Incarnation, WorkerRef> links;
  absl::btree_set<Incarnation> dead, refused;

  const std::string& name() const { return hello.self.worker; }
};

enum class GrantState : uint8_t {
  kOpen,     // granted
  kRevoked,  // taken back; its blocks are in quarantine
  kClosed,   // the owner was told Quiet, or of the Commit
};

struct GrantFacts {
  kv::Ticket ticket;
  LifeId owner = 0;
  std::string writer;  // its name
  GrantState state = GrantState::kOpen;
  char path = 'A';               // of the link under which it was first written
  bool fences = false;           // closing the owner's endpoint is one
  std::vector<uint32_t> landed;  // bytes, per (layer, target)
  std::vector<bool> wrote;       // by the role loop since it accepted, per (layer, target)
  std::vector<bool> posted;      // likewise
  std::vector<bool> done;        // WriteDone with OK, likewise
  uint64_t landed_bytes = 0;     // of all pieces
  uint32_t writes_out = 0;       // posted and not ended
  bool accepted = false;         // by the writer's transport, for all it said until now
  bool committed = false;        // SendCommit was called
  bool failed = false;           // the owner was told that its writer did
  bool damaged = false;          // bytes landed that are not the writer's
};

struct WriteFacts {
  kv::GrantKey key;
  uint32_t layer = 0;
  std::vector<kv::WritePiece> pieces;
};

struct Book {
  static constexpr size_t kClosedMax = 20000;

  absl::btree_map<LifeId, LifeFacts> lives;
  absl::btree_map<kv::GrantKey, GrantFacts> grants;
  // Per owner life: its unsettled generations, and which of them a block is under.
  absl::btree_map<LifeId, absl::btree_set<Generation>> unsettled;
  absl::btree_map<LifeId, absl::btree_map<BlockIndex, Generation>> under;
  // Per writer life: the role loop's writes that are not done.
  absl::btree_map<LifeId, absl::btree_map<kv::WriteId, WriteFacts>> writes;
  std::deque<kv::GrantKey> closed;

  GrantFacts* Find(const kv::GrantKey& key) {
    const auto it = grants.find(key);
    return it == grants.end() ? nullptr : &it->second;
  }
  const GrantFacts* Find(const kv::GrantKey& key) const {
    const auto it = grants.find(key);
    return it == grants.end() ? nullptr : &it->second;
  }
  const LifeFacts& life(LifeId id) const { return lives.at(id); }
  // The generation that may still write the block, or nothing.
  const Generation* Under(LifeId owner, BlockIndex block) const {
    const auto of = under.find(owner);
    if (of == under.end()) return nullptr;
    const auto it = of->second.find(block);
    return it == of->second.end() ? nullptr : &it->second;
  }

  // ── entries, by the hub ───────────────────────────────────────────────────────────
  void Started(LifeId life, const kv::Hello& hello);
  void Gone(LifeId life);
  void Granted(LifeId life, const kv::Ticket& ticket);
  void Revoked(LifeId life, Generation generation);
  void Accepted(LifeId life, const kv::Ticket& ticket);
  void Wrote(LifeId life, kv::WriteId id, WriteFacts write);
  void Committed(const kv::Commit& commit);
  void Told(LifeId life, const kv::TransportEvent& event);
  void Posted(const kv::DataWrite& write, char path, bool fences);
  void WriteEnded(const kv::GrantKey& key);
  void Landed(const kv::GrantKey& key, uint64_t target_offset, uint64_t bytes);
  void Damaged(const kv::GrantKey& key);

 private:
  void Close(const kv::GrantKey& key);
};

}  // namespace baton::sim
