// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/openai_api.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "server/openai_answer.h"
#include "server/openai_format.h"

namespace baton::server {
namespace {

constexpr size_t kRequestIdMax = 128;

int64_t WallSeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string PercentDecoded(absl::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && absl::ascii_isxdigit(text[i + 1]) &&
        absl::ascii_isxdigit(text[i + 2])) {
      out += absl::HexStringToBytes(text.substr(i + 1, 2));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

HttpResponse WrongMethod(const char* allowed) {
  HttpResponse response = HttpError(405, absl::StrCat("only ", allowed, " is allowed here"),
                                    "invalid_request_error", "", "method_not_allowed");
  response.headers.emplace_back("Allow", allowed);
  return response;
}

HttpResponse Json(std::string body) {
  HttpResponse response;
  response.headers = {{"Content-Type", "application/json"}};
  response.body = std::move(body);
  return response;
}

std::string DumpJson(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

void OpenAiApi::Handle(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  const absl::string_view path = request.path();
  if (auto probe = AnswerProbe(options_.probes, request)) return exchange->Send(*std::move(probe));
  if (path == "/v1/chat/completions") return Post(exchange, "chat", &OpenAiApi::Chat);
  if (path == "/v1/completions") return Post(exchange, "completions", &OpenAiApi::Completions);
  if (path == "/tokenize") return Post(exchange, "tokenize", &OpenAiApi::Tokenize);
  if (path == "/detokenize") return Post(exchange, "detokenize", &OpenAiApi::Detokenize);
  if (path == "/v1/models" || absl::StartsWith(path, "/v1/models/")) return Models(exchange);
  Reply(exchange, "other",
        HttpError(404, absl::StrCat("there is no route ", path), "invalid_request_error", "",
                  "unknown_url"));
}

void OpenAiApi::Reply(const std::shared_ptr<HttpExchange>& exchange, const char* route,
                      HttpResponse response) {
  options_.answer.metrics->Http(route, response.status);
  response.headers.emplace_back("x-request-id", RequestId(exchange->request(), ""));
  if (response.headers.back().second.empty()) response.headers.pop_back();
  exchange->Send(std::move(response));
}

void OpenAiApi::Post(const std::shared_ptr<HttpExchange>& exchange, const char* route, Work work) {
  const HttpRequest& request = exchange->request();
  if (request.method != "POST") return Reply(exchange, route, WrongMethod("POST"));
  const std::string type = absl::AsciiStrToLower(request.header("content-type"));
  const absl::string_view media =
      absl::StripAsciiWhitespace(absl::string_view(type).substr(0, type.find(';')));
  if (!media.empty() && media != "application/json") {
    return Reply(exchange, route,
                 HttpError(415, "the body must be of type application/json",
                           "invalid_request_error", "", "unsupported_media_type"));
  }
  if (options_.pool->Post([this, exchange, work] { (this->*work)(exchange); })) return;
  ApiError error =
      ToApiError(absl::ResourceExhaustedError("the front end is overloaded"), absl::Seconds(1));
  Reply(exchange, route, ToHttp(error));
}

// A client's own id is a label for its logs; it is never a key of ours.
std::string OpenAiApi::RequestId(const HttpRequest& request, const std::string& otherwise) const {
  const absl::string_view given = request.header("x-request-id");
  if (given.empty() || given.size() > kRequestIdMax) return otherwise;
  for (const char c : given) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("-_.:/+=@", c)) return otherwise;
  }
  return std::string(given);
}

void OpenAiApi::Chat(const std::shared_ptr<HttpExchange>& exchange) {
  Generate(exchange, OpenAiKind::kChat);
}
void OpenAiApi::Completions(const std::shared_ptr<HttpExchange>& exchange) {
  Generate(exchange, OpenAiKind::kCompletions);
}

void OpenAiApi::Generate(const std::shared_ptr<HttpExchange>& exchange, OpenAiKind kind) {
  const HttpRequest& http = exchange->request();
  OpenAiRequest request;
  std::vector<AnswerRequest> prompts;
  std::vector<std::string> echo;
  std::optional<ApiError> error = ParseOpenAi(kind, http.body, &request);
  if (!error) error = Prepare(request, http.received, &prompts, &echo);
  if (error) {
    return Reply(exchange, kind == OpenAiKind::kChat ? "chat" : "completions", ToHttp(*error));
  }
  Submit(exchange, request, std::move(prompts), std::move(echo));
}

std::optional<ApiError> OpenAiApi::Prepare(const OpenAiRequest& request, absl::Time received,
                                           std::vector<AnswerRequest>* prompts,
                                           std::vector<std::string>* echo) const {
  const FrontendModel& model = *options_.model;
  if (auto error = model.CheckName(request.model)) return error;
  FrontendModel::Rules rules;
  rules.max_tokens = request.max_tokens;
  rules.min_tokens = request.min_tokens;
  rules.sampling = request.sampling;
  rules.seeded = request.seed.has_value();
  rules.stops = request.stops;
  rules.stop_ids = request.stop_token_ids;
  rules.ignore_eos = request.ignore_eos;
  rules.include_stop = request.include_stop;
  rules.cache_salt = request.cache_salt;
  const bool chat = request.kind == OpenAiKind::kChat;
  rules.prompt_param = chat ? "messages" : "prompt";
  prompts->resize(chat ? 1 : request.prompts.size());
  for (size_t i = 0; i < prompts->size(); ++i) {
    AnswerRequest& one = (*prompts)[i];
    std::vector<TokenId>& ids = one.sequence.prompt;
    std::optional<ApiError> error;
    if (chat) {
      error = model.EncodeChat(request.messages, &ids);
    } else if (const auto* text = std::get_if<std::string>(&request.prompts[i])) {
      error = model.EncodeText(*text, request.add_special_tokens, &ids);
      if (request.echo) echo->push_back(*text);
    } else {
      ids = std::get<std::vector<TokenId>>(request.prompts[i]);
      if (request.echo) {
        std::string& text_of_ids = echo->emplace_back();
        for (const TokenId id : ids) absl::StrAppend(&text_of_ids, model.tokenizer().Bytes(id));
      }
    }
    if (!error) error = model.Complete(rules, &one);
    if (error) return error;
    one.received = received;
    one.deadline = options_.default_deadline;
  }
  return std::nullopt;
}

void OpenAiApi::Submit(const std::shared_ptr<HttpExchange>& exchange, const OpenAiRequest& request,
                       std::vector<AnswerRequest> prompts, std::vector<std::string> echo) {
  const bool chat = request.kind == OpenAiKind::kChat;
  OpenAiAnswer::Setup setup;
  setup.frame.kind = request.kind;
  setup.frame.id =
      absl::StrCat(chat ? "chatcmpl-" : "cmpl-", options_.id_prefix, "-", next_id_.fetch_add(1));
  setup.frame.created = WallSeconds();
  setup.frame.model = options_.model->name();
  setup.frame.logprobs = request.sampling.logprobs >= 0;
  setup.frame.usage_key = request.include_usage;
  setup.stream = request.stream;
  setup.include_usage = request.include_usage;
  setup.continuous_usage = request.continuous_usage;
  setup.samples = request.n;
  setup.echo = std::move(echo);
  setup.request_id = RequestId(exchange->request(), setup.frame.id);
  setup.route = chat ? "chat" : "completions";
  std::vector<AnswerRequest> choices;
  for (AnswerRequest& prompt : prompts) {
    setup.prompt_tokens.push_back(static_cast<uint32_t>(prompt.sequence.prompt.size()));
    for (uint32_t sample = 0; sample < request.n; ++sample) {
      choices.push_back(prompt);
      choices.back().sequence.sampling.choice = sample;
    }
  }
  std::make_shared<OpenAiAnswer>(std::move(setup), options_.answer, exchange)->Begin(choices);
}

void OpenAiApi::Tokenize(const std::shared_ptr<HttpExchange>& exchange) {
  TokenizeBody body;
  std::vector<TokenId> ids;
  const FrontendModel& model = *options_.model;
  std::optional<ApiError> error = ParseTokenize(exchange->request().body, &body);
  if (!error) error = model.CheckName(body.model);
  if (!error && body.chat) {
    error = model.EncodeChat(body.messages, &ids);
  } else if (!error && body.parse_special) {
    auto encoded = model.tokenizer().Encode(body.text, /*parse_special=*/true);
    if (encoded.ok()) {
      ids = *std::move(encoded);
    } else {
      error = ToApiError(encoded.status(), absl::ZeroDuration());
    }
  } else if (!error) {
    error = model.EncodeText(body.text, body.add_special, &ids);
  }
  if (error) return Reply(exchange, "tokenize", ToHttp(*error));
  nlohmann::ordered_json answer;
  if (!body.content_form) {
    answer = {{"count", ids.size()}, {"max_model_len", model.context_max()}, {"tokens", ids}};
  } else if (!body.with_pieces) {
    answer = {{"tokens", ids}};
  } else {
    answer["tokens"] = nlohmann::ordered_json::array();
    for (const TokenId id : ids) {
      answer["tokens"].push_back({{"id", id}, {"piece", std::string(model.tokenizer().Bytes(id))}});
    }
  }
  if (!body.content_form && body.with_pieces) {
    for (const TokenId id : ids) {
      answer["token_strs"].push_back(std::string(model.tokenizer().Bytes(id)));
    }
  }
  Reply(exchange, "tokenize", Json(DumpJson(answer)));
}

void OpenAiApi::Detokenize(const std::shared_ptr<HttpExchange>& exchange) {
  DetokenizeBody body;
  const FrontendModel& model = *options_.model;
  std::optional<ApiError> error = ParseDetokenize(exchange->request().body, &body);
  if (!error) error = model.CheckName(body.model);
  if (!error) error = model.CheckIds(body.tokens, "tokens");
  if (error) return Reply(exchange, "detokenize", ToHttp(*error));
  std::string text;
  for (const TokenId id : body.tokens) absl::StrAppend(&text, model.tokenizer().Bytes(id));
  Reply(exchange, "detokenize", Json(DumpJson({{"prompt", text}, {"content", text}})));
}

std::string OpenAiApi::ModelEntry() const {
  const std::string& name = options_.model->name();
  return DumpJson({{"id", name},
                   {"object", "model"},
                   {"created", options_.created},
                   {"owned_by", "baton"},
                   {"root", name},
                   {"max_model_len", options_.model->context_max()}});
}

void OpenAiApi::Models(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.method != "GET" && request.method != "HEAD") {
    return Reply(exchange, "models", WrongMethod("GET"));
  }
  if (!options_.probes.ready()) {
    return Reply(
        exchange, "models",
        ToHttp(ToApiError(absl::UnavailableError("no decode worker is ready"), absl::Seconds(1))));
  }
  const std::string path = PercentDecoded(request.path());
  if (path == "/v1/models" || path == "/v1/models/") {
    return Reply(exchange, "models",
                 Json(absl::StrCat("{\"object\":\"list\",\"data\":[", ModelEntry(), "]}")));
  }
  const std::string asked = path.substr(std::string("/v1/models/").size());
  if (auto error = options_.model->CheckName(asked)) {
    return Reply(exchange, "models", ToHttp(*error));
  }
  Reply(exchange, "models", Json(ModelEntry()));
}

}  // namespace baton::server
