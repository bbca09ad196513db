// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k6_pairing.h"

namespace baton::sim {

const char* K6Pairing::Differs(const LifeFacts& life, Incarnation peer, bool mixed) const {
  for (const auto& [id, other] : book_.lives) {
    if (other.incarnation != peer) continue;
    kv::Layout mine = life.hello.layout, theirs = other.hello.layout;
    mine.blocks = theirs.blocks = 0;
    if (conversion_) mine.kv_order = theirs.kv_order;
    if (life.hello.protocol != other.hello.protocol) return "protocol";
    if (life.hello.role == other.hello.role) return "role";
    if (life.hello.model_fingerprint != other.hello.model_fingerprint) return "model";
    if (mine != theirs) return "layout";
    if (!mixed && life.hello.numeric_class != other.hello.numeric_class) return "numeric class";
    return nullptr;
  }
  return nullptr;
}

void K6Pairing::Told(LifeId life, const kv::TransportEvent& event) {
  const auto* up = std::get_if<kv::PeerUp>(&event);
  if (up == nullptr) return;
  const LifeFacts& facts = book_.life(life);
  const Incarnation peer = up->peer.incarnation;
  if (const char* field = Differs(facts, peer, up->link.mixed_numerics)) {
    log_.Violation("K6: ", facts.name(), " pairs with ", up->peer.worker, ", whose ", field,
                   " differs");
    if (facts.refused.contains(peer)) {
      log_.Violation("refused: ", facts.name(), " pairs with ", up->peer.worker,
                     ", which it had refused");
    }
  }
}

void K6Pairing::Granted(LifeId owner, const kv::Ticket& ticket) {
  const LifeFacts& facts = book_.life(owner);
  if (facts.refused.contains(ticket.writer)) {
    log_.Violation("refused: ", facts.name(), " grants to a writer that it refused");
  }
  if (const char* field = Differs(facts, ticket.writer, true)) {
    log_.Violation("K6: ", facts.name(), " grants to a writer whose ", field, " differs");
  }
}

}  // namespace baton::sim
