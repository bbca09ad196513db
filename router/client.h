// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What the front end's edge (gRPC, HTTP) asks of the dispatcher, and what it gets back.
//
// Plain values through mailboxes.  Text never crosses: the edge tokenizes before Submit and
// runs one text session per request on what is delivered; a matched stop string is told back
// by Complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/messages.h"
#include "base/request.h"

namespace baton::router {

using ClientKey = StrongId<struct ClientTag, uint64_t>;  // the edge's; unique in this process

struct Submit {
  ClientKey client;
  Sequence sequence;  // sampling.seed is drawn by the dispatcher if `draw_seed`
  bool draw_seed = false;
  absl::Time received;      // on the process's clock: TTFT and `queue` count from here
  absl::Duration deadline;  // from `received`
};
struct Cancel {  // the client went away, or reads too slowly
  ClientKey client;
};
// The edge found a stop string in what was delivered: the answer is complete, outcome stop.
struct Complete {
  ClientKey client;
};
using ClientInput = std::variant<Submit, Cancel, Complete>;

enum class Path : uint8_t { kNone = 0, kColocated = 1, kDisaggregated = 2, kFallback = 3 };

// The placement is known; comes before the first token.  May change by a retry before it.
struct Placed {
  ClientKey client;
  RequestId request;
  Path path = Path::kNone;
};
// Output indices arrive in order, each once (K10).
struct Delivered {
  ClientKey client;
  uint32_t index = 0;
  OutputToken token;
};
// Consecutive intervals on the front end's clock; up to first_token they add up to the
// time between `received` and the first token's delivery to the edge.
struct Stages {
  absl::Duration queue, reserve, prefill, kv_exposed, first_token, retry, decode;
};
enum class Outcome : uint8_t { kStop, kLength, kCancelled, kRejected, kError, kTimeout };
// The request is over and owns nothing; exactly once per Submit (K9).
struct Over {
  ClientKey client;
  RequestId request;
  Outcome outcome = Outcome::kError;
  absl::Status status;         // OK for stop and length
  absl::Duration retry_after;  // for RESOURCE_EXHAUSTED and UNAVAILABLE, else 0
  Path path = Path::kNone;     // the first token's
  uint32_t attempts = 0;
  uint32_t resumes = 0;
  PromptStats prompt;  // of the attempt that gave the first token
  Stages stages;
};
using ClientOutput = std::variant<Placed, Delivered, Over>;

}  // namespace baton::router
