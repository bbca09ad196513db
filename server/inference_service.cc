// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/inference_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "base/mutex.h"
#include "proto/inference.grpc.pb.h"
#include "server/openai_format.h"
#include "server/rpc_error.h"

namespace baton::server {
namespace {

namespace pb = v1;

ApiError Wrong(const char* field, const char* what) {
  ApiError error;
  error.param = field;
  error.message = what;
  error.code = "invalid_value";
  return error;
}

FrontendModel::Rules RulesOf(const pb::GenerateRequest& from) {
  FrontendModel::Rules rules;
  if (from.has_max_tokens()) rules.max_tokens = from.max_tokens();
  rules.min_tokens = from.min_tokens();
  SamplingParams& s = rules.sampling;
  if (from.has_temperature()) s.temperature = from.temperature();
  if (from.has_top_p()) s.top_p = from.top_p();
  if (from.has_top_k()) s.top_k = from.top_k();
  if (from.has_min_p()) s.min_p = from.min_p();
  if (from.has_repetition_penalty()) s.repetition_penalty = from.repetition_penalty();
  if (from.has_presence_penalty()) s.presence_penalty = from.presence_penalty();
  if (from.has_frequency_penalty()) s.frequency_penalty = from.frequency_penalty();
  if (from.has_seed()) s.seed = static_cast<uint64_t>(from.seed());
  if (from.has_logprobs()) s.logprobs = static_cast<int32_t>(std::min(from.logprobs(), 1000u));
  s.logit_bias.assign(from.logit_bias().begin(), from.logit_bias().end());
  std::sort(s.logit_bias.begin(), s.logit_bias.end());
  rules.seeded = from.has_seed();
  rules.stops.assign(from.stop().begin(), from.stop().end());
  rules.stop_ids.assign(from.stop_token_ids().begin(), from.stop_token_ids().end());
  rules.ignore_eos = from.ignore_eos();
  rules.cache_salt = from.cache_salt();
  return rules;
}

std::optional<ApiError> EncodeInput(const FrontendModel& model, const pb::GenerateRequest& from,
                                    FrontendModel::Rules* rules, std::vector<TokenId>* ids) {
  switch (from.input_case()) {
    case pb::GenerateRequest::kPrompt:
      return model.EncodeText(from.prompt(), from.add_special_tokens(), ids);
    case pb::GenerateRequest::kMessages: {
      rules->prompt_param = "messages";
      std::vector<ChatMessage> messages;
      for (const pb::Message& one : from.messages().messages()) {
        messages.push_back({one.role(), one.content()});
      }
      if (messages.empty()) return Wrong("messages", "'messages' must not be empty");
      return model.EncodeChat(messages, ids);
    }
    case pb::GenerateRequest::kTokenIds:
      rules->prompt_param = "token_ids";
      ids->assign(from.token_ids().ids().begin(), from.token_ids().ids().end());
      return std::nullopt;
    case pb::GenerateRequest::INPUT_NOT_SET:
      break;
  }
  return Wrong("input", "one of prompt, messages and token_ids must be given");
}

std::optional<ApiError> Prepare(const FrontendModel& model, const pb::GenerateRequest& from,
                                AnswerRequest* to) {
  if (auto error = model.CheckName(from.model())) return error;
  if (from.stop_size() > 4) return Wrong("stop", "'stop' has more than 4 entries");
  if (from.has_max_tokens() && (from.max_tokens() == 0 || from.max_tokens() > INT32_MAX)) {
    return Wrong("max_tokens", "'max_tokens' must be at least 1");
  }
  FrontendModel::Rules rules = RulesOf(from);
  if (auto error = EncodeInput(model, from, &rules, &to->sequence.prompt)) return error;
  return model.Complete(rules, to);
}

// One Generate call.  It lives until gRPC and its answer have both let go of it.
class GenerateCall final : public grpc::ServerWriteReactor<pb::GenerateResponse>,
                           public AnswerListener,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  GenerateCall(const InferenceOptions& options, grpc::CallbackServerContext* context,
               const pb::GenerateRequest* request)
      : options_(options), context_(context), request_(request) {}

  void Start() {
    self_ = shared_from_this();
    received_ = options_.answer.clock->Now();
    if (options_.pool->Post([self = self_] { self->Submit(); })) return;
    FinishWith(
        ToApiError(absl::ResourceExhaustedError("the front end is overloaded"), absl::Seconds(1)));
  }

  void OnCancel() override {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (submitted_) options_.answer.desk->Cancel(client_);
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    buffered_bytes_ -= outgoing_.front().ByteSizeLong();
    outgoing_.pop_front();
    if (!ok) cancelled_ = true;
    WriteLocked();
  }
  void OnDone() override { self_.reset(); }

  void OnPlaced(uint32_t, const router::Placed& placed) override {
    request_id_ = ToString(placed.request);
  }
  void OnDelta(uint32_t, AnswerDelta delta) override {
    pb::GenerateResponse response;
    response.set_request_id(request_id_);
    response.set_text(delta.text);
    for (const AnswerToken& token : delta.tokens) Fill(token, response.add_tokens());
    Queue(std::move(response));
  }
  void OnEnd(uint32_t, AnswerEnd end) override {
    if (!end.over.status.ok()) {
      ApiError error = ToApiError(end.over.status, end.over.retry_after);
      if (end.over.outcome == router::Outcome::kCancelled) error.status = 499;
      return FinishWith(error);
    }
    pb::GenerateResponse response;
    response.set_request_id(request_id_);
    Fill(end, response.mutable_summary());
    MutexLock lock(&mutex_);
    last_ = true;
    QueueLocked(std::move(response));
  }
  void OnSecond(absl::Time) override {}

 private:
  void Submit() {
    AnswerRequest answer;
    answer.received = received_;
    answer.deadline = std::min(options_.default_deadline, Remaining());
    if (auto error = Prepare(*options_.model, *request_, &answer)) return FinishWith(*error);
    logprobs_ = answer.sequence.sampling.logprobs >= 0;
    prompt_tokens_ = static_cast<uint32_t>(answer.sequence.prompt.size());
    // Answer::Open may be overtaken by deliveries, but not by OnCancel: that waits for the key.
    MutexLock lock(&mutex_);
    client_ = Answer::Open(options_.answer, 0, answer, shared_from_this());
    submitted_ = true;
    if (cancelled_) options_.answer.desk->Cancel(client_);
  }

  absl::Duration Remaining() const {
    const auto deadline = context_->deadline();
    if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteDuration();
    return absl::FromChrono(deadline - std::chrono::system_clock::now());
  }

  void Fill(const AnswerToken& from, pb::OutputToken* to) const {
    to->set_id(from.token.id);
    to->set_index(from.index);
    to->set_token(from.bytes);
    if (!logprobs_) return;
    to->set_logprob(from.token.logprob);
    for (const TokenLogprob& one : from.token.top) {
      pb::TokenLogprob* top = to->add_top();
      top->set_id(one.id);
      top->set_logprob(one.logprob);
      top->set_token(std::string(options_.model->tokenizer().Bytes(one.id)));
    }
  }

  void Fill(const AnswerEnd& end, pb::Summary* to) const {
    const PromptStats& prompt = end.over.prompt;
    to->set_finish_reason(end.finish);
    to->mutable_usage()->set_prompt_tokens(prompt_tokens_);
    to->mutable_usage()->set_cached_tokens(prompt.cached_tokens);
    to->mutable_usage()->set_completion_tokens(end.completion_tokens);
    to->set_path(std::string(PathName(end.over.path)));
    to->set_ttft_ms(absl::ToDoubleMilliseconds(end.first_content));
    to->set_duration_ms(absl::ToDoubleMilliseconds(end.duration));
    to->set_attempts(end.over.attempts);
    pb::KvTimings* kv = to->mutable_kv();
    kv->set_bytes(prompt.kv_bytes);
    kv->set_blocks(prompt.kv_blocks);
    kv->set_transport(prompt.transport);
    kv->set_compute_ms(absl::ToDoubleMilliseconds(prompt.compute));
    kv->set_transfer_ms(absl::ToDoubleMilliseconds(prompt.transfer));
    kv->set_exposed_ms(absl::ToDoubleMilliseconds(prompt.exposed));
    kv->set_predicted_ms(absl::ToDoubleMilliseconds(prompt.predicted));
  }

  void Queue(pb::GenerateResponse response) {
    MutexLock lock(&mutex_);
    QueueLocked(std::move(response));
  }
  void QueueLocked(pb::GenerateResponse response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (finished_) return;
    begun_ = true;
    buffered_bytes_ += response.ByteSizeLong();
    outgoing_.push_back(std::move(response));
    if (buffered_bytes_ > options_.buffer_bytes && !cancelled_) {
      cancelled_ = true;
      options_.answer.desk->Cancel(client_);
    }
    WriteLocked();
  }
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) return;
    if (!outgoing_.empty()) {
      writing_ = true;
      StartWrite(&outgoing_.front());
    } else if (last_) {
      finished_ = true;
      Finish(grpc::Status::OK);
    }
  }
  void FinishWith(const ApiError& error) {
    MutexLock lock(&mutex_);
    if (finished_) return;
    finished_ = true;
    Finish(ToRpcStatus(error, begun_));
  }

  const InferenceOptions& options_;
  grpc::CallbackServerContext* const context_;
  const pb::GenerateRequest* const request_;  // gRPC's, until Finish
  std::shared_ptr<GenerateCall> self_;        // gRPC's share
  absl::Time received_;
  // The delivery thread's.
  std::string request_id_;
  bool logprobs_ = false;
  uint32_t prompt_tokens_ = 0;

  Mutex mutex_;
  router::ClientKey client_ ABSL_GUARDED_BY(mutex_);
  bool submitted_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<pb::GenerateResponse> outgoing_ ABSL_GUARDED_BY(mutex_);
  size_t buffered_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;  // something was sent
  bool last_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

class InferenceService final : public pb::Inference::CallbackService {
 public:
  explicit InferenceService(InferenceOptions options) : options_(std::move(options)) {}

  grpc::ServerWriteReactor<pb::GenerateResponse>* Generate(
      grpc::CallbackServerContext* context, const pb::GenerateRequest* request) override {
    auto call = std::make_shared<GenerateCall>(options_, context, request);
    call->Start();
    return call.get();
  }

  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const pb::TokenizeRequest* request,
                                     pb::TokenizeResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const bool posted = options_.pool->Post(
        [this, reactor, request, response] { reactor->Finish(TokenizeNow(*request, response)); });
    if (!posted) {
      reactor->Finish(grpc::Status(grpc::RESOURCE_EXHAUSTED, "the front end is overloaded"));
    }
    return reactor;
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const pb::ListModelsRequest*,
                                       pb::ListModelsResponse* response) override {
    pb::ModelInfo* model = response->add_models();
    model->set_id(options_.model->name());
    model->set_context(options_.model->context_max());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  grpc::Status TokenizeNow(const pb::TokenizeRequest& request, pb::TokenizeResponse* response) {
    if (auto error = options_.model->CheckName(request.model())) return ToRpcStatus(*error, false);
    const auto ids = options_.model->tokenizer().Encode(request.text(), request.parse_special());
    if (!ids.ok()) {
      return ToRpcStatus(ToApiError(ids.status(), absl::ZeroDuration()), false);
    }
    response->mutable_ids()->Add(ids->begin(), ids->end());
    return grpc::Status::OK;
  }

  const InferenceOptions options_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeInferenceService(InferenceOptions options) {
  return std::make_unique<InferenceService>(std::move(options));
}

}  // namespace baton::server
