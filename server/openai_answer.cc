// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/openai_answer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace baton::server {
namespace {

// Gateways close what is silent for 60 s.
constexpr absl::Duration kKeepAlive = absl::Seconds(15);

}  // namespace

OpenAiAnswer::OpenAiAnswer(Setup setup, Answer::Context context,
                           std::shared_ptr<HttpExchange> exchange)
    : setup_(std::move(setup)), context_(context), exchange_(std::move(exchange)) {}

void OpenAiAnswer::Begin(const std::vector<AnswerRequest>& choices) {
  choices_.resize(choices.size());
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!setup_.echo.empty()) choices_[i].said.text = setup_.echo[i / setup_.samples];
  }
  open_ = static_cast<uint32_t>(choices.size());
  last_write_ = context_.clock->Now();
  if (choices.empty() || choices[0].sequence.remaining_tokens == 0) {
    for (Choice& choice : choices_) choice.said.finish = "length";
    if (setup_.stream) {
      StartStream();
      for (uint32_t i = 0; i < choices_.size(); ++i) {
        StartChoice(i);
        Write(FormatFinishChunk(setup_.frame, i, "length", ChunkUsage()));
      }
    }
    FinishAll();
    return;
  }
  exchange_->OnGone([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->CancelAll();
  });
  for (uint32_t i = 0; i < choices.size(); ++i) {
    const router::ClientKey client = Answer::Open(context_, i, choices[i], shared_from_this());
    MutexLock lock(&mutex_);
    clients_.push_back(client);
    if (gone_) context_.desk->Cancel(client);
  }
}

void OpenAiAnswer::OnPlaced(uint32_t, const router::Placed& placed) {
  placed_ = true;
  if (path_ == router::Path::kNone || !started_) path_ = placed.path;
}

void OpenAiAnswer::OnDelta(uint32_t index, AnswerDelta delta) {
  Choice& choice = choices_[index];
  choice.completion_tokens = delta.completion_tokens;
  if (failed_) return;
  if (setup_.stream) {
    StartStream();
    StartChoice(index);
    Write(FormatTextChunk(setup_.frame, index, delta, ChunkUsage(), *context_.tokenizer));
    return;
  }
  choice.said.text += delta.text;
  if (setup_.frame.logprobs) {
    std::move(delta.tokens.begin(), delta.tokens.end(), std::back_inserter(choice.said.tokens));
  }
}

void OpenAiAnswer::OnEnd(uint32_t index, AnswerEnd end) {
  Choice& choice = choices_[index];
  choice.over = true;
  --open_;
  if (failed_) return;
  if (!end.over.status.ok()) return Fail(end);
  choice.completion_tokens = end.completion_tokens;
  choice.said.finish = end.finish;
  if (end.over.path != router::Path::kNone && !started_) path_ = end.over.path;
  if (index % setup_.samples == 0) cached_tokens_ += end.over.prompt.cached_tokens;
  if (setup_.stream) {
    StartStream();
    StartChoice(index);
    Write(FormatFinishChunk(setup_.frame, index, choice.said.finish, ChunkUsage()));
  }
  if (open_ == 0) FinishAll();
}

void OpenAiAnswer::OnSecond(absl::Time now) {
  if (!setup_.stream || !placed_ || failed_ || open_ == 0) return;
  if (now - last_write_ < kKeepAlive) return;
  StartStream();
  Write(": keep-alive\n\n");
}

HttpHeaders OpenAiAnswer::Headers() const {
  HttpHeaders headers = {{"x-request-id", setup_.request_id}};
  if (path_ != router::Path::kNone) {
    headers.emplace_back("x-baton-path", std::string(PathName(path_)));
  }
  return headers;
}

void OpenAiAnswer::StartStream() {
  if (started_) return;
  started_ = true;
  HttpResponse head;
  head.headers = Headers();
  head.headers.emplace_back("Content-Type", "text/event-stream; charset=utf-8");
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  exchange_->StartStream(std::move(head));
  context_.metrics->Http(setup_.route, 200);
}

void OpenAiAnswer::StartChoice(uint32_t index) {
  Choice& choice = choices_[index];
  if (choice.role_sent) return;
  choice.role_sent = true;
  if (setup_.frame.kind == OpenAiKind::kChat) {
    Write(FormatRoleChunk(setup_.frame, index, ChunkUsage()));
  } else if (!choice.said.text.empty()) {  // echo
    AnswerDelta echo;
    echo.text = choice.said.text;
    Write(FormatTextChunk(setup_.frame, index, echo, ChunkUsage(), *context_.tokenizer));
  }
}

void OpenAiAnswer::Write(const std::string& event) {
  last_write_ = context_.clock->Now();
  if (failed_ || exchange_->Write(event)) return;
  // The reader is gone, or reads too slowly to keep its request running (K5).
  failed_ = true;
  CancelAll();
}

void OpenAiAnswer::Fail(const AnswerEnd& end) {
  failed_ = true;
  CancelAll();
  if (end.over.outcome == router::Outcome::kCancelled) {
    // Only a client that is gone cancels; the answer that nobody reads closes the exchange.
    if (!started_) context_.metrics->Http(setup_.route, 499);
  }
  const ApiError error = ToApiError(end.over.status, end.over.retry_after);
  if (started_) {
    exchange_->Write(FormatErrorEvent(error));
    exchange_->Write("data: [DONE]\n\n");
    exchange_->Finish();
    return;
  }
  HttpResponse response = ToHttp(error);
  for (auto& header : Headers()) response.headers.push_back(std::move(header));
  if (end.over.outcome != router::Outcome::kCancelled) {
    context_.metrics->Http(setup_.route, response.status);
  }
  exchange_->Send(std::move(response));
}

void OpenAiAnswer::FinishAll() {
  if (failed_) return;
  const OpenAiUsage usage = UsageNow();
  if (setup_.stream) {
    if (setup_.include_usage) Write(FormatUsageChunk(setup_.frame, usage));
    Write("data: [DONE]\n\n");
    exchange_->Finish();
    return;
  }
  std::vector<OpenAiChoice> said;
  for (Choice& choice : choices_) said.push_back(std::move(choice.said));
  HttpResponse response;
  response.headers = Headers();
  response.headers.emplace_back("Content-Type", "application/json");
  response.body = FormatWhole(setup_.frame, said, usage, *context_.tokenizer);
  context_.metrics->Http(setup_.route, 200);
  exchange_->Send(std::move(response));
}

void OpenAiAnswer::CancelAll() {
  MutexLock lock(&mutex_);
  gone_ = true;
  for (const router::ClientKey client : clients_) context_.desk->Cancel(client);
}

OpenAiUsage OpenAiAnswer::UsageNow() const {
  OpenAiUsage usage;
  for (const uint32_t tokens : setup_.prompt_tokens) usage.prompt_tokens += tokens;
  for (const Choice& choice : choices_) usage.completion_tokens += choice.completion_tokens;
  usage.cached_tokens = cached_tokens_;
  return usage;
}

const OpenAiUsage* OpenAiAnswer::ChunkUsage() {
  if (!setup_.continuous_usage) return nullptr;
  chunk_usage_ = UsageNow();
  return &chunk_usage_;
}

}  // namespace baton::server
