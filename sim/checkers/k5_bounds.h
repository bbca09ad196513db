// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K5: everything is bounded.
//
// Each bound is asserted from outside, against a count of this checker's own: blocks under
// tickets and in quarantine, of a decode and of one writer at it; bytes and writes in flight on a
// link; who waits at a worker; what a front end has waiting, reserving at one decode, and tries
// for one request.  A refusal for want of room is checked as well: there must be none.
#pragma once

#include "decode_worker/decode_worker.h"
#include "kv_transfer/owner_core.h"
#include "kv_transfer/writer_core.h"
#include "prefill_worker/prefill_worker.h"
#include "router/dispatcher.h"
#include "sim/checkers/book.h"
#include "sim/event_log.h"

namespace baton::sim {

class K5Bounds {
 public:
  struct Limits {
    kv::WriterCore::Options writer;
    kv::OwnerCore::Options owner;
    decode::Options decode;
    prefill::Options prefill;
    router::Dispatcher::Options router;
    bool shares = true;  // role loops keep to half the pool, and to each writer's share
  };

  K5Bounds(const Book& book, EventLog& log) : book_(book), log_(log) {}
  void Set(const Limits& limits) { limits_ = limits; }
  const Limits& limits() const { return limits_; }

  void Granted(LifeId owner, const kv::Ticket& ticket);
  void Posted(LifeId writer, kv::LinkId link, const kv::DataWrite& write);
  void WriteEnded(kv::LinkId link, uint64_t bytes);
  // What is in one step.
  void Stepped(LifeId life, const engine::Step& step);
  // After a tick: those that were never admitted.
  void Waiting(LifeId worker, Role role, size_t waiting, size_t preempted);

 private:
  struct Flow {
    uint64_t bytes = 0;
    uint32_t writes = 0;
  };

  const Book& book_;
  EventLog& log_;
  Limits limits_;
  absl::btree_map<kv::LinkId, Flow> flows_;
};

}  // namespace baton::sim
