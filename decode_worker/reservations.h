// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which blocks peers may write: open tickets, and what was taken back but is not yet quiet.
//
// Bounds (K5): open tickets and quarantine together take at most half the pool, and at most
// blocks_max of one writer, whatever incarnations it went through (rule 14).  So no writer,
// however it fails, can take away more than its share, and running sequences keep half.
//
// Thread: one owner.  Ownership: the pool is borrowed; the blocks of an open ticket belong to
// its attempt, those in quarantine to the peer that may still write them (K9).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/messages.h"
#include "engine/block_pool.h"

namespace baton::decode {

class Reservations {
 public:
  // One granted ticket.
  struct Grant {
    uint64_t attempt = 0;  // the worker's key
    WorkerRef writer;
    std::vector<BlockIndex> blocks;
    bool quarantined = false;
  };

  // `writer_blocks_max` is capped by half the pool.
  Reservations(engine::BlockPool& pool, uint32_t writer_blocks_max);

  Reservations(const Reservations&) = delete;
  Reservations& operator=(const Reservations&) = delete;

  // Whether `count` blocks could ever be under one ticket.
  bool EverFits(uint32_t count) const { return count <= writer_blocks_max_; }
  // Whether the writer's own cap leaves room for `count` more, now.
  bool WriterFits(const std::string& writer, uint32_t count) const;
  // Whether the cap of all tickets together does.
  bool PoolFits(uint32_t count) const;

  // Opens a ticket over `blocks`, which become reserved.  Generations count from 1.
  // REQUIRES: both caps leave room.
  Generation Open(uint64_t attempt, const WorkerRef& writer, std::vector<BlockIndex> blocks);
  // The open ticket of this generation, or nothing.
  const Grant* Find(Generation generation) const;
  // Its Commit arrived: the blocks are used, and the attempt's own.
  std::vector<BlockIndex> Land(Generation generation);
  // It was taken back: the blocks are quarantined.
  void Revoke(Generation generation);
  // Nothing can land any more: the blocks are free.  False if no such quarantine exists.
  bool Quiet(Generation generation);

  // Attempts with an open ticket for this incarnation of a writer, oldest generation first.
  std::vector<uint64_t> AttemptsOf(Incarnation writer) const;
  uint32_t open() const { return open_; }
  uint32_t quarantined() const { return static_cast<uint32_t>(grants_.size()) - open_; }
  uint32_t blocks() const { return blocks_; }  // of all grants
  uint32_t blocks_of(const std::string& writer) const;

 private:
  Grant Remove(Generation generation);

  engine::BlockPool& pool_;
  const uint32_t blocks_max_;
  const uint32_t writer_blocks_max_;
  absl::btree_map<Generation, Grant> grants_;
  absl::btree_map<std::string, uint32_t> writer_blocks_;
  uint64_t next_generation_ = 1;
  uint32_t blocks_ = 0;
  uint32_t open_ = 0;
};

}  // namespace baton::decode
