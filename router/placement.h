// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which decode worker, and which prefill worker writes to it.
//
// Pure scoring over a picture of the workers.  The cost of a worker is counted in prompt
// tokens: what waits there already, plus what of this sequence it would have to compute
// beyond the prefix it probably has cached, plus what of the push its link would not hide
// behind that computation.  Only pairs with a live link and equal model fingerprints are
// considered.  Ties rotate with the request number, so that an idle cluster is used evenly and
// one seed gives one placement.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/messages.h"
#include "router/worker_client.h"

namespace baton::router {

// A worker that may be given the attempt.
struct Candidate {
  WorkerIndex worker;
  const WorkerStatus* status = nullptr;
  uint64_t load_tokens = 0;    // waiting there, plus its share for what runs
  uint32_t cached_tokens = 0;  // of this sequence, probably
  bool last_resort = false;    // late, or failed this request before
};

struct Question {
  uint32_t tokens = 0;         // of the sequence
  bool writer_wanted = false;  // long enough for the disaggregated path
  uint64_t rotation = 0;
};

struct Placement {
  WorkerIndex decode;
  std::optional<WorkerIndex> prefill;
};

// Nothing only if there is no decode candidate.
std::optional<Placement> Place(const Question& question, absl::Span<const Candidate> decodes,
                               absl::Span<const Candidate> prefills);

// What of a push from `prefill` to `decode` is not hidden behind its computation, counted in
// tokens that the writer computes in that time.  0 if the link's cost or the speed is not known.
uint64_t ExposedTokens(const Question& question, const Candidate& decode, const Candidate& prefill);

// Whether `decode` says that it can exchange KV with this life of `prefill` now.
bool Linked(const WorkerStatus& decode, const WorkerStatus& prefill);

}  // namespace baton::router
