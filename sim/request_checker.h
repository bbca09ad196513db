// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Watches what the clients are told: every request ends once, in time, with the right tokens.
//
//   K9   exactly one Over per Submit, by its deadline, and nothing after it;
//   K10  output indices in order, each once;
//   K8   every token is the one that the Oracle draws, and a complete answer is all of them.
// Nothing is expected of requests whose front end died.  Thread: one.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "engine/kv_layout.h"
#include "router/client.h"
#include "sim/event_log.h"
#include "sim/hash_engine.h"

namespace baton::sim {

// One request as its client sees it.
struct Reply {
  router::ClientKey client;
  uint32_t frontend = 0;
  Sequence sequence;
  absl::Time received;  // on its front end's clock
  absl::Time deadline;
  absl::Time first_token_at;
  std::vector<OutputToken> tokens;
  router::Path path = router::Path::kNone;
  std::optional<router::Over> over;
  bool frontend_lost = false;
  bool frontend_stopped = false;        // for a while: nobody could tell the client in time
  uint64_t weights = 1;                 // of the model that began the answer
  bool completed = false;               // the edge found a stop string: fewer tokens are right
  absl::AnyInvocable<void()> on_token;  // the client's; may be empty

  bool done() const { return over.has_value() || frontend_lost; }
  bool ok() const { return over.has_value() && over->status.ok(); }
};

class RequestChecker {
 public:
  // The layout and options that the Oracle needs; `context_tokens` cuts answers as admission does.
  RequestChecker(EventLog& log, const HashEngineOptions& engine, const engine::KvLayout& layout,
                 uint32_t context_tokens)
      : log_(log), engine_(engine), layout_(layout), context_tokens_(context_tokens) {}

  void Heard(Reply& reply, const router::ClientOutput& output, absl::Time now);
  // Whoever is past its deadline should have been told so.
  void CheckDeadline(const Reply& reply, absl::Time now);
  // What a complete answer is, by the model that began it.
  const std::vector<OutputToken>& Expected(const Reply& reply);

 private:
  // Whether all of it so far is another model's, and if so, whose it is from now on.
  bool FromOtherModel(Reply& reply);
  void Over(Reply& reply, const router::Over& over, absl::Time now);
  void CheckStages(const Reply& reply, const router::Stages& s, absl::Time now);

  EventLog& log_;
  const HashEngineOptions engine_;
  const engine::KvLayout layout_;
  const uint32_t context_tokens_;
  absl::btree_map<std::pair<router::ClientKey, uint64_t>, std::vector<OutputToken>> expected_;
};

}  // namespace baton::sim
