// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The front end's HTTP API: OpenAI's routes, tokenizing, probes.
//
// Everything that can be refused without a model is refused here, with an HTTP status:
// content type, JSON, ranges, names, lengths.  Parsing, templates and tokenizing run on the
// work pool, never on a network thread.
//
// Thread:  Handle on the HTTP server's threads; the rest on the pool's.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "server/answer.h"
#include "server/frontend_model.h"
#include "server/http_server.h"
#include "server/openai_request.h"
#include "server/probes.h"
#include "server/work_pool.h"

namespace baton::server {

class OpenAiApi {
 public:
  struct Options {
    Answer::Context answer;
    const FrontendModel* model = nullptr;
    WorkPool* pool = nullptr;
    Probes probes;
    absl::Duration default_deadline = absl::Seconds(300);
    std::string id_prefix;  // unique in this cluster and life
    int64_t created = 0;    // of the model, seconds since 1970
  };
  explicit OpenAiApi(Options options) : options_(std::move(options)) {}

  void Handle(const std::shared_ptr<HttpExchange>& exchange);

 private:
  using Work = void (OpenAiApi::*)(const std::shared_ptr<HttpExchange>&);
  void Post(const std::shared_ptr<HttpExchange>& exchange, const char* route, Work work);
  void Chat(const std::shared_ptr<HttpExchange>& exchange);
  void Completions(const std::shared_ptr<HttpExchange>& exchange);
  void Tokenize(const std::shared_ptr<HttpExchange>& exchange);
  void Detokenize(const std::shared_ptr<HttpExchange>& exchange);
  void Models(const std::shared_ptr<HttpExchange>& exchange);
  void Generate(const std::shared_ptr<HttpExchange>& exchange, OpenAiKind kind);
  void Submit(const std::shared_ptr<HttpExchange>& exchange, const OpenAiRequest& request,
              std::vector<AnswerRequest> prompts, std::vector<std::string> echo);
  std::optional<ApiError> Prepare(const OpenAiRequest& request, absl::Time received,
                                  std::vector<AnswerRequest>* prompts,
                                  std::vector<std::string>* echo) const;
  void Reply(const std::shared_ptr<HttpExchange>& exchange, const char* route,
             HttpResponse response);
  std::string RequestId(const HttpRequest& request, const std::string& otherwise) const;
  std::string ModelEntry() const;

  const Options options_;
  std::atomic<uint64_t> next_id_{1};
};

}  // namespace baton::server
