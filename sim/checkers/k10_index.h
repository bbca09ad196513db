// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K10: a client gets every output index once, from one settled attempt at a time.
//
// Here: what a worker says on a stream, and in which order.  Reserved before anything else and
// once; PromptStats before the first token; token indices from where the sequence starts, each
// once; `committed` only after a token, `revoked` only before one; nothing behind the last word.
// The front end's half is in attempts_checker.h.  Cost: one look-up per message.
#pragma once

#include "sim/checkers/streams.h"
#include "sim/event_log.h"

namespace baton::sim {

class K10Index {
 public:
  explicit K10Index(EventLog& log) : log_(log) {}

  // Before the message is entered.  `stream`: null if the worker may not speak on it.
  void Said(const WorkerFacts& worker, const StreamFacts* stream, const WorkerOutput& output);

 private:
  EventLog& log_;
};

}  // namespace baton::sim
