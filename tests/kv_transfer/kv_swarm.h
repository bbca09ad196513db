// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Two writers push to two owners while everything fails at random; then nothing fails any more
// and everything must end.  All from one seed.
//
// The role loops are as small as the contract allows: an owner gives a block to one grant at a
// time and reuses it as soon as it is told that it may; bytes of a committed push must be the
// writer's; tickets come now, late, or twice.  A stranger, which differs in one thing that must
// agree, knocks all the time.  In some runs writers have K and V rows side by side, owners apart:
// then all is converted.  Every checker that watches transports is on (sim/checkers/).
// Thread: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/random.h"
#include "sim/checkers/checkers.h"
#include "sim/sim_transport.h"

namespace baton::sim {

class KvSwarm {
 public:
  explicit KvSwarm(uint64_t seed);
  void Run();
  const std::vector<std::string>& violations() const { return log_.violations(); }
  const EventLog& log() const { return log_; }

  uint64_t commits = 0, quiets = 0, reborn = 0, dead = 0, damaged = 0;

 private:
  static constexpr uint32_t kBlocks = 6, kLayers = 2;

  // One push, as both role loops know it.
  struct Job {
    kv::Ticket ticket;
    SimFabric::Index writer = 0;
    bool accepted = false, over = false;  // at the writer
    bool revoked = false;                 // at the owner
    uint32_t writes = 0;                  // done with OK
    BlockIndex source = 0;
  };
  struct OwnerLoop {
    SimFabric::Index index = 0;
    uint64_t last_generation = 0;
    absl::btree_map<Incarnation, SimFabric::Index> peers;  // up
    absl::btree_map<Generation, Job> jobs;                 // open or revoked
    std::vector<bool> taken = std::vector<bool>(kBlocks, false);
  };
  struct WriterLoop {
    SimFabric::Index index = 0;
    absl::btree_map<kv::GrantKey, Job> jobs;
    absl::btree_map<kv::WriteId, kv::GrantKey> writes;
    absl::btree_map<BlockIndex, uint32_t> pins;  // writes that read a source block
    std::vector<kv::Ticket> late;                // delivered again, or after their time
    uint64_t last_write = 0;
  };

  static kv::Layout Pool();  // of owners
  kv::Layout WriterPool() const;
  static SimNetOptions Net(Random& random);
  SimProcessConfig Config(const char* worker, Role role) const;
  SimProcessConfig Stranger();

  // ── faults ────────────────────────────────────────────────────────────────────────
  void Fail();
  void Stop(SimFabric::Index process);
  void Crash(SimFabric::Index process);
  void Mend(SimFabric::Index process);
  bool Runs(SimFabric::Index process) const;

  // ── the role loops ────────────────────────────────────────────────────────────────
  void Loops(bool start);
  void OwnerTick(OwnerLoop& owner, bool start);
  void OwnerHears(OwnerLoop& owner, const kv::TransportEvent& event);
  void Grant(OwnerLoop& owner);
  void Revoke(OwnerLoop& owner, Job& job);
  void Free(OwnerLoop& owner, Generation generation);
  static uint8_t ByteOf(const kv::Ticket& ticket, uint32_t layer, uint64_t i);
  void CheckBytes(const OwnerLoop& owner, Generation generation);
  void WriterTick(WriterLoop& writer);
  void OnWriteDone(WriterLoop& writer, const kv::WriteDone& done);
  void Deliver(WriterLoop& writer);
  std::optional<BlockIndex> FreeSource(const WriterLoop& writer) const;
  void Push(WriterLoop& writer, const Job& job);
  // What the block at `at` must hold so that an owner gets the job's bytes.
  void Fill(uint8_t* at, const kv::Ticket& ticket, uint32_t layer) const;
  static kv::Commit CommitOf(const kv::Ticket& ticket);
  void CheckIdle();

  const bool converts_;
  Random random_;
  EventQueue queue_;
  EventLog log_;
  Checkers checkers_;
  SimFabric fabric_;
  OwnerLoop owners_[2];
  WriterLoop writers_[2];
  uint64_t last_request_ = 0;
};

}  // namespace baton::sim
