// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k4_stale.h"

#include <algorithm>

namespace baton::sim {

void K4Stale::Told(LifeId life, const kv::TransportEvent& event) {
  const LifeFacts& facts = book_.life(life);
  if (const auto* arrived = std::get_if<kv::CommitArrived>(&event)) {
    const kv::Commit& commit = arrived->commit;
    const GrantFacts* grant = book_.Find(commit.key);
    if (grant == nullptr || grant->owner != life || grant->state != GrantState::kOpen ||
        grant->ticket.writer != commit.writer || grant->ticket.attempt != commit.attempt) {
      log_.Violation("K4: ", facts.name(), " is told a Commit of generation ",
                     commit.key.generation.value(), ", which is not open");
    }
  } else if (const auto* failed = std::get_if<kv::WriterFailed>(&event)) {
    const GrantFacts* grant = book_.Find({facts.incarnation, failed->generation});
    if (grant == nullptr || grant->state != GrantState::kOpen) {
      log_.Violation("K4: ", facts.name(), " is told that the writer of generation ",
                     failed->generation.value(), " failed, which is not open");
    }
  }
}

void K4Stale::Permitted(LifeId owner, const kv::DataHeader& header) {
  const GrantFacts* grant = book_.Find(header.key);
  const bool live = grant != nullptr && grant->owner == owner &&
                    grant->state == GrantState::kOpen && grant->ticket.writer == header.writer &&
                    grant->ticket.attempt == header.attempt;
  if (!live) {
    log_.Violation("K4: a write under generation ", header.key.generation.value(),
                   " passes the check of ", book_.life(owner).name(), ", but it is not open");
    return;
  }
  const size_t blocks = grant->ticket.blocks.size();
  for (const uint32_t target : header.targets) {
    const size_t place = header.layer * blocks + target;
    if (target >= blocks || place >= grant->landed.size() || grant->landed[place] > 0) {
      log_.Violation("K4: a write under generation ", header.key.generation.value(),
                     " names a piece that the grant does not have, or that came before");
    }
  }
}

}  // namespace baton::sim
