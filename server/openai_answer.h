// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One OpenAI request being answered: gathers or streams its choices.
//
// Nothing leaves before the first token: until then a failure is an HTTP status.  When a
// placed request takes long, the stream is opened early with keep-alive comments, so that no
// gateway takes the silence for death; from then on a failure is an event in the stream.
//
// Thread:  the delivery thread, but Begin (the thread that submits) and what OnGone calls.
// Ownership: its answers hold it; the desk holds them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "server/answer.h"
#include "server/http_server.h"
#include "server/openai_format.h"

namespace baton::server {

class OpenAiAnswer final : public AnswerListener,
                           public std::enable_shared_from_this<OpenAiAnswer> {
 public:
  struct Setup {
    OpenAiFrame frame;
    bool stream = false;
    bool include_usage = false;
    bool continuous_usage = false;
    uint32_t samples = 1;                 // choices per prompt
    std::vector<uint32_t> prompt_tokens;  // per prompt
    std::vector<std::string> echo;        // per prompt; in front of each of its choices
    std::string request_id;               // for the header
    std::string route;                    // for the metric
  };

  OpenAiAnswer(Setup setup, Answer::Context context, std::shared_ptr<HttpExchange> exchange);

  // Submits one answer per choice.  Requests with remaining_tokens 0 end at once.
  void Begin(const std::vector<AnswerRequest>& choices);

  void OnPlaced(uint32_t choice, const router::Placed& placed) override;
  void OnDelta(uint32_t choice, AnswerDelta delta) override;
  void OnEnd(uint32_t choice, AnswerEnd end) override;
  void OnSecond(absl::Time now) override;

 private:
  struct Choice {
    OpenAiChoice said;
    bool role_sent = false;
    bool over = false;
    uint32_t completion_tokens = 0;
  };

  void StartStream();
  void StartChoice(uint32_t choice);
  void Write(const std::string& event);
  void Fail(const AnswerEnd& end);
  void FinishAll();
  void CancelAll();
  OpenAiUsage UsageNow() const;
  const OpenAiUsage* ChunkUsage();
  HttpHeaders Headers() const;

  const Setup setup_;
  const Answer::Context context_;
  const std::shared_ptr<HttpExchange> exchange_;
  Mutex mutex_;  // of clients_, which the gone client's thread reads
  std::vector<router::ClientKey> clients_ ABSL_GUARDED_BY(mutex_);
  bool gone_ ABSL_GUARDED_BY(mutex_) = false;

  // The delivery thread's.
  std::vector<Choice> choices_;
  uint32_t open_ = 0;
  uint32_t cached_tokens_ = 0;
  OpenAiUsage chunk_usage_;
  router::Path path_ = router::Path::kNone;
  bool placed_ = false;
  bool started_ = false;  // the stream's head is out
  bool failed_ = false;   // nothing more is said
  absl::Time last_write_ = absl::InfinitePast();
};

}  // namespace baton::server
