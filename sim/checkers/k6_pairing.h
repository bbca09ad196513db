// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K6: peers pair only if all that must agree agrees; a refused pair stays refused.
//
// Compared are the hellos of the two processes as the fabric made them, not what one says of the
// other.  Cost: per link that comes up.
#pragma once

#include <utility>

#include "sim/checkers/book.h"
#include "sim/event_log.h"

namespace baton::sim {

class K6Pairing {
 public:
  K6Pairing(const Book& book, EventLog& log) : book_(book), log_(log) {}

  void AllowConversion() { conversion_ = true; }
  void Told(LifeId life, const kv::TransportEvent& event);
  // A ticket for a writer that the owner may not pair with.
  void Granted(LifeId owner, const kv::Ticket& ticket);

 private:
  // What differs, or nothing.
  const char* Differs(const LifeFacts& life, Incarnation peer, bool mixed_allowed) const;

  bool conversion_ = false;  // rows may be in another order
  const Book& book_;
  EventLog& log_;
};

}  // namespace baton::sim
