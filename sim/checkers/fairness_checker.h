// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Fairness: no request starves while others of its class pass it.
//
// Classes are those that the code promises first come, first served:
//   a front end's first attempts, of requests that every decode could hold: in order of arrival
//     (counted by the attempts checker);
//   tickets that a decode grants to one writer: in order of arrival;
//   first chunks at a prefill: at most kOvertakenMax later ones before any, since what is left of
//     a step's budget goes to whoever it suffices for.
// Cost: per event one look at those that wait.
#pragma once

#include "engine/engine.h"
#include "sim/checkers/streams.h"
#include "sim/event_log.h"

namespace baton::sim {

class FairnessChecker {
 public:
  static constexpr uint32_t kOvertakenMax = 4;

  explicit FairnessChecker(EventLog& log) : log_(log) {}

  // A decode grants a ticket on the stream; before it is entered.
  void Granted(const WorkerFacts& decode, const StreamFacts& stream);
  // A prefill runs a step; finds out which sequences are started by it.
  void Stepped(WorkerFacts& prefill, const engine::Step& step);

 private:
  void Started(WorkerFacts& prefill, const engine::Slice& slice);

  EventLog& log_;
};

}  // namespace baton::sim
