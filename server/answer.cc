// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/answer.h"

#include <utility>

#include "base/log.h"

namespace baton::server {

router::ClientKey Answer::Open(const Context& context, uint32_t choice,
                               const AnswerRequest& request,
                               std::shared_ptr<AnswerListener> listener) {
  const router::ClientKey client =
      context.desk->Open(std::make_shared<Answer>(context, choice, request, std::move(listener)));
  router::Submit submit;
  submit.client = client;
  submit.sequence = request.sequence;
  submit.draw_seed = request.draw_seed;
  submit.received = request.received;
  submit.deadline = request.deadline;
  context.desk->Submit(std::move(submit));
  return client;
}

Answer::Answer(const Context& context, uint32_t choice, const AnswerRequest& request,
               std::shared_ptr<AnswerListener> listener)
    : context_(context),
      choice_(choice),
      received_(request.received),
      listener_(std::move(listener)),
      session_(*context.tokenizer, request.text) {}

void Answer::OnPlaced(const router::Placed& placed) {
  path_ = placed.path;
  listener_->OnPlaced(choice_, placed);
}

void Answer::OnDelivered(router::Delivered delivered) {
  if (session_.finish() != text::Finish::kNone) return;  // behind a stop string
  const TokenId id = delivered.token.id;
  unreleased_.push_back(std::move(delivered.token));
  ++tokens_since_content_;
  text::TextDelta delta = session_.Push(id);
  if (delta.finish == text::Finish::kStop) context_.desk->Complete(delivered.client);
  Publish(std::move(delta));
}

void Answer::Publish(text::TextDelta delta) {
  AnswerDelta out;
  out.text = std::move(delta.text);
  out.completion_tokens = session_.completion_tokens();
  for (text::ReleasedToken& released : delta.tokens) {
    while (next_released_ < released.index && !unreleased_.empty()) {
      unreleased_.pop_front();
      ++next_released_;
    }
    AnswerToken& token = out.tokens.emplace_back();
    token.token = std::move(unreleased_.front());
    token.index = released.index;
    token.bytes = std::move(released.bytes);
    token.text_offset = released.text_offset;
    unreleased_.pop_front();
    ++next_released_;
  }
  if (!out.text.empty()) {
    const absl::Time now = context_.clock->Now();
    if (first_content_ == absl::InfinitePast()) {
      first_content_ = now;
      context_.metrics->FirstToken(path_, now - received_);
    } else {
      context_.metrics->InterToken(path_, now - last_content_, tokens_since_content_);
    }
    last_content_ = now;
    tokens_since_content_ = 0;
  }
  if (!out.text.empty() || !out.tokens.empty()) listener_->OnDelta(choice_, std::move(out));
}

void Answer::OnOver(router::Over over) {
  if (session_.finish() == text::Finish::kNone) Publish(session_.Flush());
  const absl::Time now = context_.clock->Now();
  AnswerEnd end;
  const bool length =
      session_.finish() == text::Finish::kLength ||
      (session_.finish() == text::Finish::kNone && over.outcome == router::Outcome::kLength);
  end.finish = length ? "length" : "stop";
  end.completion_tokens = session_.completion_tokens();
  end.duration = now - received_;
  const bool content = first_content_ != absl::InfinitePast();
  if (content) end.first_content = first_content_ - received_;
  context_.metrics->Over(over, end.completion_tokens, end.duration, content);
  const auto level = over.outcome == router::Outcome::kError ? LogLevel::kError : LogLevel::kInfo;
  Log(level, "request over",
      {{"request_id", ToString(over.request)},
       {"outcome", OutcomeName(over.outcome)},
       {"path", PathName(over.path)},
       {"tokens", end.completion_tokens},
       {"cached_tokens", over.prompt.cached_tokens},
       {"computed_tokens", over.prompt.computed_tokens},
       {"ttft_ms", absl::ToDoubleMilliseconds(end.first_content)},
       {"duration_ms", absl::ToDoubleMilliseconds(end.duration)},
       {"attempts", over.attempts},
       {"kv_transport", over.prompt.transport},
       {"kv_transfer_ms", absl::ToDoubleMilliseconds(over.prompt.transfer)},
       {"kv_predicted_ms", absl::ToDoubleMilliseconds(over.prompt.predicted)},
       {"kv_exposed_ms", absl::ToDoubleMilliseconds(over.prompt.exposed)},
       {"status", over.status.ok() ? "OK" : over.status.ToString()}});
  end.over = std::move(over);
  listener_->OnEnd(choice_, std::move(end));
}

void Answer::OnSecond(absl::Time now) { listener_->OnSecond(now); }

}  // namespace baton::server
