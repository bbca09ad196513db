// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K2: a block that any process might still write is never free.
//
// The role loop may give a block away only after its transport told Quiet, and what lands after
// that is a lie of the transport.  Cost: per ticket a look at each of its blocks.
#pragma once

#include "sim/checkers/book.h"
#include "sim/event_log.h"

namespace baton::sim {

class K2Quarantine {
 public:
  K2Quarantine(const Book& book, EventLog& log) : book_(book), log_(log) {}

  // No block of the ticket is under another grant that is not settled.
  void Granted(LifeId owner, const kv::Ticket& ticket);
  // A step reads or writes the block.
  void Used(LifeId owner, BlockIndex block);
  // Quiet: no posted write of that generation may be out where nothing else fences it.
  void Told(LifeId owner, const kv::TransportEvent& event);
  // Bytes arrive in the pool.
  void Landed(const kv::GrantKey& key);
  // Rule 4: a writer changes its incarnation only when nothing of it is out.
  void Reborn(LifeId writer);

 private:
  const Book& book_;
  EventLog& log_;
};

}  // namespace baton::sim
