// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Every checker of the simulation, and the book that they read.
//
// The fabric, the workers' seams, the front ends' seams and the net tell this hub what happens;
// it asks the checkers, then enters it into the book.  A violation begins with the name of the
// checker that found it: K1 … K11, liveness, fairness, metrics, refused.
//
//   name      file                     seen at
//   K1        k1_ownership             engine steps, tickets, pushes
//   K2 … K4   k2_, k3_, k4_            transports, landing bytes, engine steps
//   K5        k5_bounds, attempts_     tickets, posted writes, queues, retries
//   K6, K7    k6_pairing, k7_          links, tickets, posted writes
//   K8, K9, K10   request_checker      what clients are told
//   K9        k9_ending, attempts_     leases, back-stops, open streams
//   K10       k10_index, attempts_     messages of workers, attempts of front ends
//   K11       k11_promise              frames on the wire
//   fairness, metrics, liveness, refused
//
// Cost: a few look-ups per event; what costs more is done every kFullEvery ticks of a life.
// Thread: one.  Ownership: the log is borrowed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "sim/checkers/attempts_checker.h"
#include "sim/checkers/book.h"
#include "sim/checkers/fairness_checker.h"
#include "sim/checkers/k10_index.h"
#include "sim/checkers/k11_promise.h"
#include "sim/checkers/k1_ownership.h"
#include "sim/checkers/k2_quarantine.h"
#include "sim/checkers/k3_commit.h"
#include "sim/checkers/k4_stale.h"
#include "sim/checkers/k5_bounds.h"
#include "sim/checkers/k6_pairing.h"
#include "sim/checkers/k7_incarnation.h"
#include "sim/checkers/k9_ending.h"
#include "sim/checkers/liveness_checker.h"
#include "sim/checkers/metrics_checker.h"
#include "sim/checkers/streams.h"
#include "sim/event_log.h"

namespace baton::sim {

class Checkers {
 public:
  static constexpr uint64_t kFullEvery = 100;  // ticks: some thousand events

  explicit Checkers(EventLog& log);
  Checkers(const Checkers&) = delete;
  Checkers& operator=(const Checkers&) = delete;
  void SetLimits(const K5Bounds::Limits& limits) { k5_.Set(limits); }
  // Of rows in another order; else layouts must agree.
  void AllowConversion() { k6_.AllowConversion(); }

  // ── the fabric ────────────────────────────────────────────────────────────────────
  void Started(LifeId life, const kv::Hello& hello);
  void Gone(LifeId life);
  void Framed(LifeId from, LifeId to, absl::Span<const uint8_t> frame);
  void FrameArrived(LifeId at, LifeId from, absl::Time now) { k7_.Arrived(at, from, now); }
  void Resumed(LifeId life, absl::Time now) { k7_.Resumed(life, now); }
  void LinkEnded(LifeId at, LifeId peer, absl::Time now) { k7_.Ended(at, peer, now); }
  // After a role loop took its events in: no link is up whose other end is silent.
  void CheckSilence(LifeId life) { k7_.CheckSilence(life); }
  // Likewise: no grant is open whose writer is gone and was not told as failed.
  void CheckOpen(LifeId owner);
  // When nothing is under way: what a core reports of itself.
  void CheckIdle(LifeId owner, const kv::OwnerCore& core);
  void CheckIdle(LifeId writer, const kv::WriterCore& core);
  void Posted(LifeId writer, LifeId owner, kv::LinkId link, const kv::DataWrite& write, char path,
              bool fences);
  void WriteEnded(kv::LinkId link, const kv::GrantKey& key, uint64_t bytes);
  void Permitted(LifeId owner, const kv::DataHeader& header);
  void Landed(const kv::GrantKey& key, uint64_t target_offset, uint64_t bytes);
  void Damaged(const kv::GrantKey& key) { book_.Damaged(key); }

  // ── role loops and their transports ───────────────────────────────────────────────
  void Granted(LifeId owner, const kv::Ticket& ticket);
  void Revoked(LifeId owner, Generation generation);
  void Accepted(LifeId writer, const kv::Ticket& ticket);
  void Wrote(LifeId writer, kv::WriteId id, const kv::GrantKey& key, uint32_t layer,
             absl::Span<const kv::WritePiece> pieces);
  void Committed(LifeId writer, const kv::Commit& commit);
  void Told(LifeId life, const kv::TransportEvent& event);

  // ── workers ───────────────────────────────────────────────────────────────────────
  void WorkerStarted(LifeId life, const std::string& name, Role role);
  void Heard(LifeId life, const WorkerInput& input);
  void Ticking(LifeId life, absl::Time now);
  void Said(LifeId life, const WorkerOutput& output, absl::Time now);
  // After a tick, all it said entered.  `metrics`: of the worker, called now and then.
  template <typename Metrics>
  void Ticked(LifeId life, absl::Time now, Metrics metrics) {
    if (AfterTick(life, now)) metrics_.Check(workers_.at(life), metrics(), moved_[life]);
  }
  void Leaves(LifeId life) { k9_.Leaves(workers_.at(life)); }  // drained
  // What the worker says of itself.
  void CheckSelf(LifeId life, const WorkerRef& self) { k7_.Self(life, self); }
  void Stepped(LifeId life, const engine::Step& step);
  void StepDone(LifeId life);

  // ── front ends and clients ────────────────────────────────────────────────────────
  std::unique_ptr<AttemptsChecker> MakeAttempts(const std::string& name, Incarnation self,
                                                const router::Dispatcher::Options& options);
  void CheckFrontend(const std::string& name, const AttemptsChecker& seen,
                     const router::Snapshot& snapshot) {
    metrics_.Check(name, seen, snapshot);
    liveness_.Attempts(name, snapshot);
  }
  LivenessChecker& liveness() { return liveness_; }

  size_t unsettled(LifeId owner) const;  // grants, by the book

 private:
  void LogTold(const std::string& who, const kv::TransportEvent& event);
  bool AfterTick(LifeId life, absl::Time now);
  void Opened(WorkerFacts& worker, const StreamOpened& opened);

  EventLog& log_;
  Book book_;
  K1Ownership k1_;
  K2Quarantine k2_;
  K3Commit k3_;
  K4Stale k4_;
  K5Bounds k5_;
  K6Pairing k6_;
  K7Incarnation k7_;
  K9Ending k9_;
  K10Index k10_;
  K11Promise k11_;
  FairnessChecker fairness_;
  LivenessChecker liveness_;
  MetricsChecker metrics_;
  absl::btree_map<LifeId, WorkerFacts> workers_;
  absl::btree_map<LifeId, MetricsChecker::Moved> moved_;
  absl::btree_map<LifeId, std::vector<std::pair<StreamId, absl::Duration>>> fresh_;
};

// A worker's engine, watched.
class CheckedEngine final : public engine::Engine {
 public:
  CheckedEngine(engine::Engine& real, Checkers& checkers, LifeId life)
      : real_(real), checkers_(checkers), life_(life) {}
  const engine::EngineInfo& info() const override { return real_.info(); }
  void Submit(engine::Step step) override;
  void Poll(std::vector<engine::Event>& events) override;

 private:
  engine::Engine& real_;
  Checkers& checkers_;
  const LifeId life_;
};

}  // namespace baton::sim
