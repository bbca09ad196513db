// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One life of a simulated process: a core, a pool, and both views of the transport.
//
// Thread:     one.  Private to sim_transport*.cc; lives as long as its fabric.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/btree_set.h"
#include "kv_transfer/revoke_filter.h"
#include "sim/sim_transport.h"

namespace baton::sim {

class SimProcess final : public kv::OwnerTransport, public kv::WriterTransport, public kv::LinkIo {
 public:
  SimProcess(SimFabric& fabric, SimFabric::Index index, LifeId id, const kv::Hello& hello,
             uint64_t seed);

  // ── transport ─────────────────────────────────────────────────────────────────────
  void Grant(const kv::Ticket& ticket) override;
  void Revoke(Generation generation) override;
  void Accept(const kv::Ticket& ticket) override;
  void Write(kv::WriteId id, kv::GrantKey key, uint32_t layer,
             absl::Span<const kv::WritePiece> pieces) override;
  void SendCommit(const kv::Commit& commit) override;
  void Abandon(kv::GrantKey key, const absl::Status& why) override;
  void Poll(std::vector<kv::TransportEvent>& events) override;

  // ── of the core ───────────────────────────────────────────────────────────────────
  void Send(kv::LinkId link, std::vector<uint8_t> frame) override;
  void Close(kv::LinkId link, const absl::Status& why) override;
  void Prepare(kv::LinkId link, const kv::Hello& peer) override;
  void Post(kv::LinkId link, kv::DataWrite write) override;
  absl::Time Now() const override { return now(); }

  void RingIfNews();
  // Bytes reach this pool.  Unwatched, they abort if the generation is settled (K2).
  void Landing(const kv::GrantKey& key, uint64_t target_offset, uint64_t bytes) const;
  absl::Time now() const { return clock.Local(fabric.queue_.Now()); }
  kv::LinkCore& core() const;

  SimFabric& fabric;
  const SimFabric::Index index;
  const LifeId id;
  const kv::ProcessId process;
  const std::string host;
  std::vector<uint8_t> pool;  // of a writer that converts: and its staging area
  SkewedClock clock;
  std::unique_ptr<kv::OwnerCore> owner;
  std::unique_ptr<kv::WriterCore> writer;
  bool alive = true;
  bool paused = false;
  absl::Time gone = absl::InfiniteFuture();  // after a crash: nothing of it runs from here on
  std::vector<EventQueue::Action> held;      // while it is paused
  std::vector<SimProcess*> watched;          // pidfds: by whom our exit is seen
  absl::AnyInvocable<void()> on_news;

 private:
  kv::RevokeFilter filter_;
  absl::btree_set<Generation> settled_;
  uint64_t polls_ = 0;
  bool rung_ = false;  // since the last Poll

  friend class SimFabric;
};

}  // namespace baton::sim
