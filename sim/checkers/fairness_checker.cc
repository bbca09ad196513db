// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/fairness_checker.h"

#include <algorithm>

namespace baton::sim {

void FairnessChecker::Granted(const WorkerFacts& decode, const StreamFacts& stream) {
  for (const auto& [id, other] : decode.streams) {
    if (other.order >= stream.order || other.reserved || other.closing) continue;
    if (other.writer != stream.writer) continue;
    log_.Violation("fairness: ", decode.name, " grants a ticket to ", ToString(stream.attempt),
                   " of ", stream.writer, " before the earlier ", ToString(other.attempt));
    return;
  }
}

void FairnessChecker::Stepped(WorkerFacts& prefill, const engine::Step& step) {
  for (const engine::Slice& slice : step.slices) {
    if (slice.tag <= prefill.last_tag && prefill.tags.contains(slice.tag)) continue;
    prefill.tags.insert(slice.tag);
    prefill.last_tag = std::max(prefill.last_tag, slice.tag);
    Started(prefill, slice);
  }
}

// The oldest sequence not started that has these tokens there.
void FairnessChecker::Started(WorkerFacts& prefill, const engine::Slice& slice) {
  StreamFacts* found = nullptr;
  for (auto& [id, stream] : prefill.streams) {
    const auto& tokens = stream.sequence;
    if (stream.started || slice.position + slice.tokens.size() > tokens.size()) continue;
    if (!std::equal(slice.tokens.begin(), slice.tokens.end(), tokens.begin() + slice.position)) {
      continue;
    }
    if (found == nullptr || stream.order < found->order) found = &stream;
  }
  if (found == nullptr) return;  // it ended meanwhile
  found->started = true;
  for (auto& [id, stream] : prefill.streams) {
    if (stream.started || stream.closing || stream.order > found->order) continue;
    if (++stream.overtaken != kOvertakenMax + 1) continue;
    log_.Violation("fairness: ", prefill.name, " lets ", ToString(stream.attempt), " wait while ",
                   stream.overtaken, " later prompts start");
  }
}

}  // namespace baton::sim
