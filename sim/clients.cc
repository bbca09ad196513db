// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a simulated cluster's clients ask, and what they do while they are answered.
#include "sim/cluster.h"

namespace baton::sim {

Reply& Cluster::Submit(const Ask& ask) {
  const uint64_t asked = clients_ + 1;
  Reply& first = SubmitOne(ask, asked, 0);
  for (uint32_t choice = 1; choice < ask.choices; ++choice) SubmitOne(ask, asked, choice);
  return first;
}

Reply& Cluster::SubmitOne(const Ask& ask, uint64_t asked, uint32_t choice) {
  Reply& reply = replies_.emplace_back();
  reply.client = router::ClientKey(++clients_);
  reply.frontend = ask.frontend;
  const uint64_t own = 1000000 + asked;
  const uint64_t content = ask.content != 0 ? ask.content : own;
  // Contents differ in their first page and in every other one: equal blocks stand behind
  // different prefixes.
  constexpr uint64_t kCommon = 999999;
  reply.sequence.prompt = ask.history;
  for (uint32_t i = 0; i < ask.prompt_tokens; ++i) {
    const uint32_t page = i / kBlockTokens;
    const bool common = ask.content != 0 && page > 0 && page % 2 == 0;
    const uint64_t of = i >= ask.shared_tokens ? own : common ? kCommon : content;
    reply.sequence.prompt.push_back(
        static_cast<TokenId>(CounterRandom(of, 0, i) % options_.engine.vocab_size));
  }
  reply.sequence.remaining_tokens = ask.new_tokens;
  for (uint32_t id = 0; id < ask.stop_ids; ++id) {
    reply.sequence.stop_ids.push_back(static_cast<TokenId>(id));
  }
  reply.sequence.sampling.temperature = ask.temperature;
  reply.sequence.sampling.seed = CounterRandom(options_.seed, 1, asked);
  reply.sequence.sampling.choice = choice;
  log_.SetClient(reply.sequence, reply.client.value());
  reply.received = now();
  reply.deadline = now() + ask.deadline;
  if (!frontend(ask.frontend).alive()) {
    reply.frontend_lost = true;
    return reply;
  }
  frontend(ask.frontend).Submit(reply);
  Behave(reply, ask);
  return reply;
}

void Cluster::Behave(Reply& reply, const Ask& ask) {
  if (ask.cancel_after < absl::InfiniteDuration()) {
    queue_.After(ask.cancel_after, [this, &reply] { Cancel(reply); });
  }
  if (ask.complete_at == 0 && ask.cancel_at == 0 && ask.reads_every == absl::ZeroDuration()) return;
  reply.on_token = [this, &reply, ask] { OnToken(reply, ask); };
}

void Cluster::OnToken(Reply& reply, const Ask& ask) {
  const size_t tokens = reply.tokens.size();
  if (tokens == ask.complete_at) {
    // The text session is another thread: more tokens may come before it has told.
    queue_.After(absl::Microseconds(random_.Below(2000)), [this, &reply] { Complete(reply); });
  }
  const auto cancel = [this, &reply] { Cancel(reply); };  // by another thread as well
  if (tokens == ask.cancel_at) queue_.After(absl::ZeroDuration(), cancel);
  if (ask.reads_every == absl::ZeroDuration()) return;
  const absl::Duration since = frontend(reply.frontend).LocalTime() - reply.first_token_at;
  const int64_t read = since / ask.reads_every;
  if (static_cast<int64_t>(tokens) - read > kUnreadMax) {
    queue_.After(absl::ZeroDuration(), cancel);  // as the edge does (K5)
  }
}

void Cluster::Cancel(Reply& reply) {
  if (!reply.done()) frontend(reply.frontend).Cancel(reply);
}

void Cluster::Complete(Reply& reply) {
  if (!reply.done()) frontend(reply.frontend).Complete(reply);
}

}  // namespace baton::sim
