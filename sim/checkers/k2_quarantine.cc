// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k2_quarantine.h"

namespace baton::sim {

void K2Quarantine::Granted(LifeId owner, const kv::Ticket& ticket) {
  for (const BlockIndex block : ticket.blocks) {
    const Generation* other = book_.Under(owner, block);
    if (other == nullptr) continue;
    log_.Violation("K2: ", book_.life(owner).name(), " grants block ", block, " under ",
                   ticket.key.generation.value(), " while ", other->value(), " may still write it");
  }
}

void K2Quarantine::Used(LifeId owner, BlockIndex block) {
  const Generation* other = book_.Under(owner, block);
  if (other == nullptr) return;
  const GrantFacts* grant = book_.Find({book_.life(owner).incarnation, *other});
  if (grant == nullptr || grant->state != GrantState::kRevoked) return;  // open: K3's
  log_.Violation("K2: a step of ", book_.life(owner).name(), " uses block ", block,
                 ", which the revoked generation ", other->value(), " may still write");
}

void K2Quarantine::Told(LifeId owner, const kv::TransportEvent& event) {
  const auto* quiet = std::get_if<kv::Quiet>(&event);
  if (quiet == nullptr) return;
  const LifeFacts& life = book_.life(owner);
  const GrantFacts* grant = book_.Find({life.incarnation, quiet->generation});
  if (grant == nullptr || grant->state != GrantState::kRevoked) {
    log_.Violation("K2: ", life.name(), " is told Quiet of generation ", quiet->generation.value(),
                   ", which is not in quarantine");
    return;
  }
  if (grant->writes_out == 0 || grant->path != 'A' || grant->fences) return;
  for (const auto& [id, writer] : book_.lives) {
    if (!writer.alive || writer.incarnation != grant->ticket.writer) continue;
    log_.Violation("K2: ", life.name(), " is told Quiet of generation ", quiet->generation.value(),
                   " while ", writer.name(), " has ", grant->writes_out, " writes out under it");
  }
}

void K2Quarantine::Landed(const kv::GrantKey& key) {
  const GrantFacts* grant = book_.Find(key);
  if (grant != nullptr && grant->state != GrantState::kClosed) return;
  log_.Violation("K2: bytes land under generation ", key.generation.value(),
                 " after it was settled");
}

void K2Quarantine::Reborn(LifeId writer) {
  const LifeFacts& life = book_.life(writer);
  for (const auto& [key, grant] : book_.grants) {  // rare: costs all of them
    if (grant.ticket.writer != life.incarnation || grant.writes_out == 0) continue;
    log_.Violation("K2: ", life.name(), " takes a new incarnation while ", grant.writes_out,
                   " writes under generation ", key.generation.value(), " are out");
  }
}

}  // namespace baton::sim
