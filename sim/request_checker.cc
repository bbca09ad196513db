// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/request_checker.h"

#include <algorithm>

namespace baton::sim {
namespace {

// A front end notices time in ticks, not continuously.
constexpr absl::Duration kDeadlineSlack = absl::Milliseconds(50);

const char* Name(router::Outcome outcome) {
  switch (outcome) {
    case router::Outcome::kStop:
      return "stop";
    case router::Outcome::kLength:
      return "length";
    case router::Outcome::kCancelled:
      return "cancelled";
    case router::Outcome::kRejected:
      return "rejected";
    case router::Outcome::kError:
      return "error";
    case router::Outcome::kTimeout:
      return "timeout";
  }
  return "?";
}

}  // namespace

const std::vector<OutputToken>& RequestChecker::Expected(const Reply& reply) {
  const std::pair<router::ClientKey, uint64_t> key(reply.client, reply.weights);
  const auto it = expected_.find(key);
  if (it != expected_.end()) return it->second;
  Sequence sequence = reply.sequence;
  sequence.remaining_tokens = std::min<uint32_t>(
      sequence.remaining_tokens,
      context_tokens_ - std::min<uint32_t>(context_tokens_, sequence.prompt.size()));
  HashEngineOptions engine = engine_;
  engine.weights = reply.weights;
  return expected_[key] = Oracle(sequence, engine, layout_);
}

bool RequestChecker::FromOtherModel(Reply& reply) {
  reply.weights = 3 - reply.weights;  // there are two
  const auto& expected = Expected(reply);
  return reply.tokens.size() <= expected.size() &&
         std::equal(reply.tokens.begin(), reply.tokens.end(), expected.begin());
}

void RequestChecker::Heard(Reply& reply, const router::ClientOutput& output, absl::Time now) {
  const uint64_t client = reply.client.value();
  if (reply.over) log_.Violation("K9: client ", client, " hears something after the end");
  if (const auto* placed = std::get_if<router::Placed>(&output)) {
    reply.path = placed->path;
    log_.AddAbout(client, "client", client, " placed ", static_cast<int>(placed->path));
  } else if (const auto* delivered = std::get_if<router::Delivered>(&output)) {
    if (delivered->index != reply.tokens.size()) {
      log_.Violation("K10: client ", client, " hears index ", delivered->index, ", expected ",
                     reply.tokens.size());
    }
    const auto& expected = Expected(reply);
    const size_t at = reply.tokens.size();
    if (at == 0) reply.first_token_at = now;
    reply.tokens.push_back(delivered->token);
    const bool right = at < expected.size() && expected[at] == delivered->token;
    if (!right && !FromOtherModel(reply)) {
      log_.Violation("K8: client ", client, " hears a wrong token at index ", at);
    }
  } else {
    Over(reply, std::get<router::Over>(output), now);
  }
}

void RequestChecker::Over(Reply& reply, const router::Over& over, absl::Time now) {
  const uint64_t client = reply.client.value();
  log_.AddAbout(client, "client", client, " over: ", Name(over.outcome), " ",
                over.status.ToString(), ", tokens ", reply.tokens.size(), ", attempts ",
                over.attempts, ", resumes ", over.resumes);
  reply.over = over;
  const bool complete =
      over.outcome == router::Outcome::kStop || over.outcome == router::Outcome::kLength;
  if (complete != over.status.ok())
    log_.Violation("K9: client ", client, ": outcome against status");
  if (complete && !reply.completed && reply.tokens.size() != Expected(reply).size()) {
    log_.Violation("K10: client ", client, " is told that its answer is complete after ",
                   reply.tokens.size(), " of ", Expected(reply).size(), " tokens");
  }
  if (!reply.frontend_stopped && now > reply.deadline + kDeadlineSlack) {
    log_.Violation("K9: client ", client, " ends after its deadline");
  }
  CheckStages(reply, over.stages, now);
}

// Consecutive intervals: they add up to the first token, and with `decode` to the end.
void RequestChecker::CheckStages(const Reply& reply, const router::Stages& s, absl::Time now) {
  const absl::Duration first =
      s.queue + s.reserve + s.prefill + s.kv_exposed + s.first_token + s.retry;
  const absl::Time until = reply.tokens.empty() ? now : reply.first_token_at;
  const absl::Duration shortest =
      std::min({s.queue, s.reserve, s.prefill, s.kv_exposed, s.first_token, s.retry, s.decode});
  if (shortest < absl::ZeroDuration() || first != until - reply.received ||
      first + s.decode != now - reply.received) {
    log_.Violation("metrics: stages of client ", reply.client.value(), " do not add up");
  }
}

void RequestChecker::CheckDeadline(const Reply& reply, absl::Time now) {
  if (!reply.done() && !reply.frontend_stopped && now > reply.deadline + kDeadlineSlack) {
    log_.Violation("K9: client ", reply.client.value(), " has not ended by its deadline");
  }
}

}  // namespace baton::sim
