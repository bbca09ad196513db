// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The edge between a scripted dispatcher and a client that only remembers what it was sent.
#include "server/openai_answer.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/bell.h"
#include "base/mutex.h"
#include "tests/text/tiny_vocabulary.h"

namespace baton::server {
namespace {

using nlohmann::json;

class Remembering final : public HttpExchange {
 public:
  const HttpRequest& request() const override { return request_; }
  void Send(HttpResponse response) override {
    MutexLock lock(&mutex);
    sent = std::move(response);
    over = true;
    bell.Ring();
  }
  void StartStream(HttpResponse head) override {
    MutexLock lock(&mutex);
    sent = std::move(head);
    streamed = true;
  }
  bool Write(absl::string_view bytes) override {
    MutexLock lock(&mutex);
    if (deaf) return false;
    stream.append(bytes.data(), bytes.size());
    return true;
  }
  void Finish() override {
    MutexLock lock(&mutex);
    over = true;
    bell.Ring();
  }
  void OnGone(std::function<void()> call) override { gone = std::move(call); }

  void AwaitOver() {
    while (true) {
      {
        MutexLock lock(&mutex);
        if (over) return;
      }
      REQUIRE(bell.Wait(absl::Seconds(10)));
    }
  }
  // The JSON of every event; [DONE] is left out but must be there.
  std::vector<json> Events() {
    std::vector<json> events;
    size_t begin = 0, end = 0;
    bool done = false;
    while ((end = stream.find("\n\n", begin)) != std::string::npos) {
      const std::string event = stream.substr(begin, end - begin);
      begin = end + 2;
      REQUIRE(event.rfind("data: ", 0) == 0);
      REQUIRE_FALSE(done);
      done = event == "data: [DONE]";
      if (!done) events.push_back(json::parse(event.substr(6)));
    }
    CHECK(done);
    return events;
  }

  Mutex mutex;
  Bell bell;
  bool over = false, streamed = false, deaf = false;
  HttpResponse sent;
  std::string stream;
  std::function<void()> gone;

 private:
  HttpRequest request_;
};

struct Edge {
  Edge()
      : tokenizer(*text::Tokenizer::Create(text::TinyData())),
        metrics(MetricLabels()),
        counted(&metrics) {}

  std::shared_ptr<OpenAiAnswer> Begin(OpenAiAnswer::Setup setup, size_t choices = 1,
                                      std::vector<std::string> stops = {}) {
    setup.frame.id = "id-1";
    setup.frame.model = "tiny";
    setup.request_id = "r-1";
    setup.route = "chat";
    setup.prompt_tokens = {5};
    setup.samples = static_cast<uint32_t>(choices);
    AnswerRequest request;
    request.sequence.prompt = {10, 11, 12, 13, 14};
    request.sequence.remaining_tokens = 4;
    request.text.tokens_max = 4;
    request.text.stop_ids = {text::kTinyEnd};
    request.text.stops = std::move(stops);
    request.received = clock.Now();
    const Answer::Context context = {&desk, &counted, &tokenizer, &clock};
    auto answer = std::make_shared<OpenAiAnswer>(std::move(setup), context, exchange);
    answer->Begin(std::vector<AnswerRequest>(choices, request));
    for (router::ClientInput& input : desk.TakeInputs()) {
      clients.push_back(std::get<router::Submit>(input).client);
    }
    return answer;
  }
  void Token(size_t choice, uint32_t index, char letter) {
    const auto ids = tokenizer.Encode(std::string(1, letter), false);
    router::Delivered delivered{clients.at(choice), index, {ids->at(0), -0.5f, {}}};
    desk.Deliver({delivered});
  }
  void Over(size_t choice, absl::Status status, router::Outcome outcome) {
    router::Over over;
    over.client = clients.at(choice);
    over.status = std::move(status);
    over.outcome = outcome;
    over.path = router::Path::kColocated;
    over.prompt.cached_tokens = 3;
    over.retry_after = absl::Milliseconds(1500);
    desk.Deliver({over});
  }

  const RealClock clock;
  const text::Tokenizer tokenizer;
  Metrics metrics;
  FrontendMetrics counted;
  Bell loop;
  std::shared_ptr<Remembering> exchange = std::make_shared<Remembering>();
  ClientDesk desk{&loop, &clock};
  std::vector<router::ClientKey> clients;
};

TEST_CASE("a whole answer has its text, usage and path", "[openai]") {
  Edge edge;
  edge.Begin({});
  edge.Token(0, 0, 'x');
  edge.Token(0, 1, 'y');
  edge.Over(0, absl::OkStatus(), router::Outcome::kStop);
  edge.exchange->AwaitOver();
  const json answer = json::parse(edge.exchange->sent.body);
  CHECK(edge.exchange->sent.status == 200);
  CHECK(answer["choices"][0]["message"]["content"] == "xy");
  CHECK(answer["choices"][0]["finish_reason"] == "stop");
  CHECK(answer["choices"][0]["logprobs"].is_null());
  CHECK(answer["usage"]["total_tokens"] == 7);
  CHECK(answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 3);
  const HttpHeaders& headers = edge.exchange->sent.headers;
  CHECK(std::count(headers.begin(), headers.end(),
                   std::pair<std::string, std::string>("x-baton-path", "colocated")) == 1);
}

TEST_CASE("a stream begins with the role and ends with finish, usage and DONE", "[openai]") {
  Edge edge;
  OpenAiAnswer::Setup setup;
  setup.stream = setup.include_usage = setup.frame.usage_key = setup.frame.logprobs = true;
  edge.Begin(setup, 2);
  for (uint32_t i = 0; i < 4; ++i) {
    edge.Token(0, i, 'x');
    edge.Token(1, i, 'y');
  }
  edge.Over(1, absl::OkStatus(), router::Outcome::kLength);
  edge.Over(0, absl::OkStatus(), router::Outcome::kLength);
  edge.exchange->AwaitOver();
  const std::vector<json> events = edge.exchange->Events();
  CHECK(events.front()["choices"][0]["delta"]["role"] == "assistant");
  std::string text[2];
  int finished = 0;
  for (const json& event : events) {
    CHECK(event["id"] == "id-1");
    CHECK(event.contains("usage"));
    for (const json& choice : event["choices"]) {
      REQUIRE(choice.contains("finish_reason"));
      finished += choice["finish_reason"] == "length";
      text[choice["index"].get<int>()] += choice["delta"].value("content", "");
    }
  }
  CHECK(text[0] == "xxxx");
  CHECK(text[1] == "yyyy");
  CHECK(finished == 2);
  CHECK(events.back()["choices"].empty());
  CHECK(events.back()["usage"]["completion_tokens"] == 8);
}

TEST_CASE("a failure before the first token is an HTTP status, later an event", "[openai]") {
  Edge edge;
  OpenAiAnswer::Setup setup;
  setup.stream = true;
  edge.Begin(setup);
  const auto failure = absl::ResourceExhaustedError("no blocks");
  SECTION("before") {
    edge.Over(0, failure, router::Outcome::kRejected);
    edge.exchange->AwaitOver();
    CHECK_FALSE(edge.exchange->streamed);
    CHECK(edge.exchange->sent.status == 429);
    CHECK(json::parse(edge.exchange->sent.body)["error"]["code"] == "rate_limit_exceeded");
    const HttpHeaders& headers = edge.exchange->sent.headers;
    CHECK(std::count(headers.begin(), headers.end(),
                     std::pair<std::string, std::string>("Retry-After", "2")) == 1);
  }
  SECTION("later") {
    edge.Token(0, 0, 'x');
    edge.Over(0, failure, router::Outcome::kError);
    edge.exchange->AwaitOver();
    CHECK(edge.exchange->sent.status == 200);
    CHECK(edge.exchange->Events().back()["error"]["message"] == "no blocks");
  }
}

TEST_CASE("a stop string ends the answer without being shown", "[openai]") {
  Edge edge;
  edge.Begin({}, 1, {"yz"});
  edge.Token(0, 0, 'x');
  edge.Token(0, 1, 'y');
  edge.Token(0, 2, 'z');
  bool completed = false;
  while (!completed) {
    REQUIRE(edge.loop.Wait(absl::Seconds(10)));
    for (const router::ClientInput& input : edge.desk.TakeInputs()) {
      completed = completed || std::holds_alternative<router::Complete>(input);
    }
  }
  edge.Over(0, absl::OkStatus(), router::Outcome::kStop);
  edge.exchange->AwaitOver();
  const json answer = json::parse(edge.exchange->sent.body);
  CHECK(answer["choices"][0]["message"]["content"] == "x");
  CHECK(answer["choices"][0]["finish_reason"] == "stop");
  CHECK(answer["usage"]["completion_tokens"] == 3);
}

TEST_CASE("a client that leaves or does not read cancels every choice", "[openai]") {
  Edge edge;
  OpenAiAnswer::Setup setup;
  setup.stream = true;
  const auto answer = edge.Begin(setup, 3);
  SECTION("leaves") { edge.exchange->gone(); }
  SECTION("does not read") {
    edge.exchange->deaf = true;
    edge.Token(0, 0, 'x');
  }
  size_t cancelled = 0;
  while (cancelled < 3) {
    REQUIRE(edge.loop.Wait(absl::Seconds(10)));
    for (const router::ClientInput& input : edge.desk.TakeInputs()) {
      cancelled += std::holds_alternative<router::Cancel>(input);
    }
  }
  CHECK(cancelled == 3);
}

}  // namespace
}  // namespace baton::server
