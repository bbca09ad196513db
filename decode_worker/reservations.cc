// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Open → landed, or open → quarantined → quiet; the caps count both.
#include "decode_worker/reservations.h"

#include <algorithm>
#include <utility>

#include "base/ensure.h"

namespace baton::decode {

Reservations::Reservations(engine::BlockPool& pool, uint32_t writer_blocks_max)
    : pool_(pool),
      blocks_max_(pool.size() / 2),
      writer_blocks_max_(std::min(writer_blocks_max, blocks_max_)) {}

uint32_t Reservations::blocks_of(const std::string& writer) const {
  const auto found = writer_blocks_.find(writer);
  return found == writer_blocks_.end() ? 0 : found->second;
}

bool Reservations::WriterFits(const std::string& writer, uint32_t count) const {
  return blocks_of(writer) + count <= writer_blocks_max_;
}

bool Reservations::PoolFits(uint32_t count) const { return blocks_ + count <= blocks_max_; }

Generation Reservations::Open(uint64_t attempt, const WorkerRef& writer,
                              std::vector<BlockIndex> blocks) {
  const auto count = static_cast<uint32_t>(blocks.size());
  ENSURE(count > 0 && WriterFits(writer.worker, count) && PoolFits(count));
  pool_.Reserve(blocks);
  const Generation generation(next_generation_++);
  grants_[generation] = {attempt, writer, std::move(blocks), /*quarantined=*/false};
  writer_blocks_[writer.worker] += count;
  blocks_ += count;
  ++open_;
  return generation;
}

const Reservations::Grant* Reservations::Find(Generation generation) const {
  const auto found = grants_.find(generation);
  if (found == grants_.end() || found->second.quarantined) return nullptr;
  return &found->second;
}

Reservations::Grant Reservations::Remove(Generation generation) {
  const auto found = grants_.find(generation);
  ENSURE(found != grants_.end());
  Grant grant = std::move(found->second);
  grants_.erase(found);
  const auto count = static_cast<uint32_t>(grant.blocks.size());
  const auto writer = writer_blocks_.find(grant.writer.worker);
  ENSURE(writer != writer_blocks_.end() && writer->second >= count && blocks_ >= count);
  blocks_ -= count;
  writer->second -= count;
  if (writer->second == 0) writer_blocks_.erase(writer);
  return grant;
}

std::vector<BlockIndex> Reservations::Land(Generation generation) {
  Grant grant = Remove(generation);
  ENSURE(!grant.quarantined && open_ > 0);
  --open_;
  pool_.Land(grant.blocks);
  return std::move(grant.blocks);
}

void Reservations::Revoke(Generation generation) {
  Grant& grant = grants_.at(generation);
  ENSURE(!grant.quarantined && open_ > 0);
  grant.quarantined = true;
  --open_;
  pool_.Quarantine(grant.blocks);
}

bool Reservations::Quiet(Generation generation) {
  const auto found = grants_.find(generation);
  if (found == grants_.end() || !found->second.quarantined) return false;
  const Grant grant = Remove(generation);
  pool_.Quiet(grant.blocks);
  return true;
}

std::vector<uint64_t> Reservations::AttemptsOf(Incarnation writer) const {
  std::vector<uint64_t> attempts;
  for (const auto& [generation, grant] : grants_) {
    if (!grant.quarantined && grant.writer.incarnation == writer) {
      attempts.push_back(grant.attempt);
    }
  }
  return attempts;
}

}  // namespace baton::decode
