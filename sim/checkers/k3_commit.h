// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K3: a sequence runs only when the Commit of its own attempt, and all that it names, are visible.
//
// The truth is what the fabric has landed.  A writer may commit only when it was told that every
// piece is done; an owner may believe a Commit only when every byte is there; a step may touch a
// granted block only after the Commit.  What the fabric damaged is in no Commit.  Cost: per Commit
// one look at each piece.
#pragma once

#include "sim/checkers/book.h"
#include "sim/event_log.h"

namespace baton::sim {

class K3Commit {
 public:
  K3Commit(const Book& book, EventLog& log) : book_(book), log_(log) {}

  void Committed(LifeId writer, const kv::Commit& commit);
  void Told(LifeId owner, const kv::TransportEvent& event);
  void Used(LifeId owner, BlockIndex block);

 private:
  void Done(LifeId writer, const kv::WriteDone& done);

  const Book& book_;
  EventLog& log_;
};

}  // namespace baton::sim
