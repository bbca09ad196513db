// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// `baton score` and `baton perplexity`: what the model in this process thinks of tokens.
//
// score reads JSON lines {"ids":[…],"positions":[…]} and writes, for each, the best tokens
// at those positions (the last one if none are named) with their log-probabilities.  A
// line that is wrong gets {"error":…} and makes the exit code 1; the others are answered.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "engine/sampler.h"
#include "engine/score.h"
#include "engine/text/text_model.h"
#include "server/commands.h"
#include "server/local_model.h"

namespace baton::server {
namespace {

using nlohmann::json;

constexpr int64_t kTopMax = 1 << 20;
constexpr int64_t kChunkMax = 4096;
constexpr size_t kLineBytesMax = 64 << 20;
constexpr int64_t kWindowMax = 1 << 20;

int Usage(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

absl::StatusOr<uint32_t> Bounded(const CommandLine& line, const char* name, int64_t otherwise,
                                 int64_t low, int64_t high) {
  ASSIGN_OR_RETURN(const int64_t value, line.Integer(name, otherwise));
  if (value < low || value > high) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": ", value, " is not in ", low, " to ", high));
  }
  return static_cast<uint32_t>(value);
}

// A JSON array of integers, each in [0, INT32_MAX].
template <typename Integer>
absl::StatusOr<std::vector<Integer>> Integers(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is not an array"));
  }
  std::vector<Integer> numbers;
  numbers.reserve(found->size());
  for (const json& item : *found) {
    if (!item.is_number_integer() || item < 0 || item > INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, "\" holds something that is not an id or a position"));
    }
    numbers.push_back(item.get<Integer>());
  }
  return numbers;
}

class ScoreCommand {
 public:
  ScoreCommand(LocalModel model, uint32_t chunk, uint32_t top, bool bits)
      : model_(std::move(model)),
        scorer_(model_.forward.get(), model_.kv_type, chunk),
        sampler_(model_.forward->spec().vocab, {}),
        bits_(bits) {
    spec_.params.temperature = 0;
    spec_.params.logprobs = static_cast<int32_t>(top);
  }

  absl::StatusOr<json> Answer(const std::string& line) {
    if (line.size() > kLineBytesMax) return absl::InvalidArgumentError("the line is too long");
    const json request = json::parse(line, nullptr, false);
    if (!request.is_object()) return absl::InvalidArgumentError("not a JSON object");
    ASSIGN_OR_RETURN(const auto ids, Integers<TokenId>(request, "ids"));
    if (ids.empty()) return absl::InvalidArgumentError("\"ids\" is empty");
    std::vector<uint32_t> positions = {static_cast<uint32_t>(ids.size() - 1)};
    if (request.contains("positions")) {
      ASSIGN_OR_RETURN(positions, Integers<uint32_t>(request, "positions"));
    }
    // Rows come in ascending order; the answer is in the order asked.
    std::vector<uint32_t> ascending = positions;
    std::sort(ascending.begin(), ascending.end());
    ascending.erase(std::unique(ascending.begin(), ascending.end()), ascending.end());
    std::vector<json> rows(ascending.size());
    size_t next = 0;
    RETURN_IF_ERROR(
        scorer_.Run(ids, ascending, [&](uint32_t position, absl::Span<const float> logits) {
          rows[next++] = {{"pos", position}, {"top", Top(logits)}};
        }));
    json answer = json::array();
    for (const uint32_t position : positions) {
      answer.push_back(
          rows[std::lower_bound(ascending.begin(), ascending.end(), position) - ascending.begin()]);
    }
    return json{{"positions", std::move(answer)}};
  }

 private:
  json Top(absl::Span<const float> logits) {
    json top = json::array();
    for (const TokenLogprob& token : sampler_.Draw(logits, spec_).top) {
      json value = token.logprob;
      if (bits_) value = absl::StrFormat("%08x", std::bit_cast<uint32_t>(token.logprob));
      top.push_back({token.id, std::move(value)});
    }
    return top;
  }

  LocalModel model_;
  engine::Scorer scorer_;
  engine::Sampler sampler_;
  engine::SampleSpec spec_;
  const bool bits_;
};

int RunScore(const CommandLine& line) {
  if (const absl::Status status = CheckLocalModelFlags(line); !status.ok()) return Usage(status);
  const auto chunk = Bounded(line, "chunk", 512, 1, kChunkMax);
  if (!chunk.ok()) return Usage(chunk.status());
  const auto top = Bounded(line, "top", 20, 0, kTopMax);
  if (!top.ok()) return Usage(top.status());
  auto model = LoadLocalModel(line);
  if (!model.ok()) return Fail(model.status());
  ScoreCommand command(*std::move(model), *chunk, *top, line.Has("bits"));
  int code = kExitOk;
  std::string text;
  while (std::getline(std::cin, text)) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<json> answer = command.Answer(text);
    if (!answer.ok()) {
      code = kExitFailure;
      answer = json{{"error", std::string(answer.status().message())}};
    }
    std::cout << answer->dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
  return code;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

struct PerplexityFlags {
  uint32_t window = 512;
  uint32_t chunk = 512;
  uint32_t windows_max = 0;
};

absl::StatusOr<PerplexityFlags> ReadPerplexityFlags(const CommandLine& line) {
  RETURN_IF_ERROR(CheckLocalModelFlags(line));
  if (!line.Has("text")) return absl::InvalidArgumentError("--text FILE is missing");
  PerplexityFlags flags;
  ASSIGN_OR_RETURN(flags.window, Bounded(line, "ctx", 512, 4, kWindowMax));
  ASSIGN_OR_RETURN(flags.chunk, Bounded(line, "chunk", 512, 1, kChunkMax));
  ASSIGN_OR_RETURN(flags.windows_max, Bounded(line, "windows", INT32_MAX, 1, INT32_MAX));
  return flags;
}

absl::Status Perplexity(const CommandLine& line, const PerplexityFlags& flags) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(line.Get("text")));
  ASSIGN_OR_RETURN(LocalModel model, LoadLocalModel(line));
  ASSIGN_OR_RETURN(const text::TextModel words, text::TextModel::Load(*model.file));
  ASSIGN_OR_RETURN(std::vector<TokenId> ids, words.EncodePrompt(text));
  const size_t windows = std::min<size_t>(ids.size() / flags.window, flags.windows_max);
  if (windows == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the text has ", ids.size(), " tokens, less than one window of ", flags.window));
  }
  engine::Scorer scorer(model.forward.get(), model.kv_type, flags.chunk);
  engine::WindowScore all;
  for (size_t i = 0; i < windows; ++i) {
    const auto window = absl::MakeSpan(ids).subspan(i * flags.window, flags.window);
    const auto& tokenizer = words.tokenizer();
    if (tokenizer.add_bos() && tokenizer.bos().has_value()) window[0] = *tokenizer.bos();
    ASSIGN_OR_RETURN(const engine::WindowScore score, engine::ScoreWindow(scorer, window));
    all.nll_sum += score.nll_sum;
    all.tokens += score.tokens;
    const json row = {{"chunk", i},
                      {"nll_sum", score.nll_sum},
                      {"ppl", std::exp(score.nll_sum / score.tokens)},
                      {"running", std::exp(all.nll_sum / all.tokens)}};
    std::cout << row.dump() << std::endl;
  }
  const json total = {{"perplexity", std::exp(all.nll_sum / all.tokens)},
                      {"chunks", windows},
                      {"tokens", all.tokens}};
  std::cout << total.dump() << std::endl;
  return absl::OkStatus();
}

int RunPerplexity(const CommandLine& line) {
  const auto flags = ReadPerplexityFlags(line);
  if (!flags.ok()) return Usage(flags.status());
  const absl::Status status = Perplexity(line, *flags);
  return status.ok() ? kExitOk : Fail(status);
}

std::vector<FlagSpec> With(std::vector<FlagSpec> more) {
  std::vector<FlagSpec> flags = LocalModelFlags();
  flags.push_back({"chunk", "N", "tokens computed at once (default 512); changes no result"});
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

}  // namespace

std::vector<Command> EngineCommands() {
  return {
      {"score", "", "log-probabilities of the best tokens at positions of given ids; JSON lines",
       With({{"top", "N", "tokens per position (default 20)"},
             {"bits", "", "log-probabilities as the hexadecimal bits of a float"}}),
       &RunScore},
      {"perplexity", "", "perplexity of a text, by windows of which the second half is scored",
       With({{"text", "FILE", "UTF-8 text"},
             {"ctx", "N", "tokens in a window (default 512)"},
             {"windows", "N", "score only the first N windows"}}),
       &RunPerplexity},
  };
}

}  // namespace baton::server
