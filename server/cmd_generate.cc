// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// generate and chat: terminal clients over gRPC.
//
// Text streams to stdout as it comes; the summary goes to stderr, so that stdout can be piped.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "proto/inference.grpc.pb.h"
#include "server/commands.h"
#include "server/config_flags.h"

namespace baton::server {
namespace {

namespace pb = v1;
using json = nlohmann::ordered_json;

constexpr absl::string_view kCodeNames[] = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

int FailRpc(const std::string& address, const grpc::Status& status) {
  const auto code = static_cast<size_t>(status.error_code());
  std::fprintf(stderr, "baton: %s: %s (%s)\n",
               std::string(code < std::size(kCodeNames) ? kCodeNames[code] : "?").c_str(),
               status.error_message().c_str(), address.c_str());
  return kExitFailure;
}

int Usage(const std::string& why) {
  std::fprintf(stderr, "baton: %s\n", why.c_str());
  return kExitUsage;
}

absl::StatusOr<std::string> AddressOf(const CommandLine& line) {
  if (line.Has("grpc")) return line.Get("grpc");
  ASSIGN_OR_RETURN(const config::Config config, LoadConfig(line));
  return config.frontend.grpc.text();
}

std::unique_ptr<pb::Inference::Stub> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  arguments.SetMaxSendMessageSize(64 << 20);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return pb::Inference::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

double Percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(std::lround(part * last))];
}

std::string Bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return absl::StrFormat("%08x", bits);
}

// What came of one call.
struct Answer {
  std::string text;
  std::string request_id;
  std::vector<int32_t> ids;
  std::vector<std::string> logprob_bits;
  std::vector<double> gaps_ms;  // between messages with text, per token
  pb::Summary summary;
};

// Streams to stdout unless `quiet`.
grpc::Status Ask(pb::Inference::Stub& stub, const pb::GenerateRequest& request, bool quiet,
                 Answer* answer) {
  grpc::ClientContext context;
  const auto stream = stub.Generate(&context, request);
  const RealClock clock;
  absl::Time last = absl::InfinitePast();
  pb::GenerateResponse message;
  while (stream->Read(&message)) {
    if (!message.request_id().empty()) answer->request_id = message.request_id();
    for (const pb::OutputToken& token : message.tokens()) {
      answer->ids.push_back(token.id());
      if (token.has_logprob()) answer->logprob_bits.push_back(Bits(token.logprob()));
    }
    if (!message.text().empty()) {
      const absl::Time now = clock.Now();
      const int tokens = std::max(1, message.tokens_size());
      if (last != absl::InfinitePast()) {
        const double gap = absl::ToDoubleMilliseconds(now - last) / tokens;
        answer->gaps_ms.insert(answer->gaps_ms.end(), tokens, gap);
      }
      last = now;
      answer->text += message.text();
      if (!quiet) {
        std::fwrite(message.text().data(), 1, message.text().size(), stdout);
        std::fflush(stdout);
      }
    }
    if (message.has_summary()) answer->summary = message.summary();
  }
  return stream->Finish();
}

json KvJson(const pb::KvTimings& kv) {
  return {{"bytes", kv.bytes()},
          {"blocks", kv.blocks()},
          {"transport", kv.transport()},
          {"compute_ms", kv.compute_ms()},
          {"transfer_ms", kv.transfer_ms()},
          {"exposed_ms", kv.exposed_ms()},
          {"predicted_ms", kv.predicted_ms()}};
}

void PrintJson(const Answer& answer, bool logprobs) {
  const pb::Summary& summary = answer.summary;
  json out = {
      {"text", answer.text},
      {"token_ids", answer.ids},
      {"prompt_tokens", summary.usage().prompt_tokens()},
      {"cached_tokens", summary.usage().cached_tokens()},
      {"completion_tokens", summary.usage().completion_tokens()},
      {"finish_reason", summary.finish_reason()},
      {"path", summary.path()},
      {"ttft_ms", summary.ttft_ms()},
      {"itl_ms",
       {{"p50", Percentile(answer.gaps_ms, 0.5)}, {"p99", Percentile(answer.gaps_ms, 0.99)}}},
      {"kv", KvJson(summary.kv())},
      {"attempts", summary.attempts()},
      {"request_id", answer.request_id}};
  if (logprobs) out["logprob_bits"] = answer.logprob_bits;
  std::printf("%s\n", out.dump(-1, ' ', false, json::error_handler_t::replace).c_str());
}

void PrintSummary(const Answer& answer) {
  const pb::Summary& summary = answer.summary;
  std::fprintf(stderr,
               "\n[path %s, %u prompt tokens (%u cached), %u answer tokens, %s; TTFT %.1f ms, "
               "ITL p50 %.1f ms p99 %.1f ms",
               summary.path().c_str(), summary.usage().prompt_tokens(),
               summary.usage().cached_tokens(), summary.usage().completion_tokens(),
               summary.finish_reason().c_str(), summary.ttft_ms(), Percentile(answer.gaps_ms, 0.5),
               Percentile(answer.gaps_ms, 0.99));
  const pb::KvTimings& kv = summary.kv();
  if (kv.bytes() > 0) {
    std::fprintf(stderr,
                 "; KV %.2f MB over %s, compute %.1f ms, transfer %.2f ms (predicted %.2f), "
                 "exposed %.2f ms",
                 static_cast<double>(kv.bytes()) * 1e-6, kv.transport().c_str(), kv.compute_ms(),
                 kv.transfer_ms(), kv.predicted_ms(), kv.exposed_ms());
  }
  std::fprintf(stderr, "]\n");
}

// The sampling flags that both commands share.
std::vector<FlagSpec> SamplingFlags() {
  return {{"grpc", "ADDR", "the front end's gRPC address (frontend.grpc)"},
          {"max-tokens", "N", "answer tokens at most (default: what the context leaves)"},
          {"temperature", "T", "0 to 2; 0 takes the most likely token (default 1)"},
          {"top-p", "P", "above 0, up to 1"},
          {"top-k", "K", "0: off"},
          {"seed", "S", "draws the same again"},
          {"stop", "TEXT", "ends the answer (repeatable, up to 4)"},
          {"logprobs", "N", "log-probabilities with N alternatives, for --json"}};
}

absl::Status SetSampling(const CommandLine& line, pb::GenerateRequest* request) {
  ASSIGN_OR_RETURN(const int64_t max_tokens, line.Integer("max-tokens", 1));
  ASSIGN_OR_RETURN(const double temperature, line.Number("temperature", 1));
  ASSIGN_OR_RETURN(const double top_p, line.Number("top-p", 1));
  ASSIGN_OR_RETURN(const int64_t top_k, line.Integer("top-k", 0));
  ASSIGN_OR_RETURN(const int64_t seed, line.Integer("seed", 0));
  ASSIGN_OR_RETURN(const int64_t logprobs, line.Integer("logprobs", 0));
  if (max_tokens < 1 || max_tokens > INT32_MAX) {
    return absl::InvalidArgumentError("--max-tokens must be at least 1");
  }
  if (logprobs < 0 || logprobs > 20) {
    return absl::InvalidArgumentError("--logprobs must be from 0 to 20");
  }
  if (line.Has("max-tokens")) request->set_max_tokens(static_cast<uint32_t>(max_tokens));
  if (line.Has("temperature")) request->set_temperature(static_cast<float>(temperature));
  if (line.Has("top-p")) request->set_top_p(static_cast<float>(top_p));
  if (line.Has("top-k")) request->set_top_k(static_cast<int32_t>(top_k));
  if (line.Has("seed")) request->set_seed(seed);
  if (line.Has("logprobs")) request->set_logprobs(static_cast<uint32_t>(logprobs));
  for (const std::string& stop : line.All("stop")) request->add_stop(stop);
  return absl::OkStatus();
}

absl::StatusOr<std::string> PromptOf(const CommandLine& line) {
  if (line.Has("prompt") == line.Has("prompt-file")) {
    return absl::InvalidArgumentError("give --prompt or --prompt-file");
  }
  if (line.Has("prompt")) return line.Get("prompt");
  const std::string path = line.Get("prompt-file");
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::InvalidArgumentError(absl::StrCat("cannot read ", path));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

int RunGenerate(const CommandLine& line) {
  pb::GenerateRequest request;
  const absl::StatusOr<std::string> prompt = PromptOf(line);
  if (!prompt.ok()) return Usage(std::string(prompt.status().message()));
  if (const absl::Status bad = SetSampling(line, &request); !bad.ok()) {
    return Usage(std::string(bad.message()));
  }
  const absl::StatusOr<std::string> address = AddressOf(line);
  if (!address.ok()) return Fail(address.status());
  if (line.Has("raw")) {
    request.set_prompt(*prompt);
    request.set_add_special_tokens(true);
  } else {
    pb::Message* message = request.mutable_messages()->add_messages();
    message->set_role("user");
    message->set_content(*prompt);
  }
  const bool as_json = line.Has("json");
  Answer answer;
  const grpc::Status status = Ask(*Connect(*address), request, as_json, &answer);
  if (!status.ok()) return FailRpc(*address, status);
  if (as_json) {
    PrintJson(answer, request.has_logprobs());
  } else {
    PrintSummary(answer);
  }
  return kExitOk;
}

int RunChat(const CommandLine& line) {
  pb::GenerateRequest request;
  if (const absl::Status bad = SetSampling(line, &request); !bad.ok()) {
    return Usage(std::string(bad.message()));
  }
  const absl::StatusOr<std::string> address = AddressOf(line);
  if (!address.ok()) return Fail(address.status());
  const auto stub = Connect(*address);
  auto say = [&request](const char* role, const std::string& text) {
    pb::Message* message = request.mutable_messages()->add_messages();
    message->set_role(role);
    message->set_content(text);
  };
  if (line.Has("system")) say("system", line.Get("system"));
  std::fprintf(stderr, "An empty line or Ctrl-D ends the conversation.\n");
  std::string words;
  while (std::fprintf(stderr, "> "), std::getline(std::cin, words) && !words.empty()) {
    say("user", words);
    Answer answer;
    const grpc::Status status = Ask(*stub, request, /*quiet=*/false, &answer);
    if (!status.ok()) return FailRpc(*address, status);
    PrintSummary(answer);
    say("assistant", answer.text);
  }
  return kExitOk;
}

}  // namespace

std::vector<Command> GenerateCommands() {
  std::vector<FlagSpec> generate = {{"prompt", "TEXT", "what to ask"},
                                    {"prompt-file", "FILE", "a file with it; - reads stdin"},
                                    {"raw", "", "no chat template: the prompt is continued"},
                                    {"json", "", "one JSON object instead of streamed text"}};
  std::vector<FlagSpec> chat = {{"system", "TEXT", "the system message"}};
  for (const FlagSpec& flag : SamplingFlags()) {
    generate.push_back(flag);
    chat.push_back(flag);
  }
  return {{"generate", "", "send one prompt and stream the answer", generate, RunGenerate},
          {"chat", "", "talk to the model in the terminal", chat, RunChat}};
}

}  // namespace baton::server
