// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which requests may enter: the bounds of the queue, and what can never be served.
//
// Pure.  What can never fit is the client's fault and refused at once; what does not fit now
// waits in the bounded queue or is refused at once with a time after which to ask again.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/request.h"

namespace baton::router {

struct AdmissionLimits {
  uint32_t queue_requests = 0;
  uint64_t queue_tokens = 0;
};

// What the decode worker that holds the longest sequence could hold; 0 while none is known.
struct Capacity {
  uint32_t context_tokens = 0;  // of the model
  uint64_t pool_tokens = 0;     // of its pool
  bool any_usable = false;      // some decode worker takes work now
  bool draining = false;        // this front end
};

struct Waiting {  // requests that hold no reservation
  uint64_t requests = 0;
  uint64_t tokens = 0;
};

// OK, or: INVALID_ARGUMENT can never be served, UNAVAILABLE nobody is there,
// RESOURCE_EXHAUSTED the queue is full.
absl::Status CheckAdmission(const Sequence& sequence, const Capacity& capacity,
                            const Waiting& waiting, const AdmissionLimits& limits);

// The sequence's remaining tokens, cut to what context and pool can hold.
// REQUIRES: CheckAdmission was OK.
uint32_t RemainingWithin(const Sequence& sequence, const Capacity& capacity);

}  // namespace baton::router
