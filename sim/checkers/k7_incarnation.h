// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K7: a restarted process has a new incarnation; nothing of the old one is used again, and one
// that was declared dead gets no ticket any more.  A peer is given up when it was silent for 2 s,
// and not before.
//
// Cost: one look-up per ticket, link and posted write; now and then one per link.
#pragma once

#include "sim/checkers/book.h"
#include "sim/event_log.h"

namespace baton::sim {

class K7Incarnation {
 public:
  K7Incarnation(const Book& book, EventLog& log) : book_(book), log_(log) {}

  void Started(Incarnation incarnation) { New(incarnation, "starts"); }
  // A worker's own name for its life is its transport's.
  void Self(LifeId life, const WorkerRef& self);
  void Told(LifeId life, const kv::TransportEvent& event);
  // It takes an attempt that is for `decode`.
  void Reserved(LifeId life, Incarnation decode);
  void Granted(LifeId owner, const kv::Ticket& ticket);
  // A frame of the peer reaches it.
  void Arrived(LifeId at, LifeId from, absl::Time now) { heard_[{at, from}] = now; }
  // It stood still until now, and could hear nobody.
  void Resumed(LifeId life, absl::Time now) { resumed_[life] = now; }
  // After its role loop took its events in: no link is up whose other end is silent.
  void CheckSilence(LifeId life);
  // It ends its link to the peer, perhaps because that was silent; its role loop may be told
  // much later, when the peer speaks again.
  void Ended(LifeId at, LifeId peer, absl::Time now);
  // A write leaves for the process at the other end of its link.
  void Posted(LifeId writer, LifeId owner, const kv::DataWrite& write);

 private:
  void New(Incarnation incarnation, const char* how);

  const Book& book_;
  EventLog& log_;
  // A silent peer is dead after 2 s, a merely broken link is not.
  void CheckDead(const LifeFacts& facts, Incarnation peer);

  absl::btree_set<Incarnation> seen_;
  absl::btree_map<std::pair<LifeId, LifeId>, absl::Time> heard_;
  absl::btree_map<LifeId, absl::Time> resumed_;
  // The longest as a link ended, since the last that the role loop was told to be dead.
  absl::btree_map<std::pair<LifeId, LifeId>, absl::Duration> silence_;
};

}  // namespace baton::sim
