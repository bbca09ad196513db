// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which worker has probably cached the beginning of a prompt: the one that ran it last.
//
// A bounded memory of hashes of leading blocks.  Two generations of maps: when the young one
// is full the old one is dropped, so that what is used stays and nothing is ever scanned.
// A wrong guess costs speed only; workers compare tokens themselves.  Thread: one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "base/request.h"
#include "router/worker_client.h"

namespace baton::router {

// Chain hashes of the full leading blocks of a sequence that a cache could serve (never its
// last token), at most 128 of them: 2,048 tokens tell prompts well enough apart.
std::vector<uint64_t> LeadingBlockHashes(const Sequence& sequence);

class PrefixAffinity {
 public:
  explicit PrefixAffinity(uint32_t entries_max) : entries_max_(entries_max) {}

  void Remember(const std::vector<uint64_t>& hashes, WorkerIndex worker);
  // Tokens of the sequence that each worker saw last; workers without any are left out.
  std::vector<std::pair<WorkerIndex, uint32_t>> Match(const std::vector<uint64_t>& hashes) const;

 private:
  const WorkerIndex* Find(uint64_t hash) const;

  const uint32_t entries_max_;
  absl::btree_map<uint64_t, WorkerIndex> young_, old_;
};

}  // namespace baton::router
