// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A front end process in virtual time: the production dispatcher, and the edge behind it.
//
// The edge is reduced to what the dispatcher sees of it: it submits, cancels, completes, and
// hands what it is told to the request checker.  A crash loses every request of that life.
//
// Thread: one.  Ownership: the world is borrowed; replies belong to the cluster.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "router/dispatcher.h"
#include "sim/request_checker.h"
#include "sim/role_loop.h"
#include "sim/worker_process.h"

namespace baton::sim {

struct FrontendSetup {
  std::string name;
  uint32_t index = 0;
  router::Dispatcher::Options router;
  ClockOptions clocks;
  std::vector<router::WorkerSpec> workers;
};

class FrontendProcess {
 public:
  FrontendProcess(const FrontendSetup& setup, World world, RequestChecker& checker);
  ~FrontendProcess();
  FrontendProcess(const FrontendProcess&) = delete;
  FrontendProcess& operator=(const FrontendProcess&) = delete;

  // REQUIRES: alive, for all of these.
  void Submit(Reply& reply);
  void Cancel(const Reply& reply);
  void Complete(Reply& reply);
  void Crash();
  void SetStopped(bool stop);
  void Drain();  // SIGTERM; it exits by itself
  void SetSlow(absl::Duration late_max);

  void Restart();  // REQUIRES: not alive

  bool alive() const { return life_ != nullptr; }
  size_t lives() const { return dead_.size(); }  // earlier ones
  bool stopped() const { return alive() && stopped_; }
  bool draining() const { return alive() && draining_; }
  absl::Time LocalTime() const { return clock_.Local(world_.queue.Now()); }
  bool idle() const;                  // true while not alive
  router::Snapshot snapshot() const;  // REQUIRES: alive
  SimWorkerClient& calls();           // REQUIRES: alive

 private:
  struct Life;
  void Start();
  bool Tick();
  void Input(router::ClientInput input);

  const FrontendSetup setup_;
  World world_;
  RequestChecker& checker_;
  std::unique_ptr<Life> life_;
  bool stopped_ = false;
  bool draining_ = false;
  SkewedClock clock_;                        // of this life
  std::vector<std::unique_ptr<Life>> dead_;  // events may still name their loops
  absl::btree_map<router::ClientKey, Reply*> open_;
};

}  // namespace baton::sim
