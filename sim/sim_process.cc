// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A life: calls go straight into its core; what the core asks goes to the fabric.
#include "sim/sim_process.h"

#include <utility>

#include "base/ensure.h"
#include "sim/checkers/checkers.h"

namespace baton::sim {
namespace {

uint64_t MemoryBytes(const kv::Hello& hello, const SimProcessConfig& config) {
  if (hello.role == Role::kDecode) return hello.layout.pool_bytes();
  return kv::WriterCore::MemoryBytes(config.writer, hello.layout, config.owners);
}

}  // namespace

SimProcess::SimProcess(SimFabric& fabric_in, SimFabric::Index index_in, LifeId id_in,
                       const kv::Hello& hello, uint64_t seed)
    : fabric(fabric_in),
      index(index_in),
      id(id_in),
      process(hello.process),
      host(hello.host),
      pool(MemoryBytes(hello, fabric.configs_[index])) {
  const SimProcessConfig& config = fabric.configs_[index];
  if (hello.role == Role::kDecode) {
    owner = std::make_unique<kv::OwnerCore>(config.owner, hello, pool, *this);
  } else {
    writer =
        std::make_unique<kv::WriterCore>(config.writer, hello, seed, absl::MakeSpan(pool), *this);
  }
}

kv::LinkCore& SimProcess::core() const {
  if (owner != nullptr) return *owner;
  ENSURE(writer != nullptr);
  return *writer;
}

void SimProcess::Grant(const kv::Ticket& ticket) {
  ENSURE(alive && owner != nullptr);
  if (fabric.checkers_ != nullptr) fabric.checkers_->Granted(id, ticket);
  owner->Grant(ticket);
  RingIfNews();
}

void SimProcess::Revoke(Generation generation) {
  ENSURE(alive && owner != nullptr);
  if (fabric.checkers_ != nullptr) fabric.checkers_->Revoked(id, generation);
  filter_.Revoked(generation);
  owner->Revoke(generation);
  RingIfNews();
}

void SimProcess::Accept(const kv::Ticket& ticket) {
  ENSURE(alive && writer != nullptr);
  if (fabric.checkers_ != nullptr) fabric.checkers_->Accepted(id, ticket);
  writer->Accept(ticket);
  RingIfNews();
}

void SimProcess::Write(kv::WriteId write, kv::GrantKey key, uint32_t layer,
                       absl::Span<const kv::WritePiece> pieces) {
  ENSURE(alive && writer != nullptr);
  if (fabric.checkers_ != nullptr) fabric.checkers_->Wrote(id, write, key, layer, pieces);
  writer->Write(write, key, layer, pieces);
  RingIfNews();
}

void SimProcess::SendCommit(const kv::Commit& commit) {
  ENSURE(alive && writer != nullptr);
  if (fabric.checkers_ != nullptr) fabric.checkers_->Committed(id, commit);
  writer->SendCommit(commit);
}

void SimProcess::Abandon(kv::GrantKey key, const absl::Status& why) {
  ENSURE(alive && writer != nullptr);
  writer->Abandon(key, why);
  RingIfNews();
}

void SimProcess::Poll(std::vector<kv::TransportEvent>& events) {
  ENSURE(alive);
  ++polls_;
  rung_ = false;
  std::vector<kv::TransportEvent> all;
  core().Poll(all);
  for (kv::TransportEvent& event : all) {
    if (!filter_.Passes(event)) continue;
    if (const auto* quiet = std::get_if<kv::Quiet>(&event)) settled_.insert(quiet->generation);
    if (const auto* commit = std::get_if<kv::CommitArrived>(&event)) {
      settled_.insert(commit->commit.key.generation);
    }
    if (fabric.checkers_ != nullptr) fabric.checkers_->Told(id, event);
    events.push_back(std::move(event));
  }
}

void SimProcess::Landing(const kv::GrantKey& key, uint64_t target_offset, uint64_t bytes) const {
  if (fabric.checkers_ != nullptr) {
    fabric.checkers_->Landed(key, target_offset, bytes);
  } else {
    ENSURE(!settled_.contains(key.generation));
  }
}

void SimProcess::RingIfNews() {
  if (rung_ || !core().has_events()) return;
  rung_ = true;
  fabric.queue_.After(absl::ZeroDuration(), [this] {
    fabric.As(this, [this] {
      if (on_news && core().has_events()) on_news();
    });
  });
}

void SimProcess::Send(kv::LinkId link, std::vector<uint8_t> frame) {
  fabric.Send(this, link, std::move(frame));
}
void SimProcess::Close(kv::LinkId link, const absl::Status&) { fabric.Close(this, link); }
void SimProcess::Prepare(kv::LinkId link, const kv::Hello&) { fabric.Prepare(this, link); }
void SimProcess::Post(kv::LinkId link, kv::DataWrite write) {
  fabric.Post(this, link, std::move(write));
}

}  // namespace baton::sim
