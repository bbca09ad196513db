// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One answer on its way from the dispatcher to a client: ids become text, stop strings end it,
// metrics see it.  What form it takes for the client is the listener's business.
//
// A request for n choices is n answers with one listener.
//
// Thread:  the delivery thread, except Start and Cancel (any).
// Ownership: the desk holds it until it is over; tokenizer, desk and metrics outlive it.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/text_session.h"
#include "router/client.h"
#include "server/client_desk.h"
#include "server/role_metrics.h"

namespace baton::server {

struct AnswerToken {
  OutputToken token;
  uint32_t index = 0;        // in the answer
  std::string bytes;         // its own; perhaps part of a character
  uint64_t text_offset = 0;  // of its start in the answer, in characters
};
struct AnswerDelta {
  std::string text;                 // whole characters
  std::vector<AnswerToken> tokens;  // whose text is now complete
  uint32_t completion_tokens = 0;   // so far
};
struct AnswerEnd {
  router::Over over;
  const char* finish = "stop";  // or "length"; meaningful if over.status is OK
  uint32_t completion_tokens = 0;
  absl::Duration first_content;  // since received; zero if there was none
  absl::Duration duration;
};

// Calls come on the delivery thread; OnEnd is the last for its choice.
class AnswerListener {
 public:
  virtual ~AnswerListener() = default;
  virtual void OnPlaced(uint32_t choice, const router::Placed& placed) = 0;
  virtual void OnDelta(uint32_t choice, AnswerDelta delta) = 0;  // not empty
  virtual void OnEnd(uint32_t choice, AnswerEnd end) = 0;
  virtual void OnSecond(absl::Time now) = 0;
};

struct AnswerRequest {
  Sequence sequence;
  bool draw_seed = false;
  text::TextOptions text;
  absl::Time received;
  absl::Duration deadline;
};

class Answer final : public AnswerSink {
 public:
  struct Context {
    ClientDesk* desk = nullptr;
    FrontendMetrics* metrics = nullptr;
    const text::Tokenizer* tokenizer = nullptr;
    const Clock* clock = nullptr;
  };

  // Submits it; the listener hears of it from now on.  The key is for Cancel.
  static router::ClientKey Open(const Context& context, uint32_t choice,
                                const AnswerRequest& request,
                                std::shared_ptr<AnswerListener> listener);

  Answer(const Context& context, uint32_t choice, const AnswerRequest& request,
         std::shared_ptr<AnswerListener> listener);

  void OnPlaced(const router::Placed& placed) override;
  void OnDelivered(router::Delivered delivered) override;
  void OnOver(router::Over over) override;
  void OnSecond(absl::Time now) override;

 private:
  void Publish(text::TextDelta delta);

  const Context context_;
  const uint32_t choice_;
  const absl::Time received_;
  const std::shared_ptr<AnswerListener> listener_;
  text::TextSession session_;
  std::deque<OutputToken> unreleased_;  // from next_released_ on
  uint32_t next_released_ = 0;
  router::Path path_ = router::Path::kNone;
  absl::Time first_content_ = absl::InfinitePast();
  absl::Time last_content_ = absl::InfinitePast();
  uint32_t tokens_since_content_ = 0;
};

}  // namespace baton::server
