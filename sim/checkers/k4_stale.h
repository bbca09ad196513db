// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K4: a message that names no live (request, attempt, generation, incarnation) is dropped and
// counted.
//
// What a transport hands its role loop names something that is alive by the book; a write of a
// revoked or unknown generation passes no check of path B; and what a role loop counts as stale
// is what was.  Cost: one look-up per event.
#pragma once

#include "sim/checkers/book.h"
#include "sim/event_log.h"

namespace baton::sim {

class K4Stale {
 public:
  K4Stale(const Book& book, EventLog& log) : book_(book), log_(log) {}

  void Told(LifeId life, const kv::TransportEvent& event);
  // The owner's check of a message of path B said yes.
  void Permitted(LifeId owner, const kv::DataHeader& header);

 private:
  const Book& book_;
  EventLog& log_;
};

}  // namespace baton::sim
