// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A worker process in virtual time: the production worker over a simulated engine, transport
// and network, in one life after another.
//
// A crash destroys the worker, its engine and its pool at once; a restart is another process.
// Whatever its peers still write or say is the fabric's and the net's business.
//
// Thread:     one.  Ownership: fabric, net, queue and log are borrowed and outlive it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decode_worker/decode_worker.h"
#include "prefill_worker/prefill_worker.h"
#include "router/worker_client.h"
#include "sim/checkers/checkers.h"
#include "sim/event_log.h"
#include "sim/hash_engine.h"
#include "sim/role_loop.h"
#include "sim/sim_transport.h"
#include "sim/sim_worker_client.h"

namespace baton::sim {

// What all processes of a cluster share.
struct World {
  EventQueue& queue;
  Random& random;
  SimFabric& fabric;
  CallNet& net;
  EventLog& log;
  Checkers& checkers;
};

struct WorkerSetup {
  std::string name;
  Role role = Role::kDecode;
  router::WorkerIndex index;     // in the front ends' list
  SimFabric::Index process = 0;  // in the fabric
  engine::KvLayout layout;
  HashEngineOptions engine;
  prefill::Options prefill;
  decode::Options decode;
};

class WorkerProcess {
 public:
  // The fabric has the process already; its first life starts now.
  WorkerProcess(const WorkerSetup& setup, World world);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  void Crash();    // kill -9.  REQUIRES: alive
  void Restart();  // REQUIRES: not alive
  // Later lives are of another build, model, layout or numeric class: no peer of the usual kind
  // may pair with them (K6).  kNone: as configured again.
  enum class Misfit : uint8_t { kNone, kProtocol, kModel, kLayout, kNumerics };
  void SetMisfit(Misfit misfit);
  void SetStopped(bool stop);             // SIGSTOP, SIGCONT.  REQUIRES: alive
  void Drain();                           // SIGTERM; it exits by itself.  REQUIRES: alive
  void SetWedged(bool wedged);            // its loop stands still, the rest of it goes on
  void SetSlow(absl::Duration late_max);  // REQUIRES: alive
  // One that is not a member has left, or not joined yet, and is not expected to run.
  void SetMember(bool member) { member_ = member; }

  bool alive() const { return life_ != nullptr; }
  size_t lives() const { return dead_.size(); }  // earlier ones
  bool stopped() const { return alive() && stopped_; }
  bool wedged() const { return alive() && wedged_; }
  bool member() const { return member_; }
  Misfit misfit() const { return misfit_; }
  absl::Time LocalTime() const {
    return world_.fabric.clock(setup_.process).Local(world_.queue.Now());
  }
  const std::string& name() const { return setup_.name; }
  Role role() const { return setup_.role; }
  router::WorkerIndex index() const { return setup_.index; }
  SimFabric::Index process() const { return setup_.process; }

  // REQUIRES: alive.
  WorkerStatus Status() const;
  engine::BlockCounts blocks() const;
  prefill::Metrics prefill_metrics() const;  // of a prefill
  decode::Metrics decode_metrics() const;    // of a decode
  size_t grants() const;                     // open or quarantined, by the checker's account

 private:
  struct Life;

  void Start();
  void End(bool abrupt);
  bool Tick(Life& life);
  ClientNumber ClientOf(Life& life, const WorkerInput& input);
  void Deliver(Life& life, WorkerInput input);

  const WorkerSetup usual_;
  WorkerSetup setup_;  // of this life
  World world_;
  std::unique_ptr<Life> life_;
  bool stopped_ = false;
  bool wedged_ = false;
  bool member_ = true;
  Misfit misfit_ = Misfit::kNone;
  std::vector<std::unique_ptr<Life>> dead_;  // events may still name their loops
};

}  // namespace baton::sim
