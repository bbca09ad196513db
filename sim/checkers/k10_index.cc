// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k10_index.h"

namespace baton::sim {

void K10Index::Said(const WorkerFacts& worker, const StreamFacts* stream,
                    const WorkerOutput& output) {
  const auto wrong = [&](const char* what) {
    log_.Violation("K10: ", worker.name, " says ", what, " on #", output.stream.value());
  };
  if (stream == nullptr) return wrong("something behind the end");
  const bool last = std::holds_alternative<Finished>(output.message) ||
                    std::holds_alternative<baton::Ended>(output.message);
  if (last != output.last) wrong("a last word that is none");
  if (std::holds_alternative<Reserved>(output.message)) {
    if (stream->reserved) wrong("Reserved twice");
  } else if (std::holds_alternative<PromptStats>(output.message)) {
    if (stream->stats || !stream->reserved) wrong("PromptStats out of turn");
  } else if (const auto* token = std::get_if<Token>(&output.message)) {
    if (!stream->reserved || !stream->stats) wrong("a token too early");
    if (stream->settled && stream->tokens == 0) wrong("a token after Settled(revoked)");
    if (stream->stopped) wrong("a token behind a stop id");
    if (token->index != stream->first_index + stream->tokens) wrong("a token out of order");
    if (stream->tokens >= stream->remaining) wrong("more tokens than were asked for");
  } else if (const auto* settled = std::get_if<Settled>(&output.message)) {
    if (!stream->revoke_asked) wrong("Settled unasked");
    if (settled->committed != (stream->tokens > 0)) wrong("the wrong half of Settled");
  } else if (std::holds_alternative<Finished>(output.message)) {
    if (worker.role == Role::kDecode ? stream->tokens == 0 : !stream->done) {
      wrong("Finished too early");
    }
  }
}

}  // namespace baton::sim
