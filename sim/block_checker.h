// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Watches a decode worker at its two seams and finds blocks that are used wrongly.
//
// It keeps its own account of what is granted and quarantined, from the calls alone:
//   K1  a block is under one ticket at a time; nobody writes a block that another slice of the
//       step reads beyond what is immutable;
//   K2  a block under an open or quarantined ticket is in no step, and in no later ticket;
//   K3  a step reads no block whose Commit has not arrived;
//   K7  no ticket for a writer that was declared dead, and no link to it.
// The decorators forward everything.  Thread: one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "engine/engine.h"
#include "kv_transfer/transport.h"
#include "sim/event_log.h"

namespace baton::sim {

class BlockChecker {
 public:
  BlockChecker(std::string who, EventLog& log) : who_(std::move(who)), log_(log) {}

  void Granted(const kv::Ticket& ticket);
  void Revoked(Generation generation);
  void Committed(Generation generation);
  void Quiet(Generation generation);
  void Stepped(const engine::Step& step);
  void PeerDead(Incarnation writer) { dead_.insert(writer); }
  void PeerUp(const WorkerRef& writer);

  size_t open() const { return grants_.size(); }  // granted or quarantined

 private:
  struct Grant {
    std::vector<BlockIndex> blocks;
    bool revoked = false;
  };
  void Drop(Generation generation, bool quiet);

  const std::string who_;
  EventLog& log_;
  absl::btree_map<Generation, Grant> grants_;
  absl::btree_map<BlockIndex, Generation> under_;  // blocks that a peer may write
  absl::btree_set<Incarnation> dead_;              // writers
  Generation last_;
};

class CheckedOwner final : public kv::OwnerTransport {
 public:
  CheckedOwner(std::string who, kv::OwnerTransport& real, BlockChecker& checker, EventLog& log)
      : who_(std::move(who)), real_(real), checker_(checker), log_(log) {}
  void Grant(const kv::Ticket& ticket) override;
  void Revoke(Generation generation) override;
  void Poll(std::vector<kv::TransportEvent>& events) override;

 private:
  const std::string who_;
  kv::OwnerTransport& real_;
  BlockChecker& checker_;
  EventLog& log_;
};

class CheckedEngine final : public engine::Engine {
 public:
  CheckedEngine(engine::Engine& real, BlockChecker& checker) : real_(real), checker_(checker) {}
  const engine::EngineInfo& info() const override { return real_.info(); }
  void Submit(engine::Step step) override;
  void Poll(std::vector<engine::Event>& events) override { real_.Poll(events); }

 private:
  engine::Engine& real_;
  BlockChecker& checker_;
};

}  // namespace baton::sim
