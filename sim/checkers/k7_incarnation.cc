// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k7_incarnation.h"

#include <algorithm>
#include <utility>

#include "base/lease.h"

namespace baton::sim {

void K7Incarnation::New(Incarnation incarnation, const char* how) {
  if (seen_.insert(incarnation).second) return;
  log_.Violation("K7: a process ", how, " as ", ToString(incarnation), ", which was used before");
}

void K7Incarnation::Self(LifeId life, const WorkerRef& self) {
  const LifeFacts& facts = book_.life(life);
  if (self.incarnation == facts.incarnation) return;
  log_.Violation("K7: ", facts.name(), " calls itself ", ToString(self.incarnation), ", but is ",
                 ToString(facts.incarnation));
}

void K7Incarnation::CheckDead(const LifeFacts& facts, Incarnation peer) {
  for (const auto& [id, other] : book_.lives) {
    if (other.incarnation != peer || !other.alive) continue;
    const absl::Duration silence = std::exchange(silence_[{facts.id, id}], absl::ZeroDuration());
    if (silence >= 0.9 * kDeadAfter) return;
    log_.Violation("K7: ", facts.name(), " declares ", other.name(), " dead, which was silent for ",
                   absl::FormatDuration(silence));
  }
}

void K7Incarnation::CheckSilence(LifeId life) {
  constexpr absl::Duration kSlack = absl::Milliseconds(200);  // clocks drift, transports tick
  const LifeFacts& facts = book_.life(life);
  const auto resumed = resumed_.find(life);
  for (auto it = heard_.lower_bound({life, 0}); it != heard_.end(); ++it) {
    if (it->first.first != life) break;
    const LifeFacts& other = book_.life(it->first.second);
    if (!facts.links.contains(other.incarnation)) continue;
    absl::Time since = it->second;
    if (resumed != resumed_.end()) since = std::max(since, resumed->second);
    if (log_.now() - since < kDeadAfter + kSlack) continue;
    log_.Violation("K7: ", facts.name(), " keeps its link to ", other.name(), ", silent for ",
                   absl::FormatDuration(log_.now() - since));
  }
}

void K7Incarnation::Ended(LifeId at, LifeId peer, absl::Time now) {
  const auto heard = heard_.find({at, peer});
  if (heard == heard_.end()) return;
  absl::Duration& silence = silence_[{at, peer}];
  silence = std::max(silence, now - heard->second);
}

void K7Incarnation::Told(LifeId life, const kv::TransportEvent& event) {
  const LifeFacts& facts = book_.life(life);
  if (const auto* up = std::get_if<kv::PeerUp>(&event)) {
    if (facts.dead.contains(up->peer.incarnation)) {
      log_.Violation("K7: ", facts.name(), " has a link to ", up->peer.worker,
                     ", whose incarnation it declared dead");
    }
  } else if (const auto* down = std::get_if<kv::PeerDown>(&event)) {
    if (down->declared_dead) CheckDead(facts, down->peer.incarnation);
  } else if (const auto* reborn = std::get_if<kv::Reborn>(&event)) {
    New(reborn->incarnation, "is reborn");
  }
}

void K7Incarnation::Reserved(LifeId life, Incarnation decode) {
  const LifeFacts& facts = book_.life(life);
  if (decode == facts.incarnation) return;
  log_.Violation("K7: ", facts.name(), " takes an attempt that is for another incarnation");
}

void K7Incarnation::Granted(LifeId owner, const kv::Ticket& ticket) {
  const LifeFacts& facts = book_.life(owner);
  if (facts.dead.contains(ticket.writer)) {
    log_.Violation("K7: ", facts.name(), " grants to an incarnation that it declared dead");
  } else if (!facts.links.contains(ticket.writer)) {
    log_.Violation("K7: ", facts.name(), " grants to an incarnation without a link");
  }
  if (ticket.key.owner != facts.incarnation) {
    log_.Violation("K7: ", facts.name(), " grants under another incarnation than its own");
  }
}

void K7Incarnation::Posted(LifeId writer, LifeId owner, const kv::DataWrite& write) {
  const LifeFacts& from = book_.life(writer);
  const LifeFacts& to = book_.life(owner);
  if (write.header.key.owner != to.hello.self.incarnation) {
    log_.Violation("K7: ", from.name(), " writes to ", to.name(),
                   " under a ticket of another incarnation");
  }
  if (write.header.writer != from.incarnation) {
    log_.Violation("K7: ", from.name(), " writes under a ticket of an incarnation it had before");
  }
  const GrantFacts* grant = book_.Find(write.header.key);
  if (grant != nullptr && write.header.writer != grant->ticket.writer) {
    log_.Violation("K7: ", from.name(), " writes under a ticket of another writer");
  }
}

}  // namespace baton::sim
