// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/openai_request.h"

#include <catch2/catch.hpp>

namespace baton::server {
namespace {

constexpr char kHello[] = R"("messages":[{"role":"user","content":"hi"}])";

std::optional<ApiError> Chat(const std::string& fields, OpenAiRequest* to) {
  return ParseOpenAi(OpenAiKind::kChat, "{" + fields + "}", to);
}
std::optional<ApiError> Chat(const std::string& fields) {
  OpenAiRequest request;
  return Chat(fields, &request);
}
std::string With(const std::string& more) { return std::string(kHello) + "," + more; }

TEST_CASE("a chat request without options has OpenAI's defaults", "[openai]") {
  OpenAiRequest request;
  REQUIRE_FALSE(Chat(kHello, &request));
  CHECK(request.messages.at(0).content == "hi");
  CHECK(request.n == 1);
  CHECK_FALSE(request.max_tokens);
  CHECK_FALSE(request.seed);
  CHECK(request.sampling.temperature == 1);
  CHECK(request.sampling.logprobs == -1);
  CHECK_FALSE(request.stream);
}

TEST_CASE("null is an absent field, and unknown fields are ignored", "[openai]") {
  OpenAiRequest request;
  REQUIRE_FALSE(Chat(With(R"("stop":null,"seed":null,"n":null,"tools":null,"stream_options":null,
                             "logprobs":null,"max_tokens":null,"foo":{"bar":[1]})"),
                     &request));
  CHECK(request.n == 1);
  CHECK(request.stops.empty());
}

TEST_CASE("content parts are joined, and max_completion_tokens wins", "[openai]") {
  OpenAiRequest request;
  REQUIRE_FALSE(Chat(R"("messages":[{"role":"developer","content":[{"type":"text","text":"a"},
                        {"type":"text","text":"b"}]}],"max_tokens":9,"max_completion_tokens":4)",
                     &request));
  CHECK(request.messages.at(0).role == "system");
  CHECK(request.messages.at(0).content == "ab");
  CHECK(request.max_tokens == 4u);
}

TEST_CASE("a wrong type, range or combination names the field", "[openai]") {
  const std::pair<const char*, const char*> kBad[] = {
      {R"("temperature":"hot")", "temperature"},
      {R"("temperature":2.5)", "temperature"},
      {R"("top_p":1.5)", "top_p"},
      {R"("n":0)", "n"},
      {R"("n":1.5)", "n"},
      {R"("n":100000)", "n"},
      {R"("max_tokens":0)", "max_tokens"},
      {R"("max_tokens":"many")", "max_tokens"},
      {R"("stream":"yes")", "stream"},
      {R"("stop":5)", "stop"},
      {R"("stop":["a","b","c","d","e"])", "stop"},
      {R"("stop":[""])", "stop"},
      {R"("frequency_penalty":-2.5)", "frequency_penalty"},
      {R"("top_logprobs":3)", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs"},
      {R"("stream_options":{"include_usage":true})", "stream_options"},
      {R"("logit_bias":{"x":1})", "logit_bias"},
      {R"("logit_bias":{"5":101})", "logit_bias"},
      {R"("seed":1e300)", "seed"},
      {R"("tools":[{"type":"function"}])", "tools"},
      {R"("response_format":{"type":"json_object"})", "response_format"},
      {R"("prompt_logprobs":2)", "prompt_logprobs"},
  };
  for (const auto& [field, param] : kBad) {
    INFO(field);
    const auto error = Chat(With(field));
    REQUIRE(error);
    CHECK(error->status == 400);
    CHECK(error->param == param);
    CHECK(error->message.size() > 10);
  }
}

TEST_CASE("messages are checked one by one", "[openai]") {
  CHECK(Chat(R"("model":"m")")->param == "messages");
  CHECK(Chat(R"("messages":[])")->param == "messages");
  CHECK(Chat(R"("messages":"hi")")->param == "messages");
  CHECK(Chat(R"("messages":[5])")->param == "messages[0]");
  CHECK(Chat(R"("messages":[{"role":"wizard","content":"x"}])")->param == "messages[0].role");
  CHECK(Chat(R"("messages":[{"role":"user"}])")->param == "messages[0].content");
  CHECK(Chat(R"("messages":[{"role":"user","content":[{"type":"image_url"}]}])")->param ==
        "messages[0].content");
}

TEST_CASE("what is not a JSON object of bounded depth is a 400", "[openai]") {
  OpenAiRequest request;
  const std::string deep = "{\"messages\":" + std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& body :
       {std::string(), std::string("hello"), std::string("[1,2]"), std::string("{\"a\":"),
        std::string("{\"a\":\"\xff\xfe\"}"), std::string("{\"a\":\"\\ud800\"}"), deep + "}",
        std::string("{\"a\":1e999}")}) {
    INFO(body.substr(0, 40));
    const auto error = ParseOpenAi(OpenAiKind::kChat, body, &request);
    REQUIRE(error);
    CHECK(error->status == 400);
  }
}

TEST_CASE("completions take a text, ids, or a list of either", "[openai]") {
  auto parse = [](const std::string& prompt, OpenAiRequest* to) {
    return ParseOpenAi(OpenAiKind::kCompletions, "{\"prompt\":" + prompt + "}", to);
  };
  OpenAiRequest one, ids, texts, lists;
  REQUIRE_FALSE(parse("\"abc\"", &one));
  CHECK(std::get<std::string>(one.prompts.at(0)) == "abc");
  CHECK(one.max_tokens == 16u);
  REQUIRE_FALSE(parse("[1,2,3]", &ids));
  CHECK(std::get<std::vector<TokenId>>(ids.prompts.at(0)) == std::vector<TokenId>{1, 2, 3});
  REQUIRE_FALSE(parse("[\"a\",\"b\"]", &texts));
  CHECK(texts.prompts.size() == 2);
  REQUIRE_FALSE(parse("[[1],[2,3]]", &lists));
  CHECK(std::get<std::vector<TokenId>>(lists.prompts.at(1)).size() == 2);
  OpenAiRequest bad;
  CHECK(parse("[]", &bad));
  CHECK(parse("[1,-5]", &bad));
  CHECK(parse("[1,\"a\"]", &bad));
  CHECK(parse("7", &bad));
  CHECK(parse("\"a\",\"echo\":true,\"logprobs\":1", &bad)->param == "echo");
}

TEST_CASE("a seed keeps 64 bits and a zero top_p is greedy", "[openai]") {
  OpenAiRequest request;
  REQUIRE_FALSE(Chat(With(R"("seed":4294967303,"top_p":0)"), &request));
  CHECK(request.seed == 4294967303u);
  CHECK(request.sampling.top_p > 0);
  CHECK(request.sampling.top_p < 1e-6f);
}

TEST_CASE("tokenizing bodies come in vLLM's and llama.cpp's form", "[openai]") {
  TokenizeBody vllm, llama, chat, none;
  REQUIRE_FALSE(ParseTokenize(R"({"prompt":"x"})", &vllm));
  CHECK(vllm.add_special);
  REQUIRE_FALSE(ParseTokenize(R"({"content":"x","with_pieces":true})", &llama));
  CHECK(llama.content_form);
  CHECK_FALSE(llama.add_special);
  REQUIRE_FALSE(ParseTokenize(R"({"messages":[{"role":"user","content":"x"}]})", &chat));
  CHECK(chat.chat);
  CHECK(ParseTokenize("{}", &none));
  DetokenizeBody ids;
  CHECK(ParseDetokenize(R"({"tokens":[1,-2]})", &ids));
  CHECK_FALSE(ParseDetokenize(R"({"tokens":[]})", &ids));
}

}  // namespace
}  // namespace baton::server
