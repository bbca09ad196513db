// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k5_bounds.h"

#include <algorithm>

namespace baton::sim {

void K5Bounds::Granted(LifeId owner, const kv::Ticket& ticket) {
  const LifeFacts& life = book_.life(owner);
  const uint32_t pool = life.hello.layout.blocks;
  const auto writer = life.links.find(ticket.writer);
  uint64_t all = ticket.blocks.size(), of_writer = ticket.blocks.size();
  size_t grants = 1, quarantined = 0;
  if (const auto it = book_.unsettled.find(owner); it != book_.unsettled.end()) {
    grants += it->second.size();
    for (const Generation generation : it->second) {
      const GrantFacts& grant = *book_.Find({life.incarnation, generation});
      all += grant.ticket.blocks.size();
      quarantined += grant.state == GrantState::kRevoked;
      if (writer != life.links.end() && grant.writer == writer->second.worker) {
        of_writer += grant.ticket.blocks.size();
      }
    }
  }
  if (grants > limits_.owner.grants_max) log_.Violation("K5: ", life.name(), " grants too many");
  if (!limits_.shares) return;
  if (grants > limits_.decode.sequences_max + quarantined) {
    log_.Violation("K5: ", life.name(), " has more than ", limits_.decode.sequences_max,
                   " tickets open");
  }
  if (all > pool / 2) {
    log_.Violation("K5: ", life.name(), " has ", all, " of ", pool,
                   " blocks under tickets and in quarantine");
  }
  const uint32_t option = limits_.decode.writer_blocks_max;
  const uint32_t cap = std::min(option > 0 ? option : std::max(1u, pool / 4), pool / 2);
  if (of_writer > cap) {
    log_.Violation("K5: ", life.name(), " has ", of_writer, " blocks that ",
                   writer == life.links.end() ? std::string("a stranger") : writer->second.worker,
                   " may write; its share is ", cap);
  }
}

void K5Bounds::Stepped(LifeId id, const engine::Step& step) {
  const LifeFacts& life = book_.life(id);
  const bool decode = life.hello.role == Role::kDecode;
  uint64_t tokens = 0, rows = 0;
  for (const engine::Slice& slice : step.slices) {
    tokens += slice.tokens.size();
    rows += slice.tokens.size() == 1;
  }
  // A decode gives every row its token, and the oldest prompt a block's worth.
  const uint64_t most =
      decode ? std::max<uint64_t>(limits_.decode.batch_tokens,
                                  rows + std::min(limits_.decode.batch_tokens, kBlockTokens))
             : limits_.prefill.chunk_tokens;
  if (tokens > most) {
    log_.Violation("K5: a step of ", life.name(), " has ", tokens, " tokens of ", most);
  }
  const uint32_t sequences = decode ? limits_.decode.sequences_max : limits_.prefill.sequences_max;
  if (step.slices.size() > sequences) {
    log_.Violation("K5: a step of ", life.name(), " has ", step.slices.size(), " sequences of ",
                   sequences);
  }
}

void K5Bounds::Posted(LifeId writer, kv::LinkId link, const kv::DataWrite& write) {
  Flow& flow = flows_[link];
  flow.bytes += write.bytes;
  ++flow.writes;
  if (flow.writes > limits_.writer.writes_in_flight_max ||
      (flow.writes > 1 && flow.bytes > limits_.writer.bytes_in_flight_max)) {
    log_.Violation("K5: ", book_.life(writer).name(), " has ", flow.writes, " writes and ",
                   flow.bytes, " bytes in flight on one link");
  }
}

void K5Bounds::WriteEnded(kv::LinkId link, uint64_t bytes) {
  const auto it = flows_.find(link);
  if (it == flows_.end()) return;
  it->second.bytes -= bytes;
  if (--it->second.writes == 0) flows_.erase(it);
}

void K5Bounds::Waiting(LifeId worker, Role role, size_t waiting, size_t preempted) {
  const size_t bound = role == Role::kDecode ? limits_.decode.queue_requests + preempted
                                             : limits_.prefill.queue_requests + 1;
  if (waiting <= bound) return;
  log_.Violation("K5: ", waiting, " wait at ", book_.life(worker).name(), "; its queue holds ",
                 bound);
}

}  // namespace baton::sim
