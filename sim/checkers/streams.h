// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a worker was asked and has said, stream by stream: the book of its attempts.
//
// Entered by the hub as messages pass between a worker and the net; the checkers read it.  A
// message heard counts from the tick that followed it: until then the worker cannot know.
// Thread: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/time/time.h"
#include "base/messages.h"
#include "sim/checkers/book.h"

namespace baton::sim {

struct StreamFacts {
  uint64_t order = 0;  // in which the worker heard of it
  AttemptId attempt;
  Incarnation decode;             // that a Reserve is for
  uint32_t first_index = 0;       // of the outputs to draw
  uint32_t remaining = 0;         // tokens
  std::string writer;             // that a Reserve names
  std::vector<TokenId> sequence;  // of a Prefill
  bool closing = false;           // its end was heard since the last tick
  bool behind_drain = false;      // opened after the worker was told to drain
  bool started = false;           // its first chunk was computed
  uint32_t overtaken = 0;         // by later ones that started
  absl::Time backstop;            // its deadline at the worker
  bool reserved = false, ticket = false, stats = false;
  std::vector<TokenId> stop_ids;
  bool stopped = false;                                      // one of them was said
  bool revoke_asked = false, settled = false, done = false;  // done: PrefillDone was said
  uint32_t tokens = 0;                                       // said
};

// One life of a worker.
struct WorkerFacts {
  std::string name;
  Role role = Role::kDecode;
  LifeId life = 0;
  absl::btree_map<StreamId, StreamFacts> streams;  // opened, and neither ended nor closed
  absl::btree_map<Incarnation, absl::Time> heard;  // front ends, at the tick that took it in
  std::vector<Incarnation> alive_heard;            // since the last tick
  std::vector<StreamId> closing;                   // likewise: by their front end
  uint64_t orders = 0;
  uint64_t opened = 0, tokens = 0, finished = 0, steps = 0;
  bool must_exit = false, stepping = false;
  absl::Time drains = absl::InfiniteFuture();  // since the tick that took it in
  bool drain_heard = false;
  absl::btree_set<uint64_t> tags;  // of the engine, seen
  uint64_t last_tag = 0;
  absl::Time looked;  // by the dear checks
  uint64_t ticks = 0;
};

}  // namespace baton::sim
