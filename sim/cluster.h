// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A whole cluster in virtual time: front ends, prefill and decode workers, one thread, one seed.
//
// The code that runs is production's; simulated are time, chance, the engine, the transport's
// wires and the calls to workers.  Every checker is always on; what they find is in
// violations().  Two clusters with the same options and the same calls write the same log.
//
// Thread: one.  Ownership: owns everything; replies live as long as the cluster.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/random.h"
#include "router/dispatcher.h"
#include "sim/event_log.h"
#include "sim/frontend_process.h"
#include "sim/request_checker.h"
#include "sim/sim_transport.h"
#include "sim/sim_worker_client.h"
#include "sim/worker_process.h"

namespace baton::sim {

// A process by its role ('f', 'p', 'd') and its place among those: "p0".
struct Party {
  char role = 'd';
  uint32_t index = 0;
  bool operator==(const Party&) const = default;
};

struct ClusterOptions {
  uint32_t frontends = 1, prefill = 1, decode = 1;
  uint64_t seed = 1;
  uint32_t prefill_blocks = 64, decode_blocks = 64;
  uint32_t layers = 2;
  bool kv_scales = false;      // rows of KV have a scale, as int8 has
  bool converts = false;       // prefill pools have their rows in another order than decode's
  char path = 'A';             // of every pair
  bool close_fences = false;   // of path A, as on rc
  bool several_hosts = false;  // REQUIRES: path B or close_fences
  uint32_t check_one_in = 1;   // pushes that have sums; others need links that damage nothing
  HashEngineOptions engine;
  router::Dispatcher::Options router;
  prefill::Options prefill_options;
  decode::Options decode_options;
  SimNetOptions links;
  CallOptions calls;
  ClockOptions clocks;

  ClusterOptions();
  uint32_t count(char role) const {
    return role == 'f' ? frontends : role == 'p' ? prefill : decode;
  }
};

// What a client asks, and what it does then.
struct Ask {
  uint32_t prompt_tokens = 40;
  uint32_t new_tokens = 8;
  uint32_t frontend = 0;
  uint64_t content = 0;  // requests with equal content have equal prompts as far as they go,
  uint32_t shared_tokens = UINT32_MAX;  // or in so many leading tokens
  std::vector<TokenId> history;         // the prompt begins with it
  uint32_t choices = 1;                 // answers to the one prompt
  float temperature = 1;
  uint32_t stop_ids = 0;  // ids below it end the answer
  absl::Duration deadline = absl::Seconds(60);
  absl::Duration cancel_after = absl::InfiniteDuration();  // since it was submitted
  uint32_t cancel_at = 0;                                  // in this many tokens; 0: not
  uint32_t complete_at = 0;    // a stop string is found in this many tokens; 0: none is
  absl::Duration reads_every;  // takes so long over a token; once kUnreadMax wait it is cancelled
  bool operator==(const Ask&) const = default;
};

class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // ── time ──────────────────────────────────────────────────────────────────────────
  void Run(absl::Duration span) { queue_.RunFor(span); }
  // Until `done`; false if it does not come within `limit`.
  template <typename Done>
  bool Until(Done done, absl::Duration limit = absl::Seconds(60)) {
    return queue_.RunUntilDone(done, limit);
  }
  // Until all links and calls are up: every pair can be used.
  bool Ready();
  // Until every request is over and nothing is owned by anyone (K9); false if that does not
  // come, and then a violation says what is left.
  bool Settle();
  absl::Time now() const { return queue_.Now(); }

  // ── clients ───────────────────────────────────────────────────────────────────────
  static constexpr uint32_t kUnreadMax = 32;
  // The first choice's reply; the others follow it in replies().
  Reply& Submit(const Ask& ask = {});
  void Cancel(Reply& reply);
  void Complete(Reply& reply);
  const std::vector<OutputToken>& Expected(const Reply& reply) { return checker_.Expected(reply); }
  std::deque<Reply>& replies() { return replies_; }

  // ── processes and wires ───────────────────────────────────────────────────────────
  FrontendProcess& frontend(uint32_t i) { return *frontends_.at(i); }
  WorkerProcess& prefill(uint32_t i) { return *workers_.at(i); }
  WorkerProcess& decode(uint32_t i) { return *workers_.at(options_.prefill + i); }
  WorkerProcess& worker(Party p) { return p.role == 'p' ? prefill(p.index) : decode(p.index); }
  WorkerProcess& worker(uint32_t i) { return *workers_.at(i); }  // prefills, then decodes
  size_t workers() const { return workers_.size(); }
  size_t frontends() const { return frontends_.size(); }
  SimFabric& fabric() { return fabric_; }
  CallNet& net() { return net_; }
  EventLog& log() { return log_; }
  Random& random() { return random_; }
  const ClusterOptions& options() const { return options_; }
  EventQueue& queue() { return queue_; }
  Checkers& checkers() { return checkers_; }

  const std::vector<std::string>& violations() const { return log_.violations(); }
  // What someone still owns, in words; empty if nothing.
  std::string Owned() const;

 private:
  void Watch();
  bool Together() const;
  Reply& SubmitOne(const Ask& ask, uint64_t asked, uint32_t choice);
  void Behave(Reply& reply, const Ask& ask);
  void OnToken(Reply& reply, const Ask& ask);

  const ClusterOptions options_;
  EventQueue queue_;
  Random random_;
  EventLog log_;
  RequestChecker checker_;
  Checkers checkers_;
  SimFabric fabric_;
  CallNet net_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;
  std::vector<std::unique_ptr<FrontendProcess>> frontends_;
  std::deque<Reply> replies_;
  size_t first_open_ = 0;  // replies before it are done
  uint64_t clients_ = 0;
};

}  // namespace baton::sim
