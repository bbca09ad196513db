// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K11: Quiet is a promise: after it nothing is written under that generation, ever.
//
// The frames on the wire are read: from the moment a writer says Quiet, no write of its process
// may be posted under that generation, and none may be out.  Cost: one look-up per posted write.
#pragma once

#include "absl/types/span.h"
#include "kv_transfer/frame.h"
#include "sim/checkers/book.h"
#include "sim/event_log.h"

namespace baton::sim {

class K11Promise {
 public:
  K11Promise(const Book& book, EventLog& log) : book_(book), log_(log) {}

  void Said(LifeId writer, LifeId owner, const kv::QuietFrame& quiet);
  void Posted(LifeId writer, const kv::DataWrite& write);
  void Gone(LifeId writer) { promised_.erase(writer); }

 private:
  void Promise(LifeId writer, const kv::GrantKey& key);

  const Book& book_;
  EventLog& log_;
  absl::btree_map<LifeId, absl::btree_set<kv::GrantKey>> promised_;
};

}  // namespace baton::sim
