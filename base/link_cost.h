// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What moving KV over one link costs: T(bytes, n) = α + n·o + bytes/β.
//
// Plain values.  Workers measure them (kv_transfer/link_cost.h), status messages carry them,
// whoever chooses between links compares what they predict.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace baton {

// What is to be moved, or was.
struct LinkWork {
  uint64_t bytes = 0;
  uint64_t operations = 0;    // runs that are contiguous at both ends
  uint64_t summed_bytes = 0;  // of the bytes: get a sum, and are compared with it
  uint32_t starts = 1;        // how often the link was idle before a part of it

  LinkWork& operator+=(const LinkWork& more) {
    bytes += more.bytes;
    operations += more.operations;
    summed_bytes += more.summed_bytes;
    return *this;
  }
  bool operator==(const LinkWork&) const = default;
};

// The KV of so many blocks, each scattered at both ends.  block_bytes: of all layers.
inline LinkWork WorkOfBlocks(uint64_t blocks, uint64_t block_bytes, uint32_t layers) {
  return {.bytes = blocks * block_bytes, .operations = blocks * layers};
}

struct LinkCost {
  absl::Duration latency;        // α: of a write that begins on an idle link, until it is known
                                 // to be visible at the owner, beyond what its bytes take
  absl::Duration per_operation;  // o: of each further run
  double bandwidth = 0;          // β: bytes per second; 0: not known
  double sums_bandwidth = 0;     // of making and comparing sums; 0: not known, as if for nothing

  // The time in which at least one write is outstanding.
  absl::Duration Predict(const LinkWork& work) const {
    absl::Duration time = latency * static_cast<int64_t>(work.starts);
    time += per_operation * static_cast<int64_t>(work.operations);
    if (bandwidth > 0) time += absl::Seconds(static_cast<double>(work.bytes) / bandwidth);
    if (sums_bandwidth > 0) {
      time += absl::Seconds(static_cast<double>(work.summed_bytes) / sums_bandwidth);
    }
    return time;
  }
  bool operator==(const LinkCost&) const = default;
};

}  // namespace baton
