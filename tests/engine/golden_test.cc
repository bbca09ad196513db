// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The whole engine on real weights against an independent reference (tests/golden).
//
// Needs the model that deploy/get_model.sh fetches (or BATON_TEST_MODEL); the perplexity
// test also needs the corpus beside the source tree.  What is missing is said, and its test
// skipped.  By default four windows of the corpus are scored and some long prompts left out;
// BATON_GOLDEN_ALL=1 in the environment takes everything.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/gguf.h"
#include "engine/model_loader.h"
#include "engine/score.h"
#include "engine/softmax.h"
#include "engine/text/text_model.h"

namespace baton::engine {
namespace {

using nlohmann::json;

const std::string kGolden = std::string(BATON_SOURCE_DIR) + "/tests/golden/";

bool Everything() { return std::getenv("BATON_GOLDEN_ALL") != nullptr; }

std::string ModelPath() {
  if (const char* path = std::getenv("BATON_TEST_MODEL"); path != nullptr) return path;
  return std::string(BATON_SOURCE_DIR) + "/models/smollm2-135m-instruct-q4_1.gguf";
}

struct Model {
  std::unique_ptr<Gguf> file;
  std::unique_ptr<Forward> forward;
};

// What tests/data/quantize.sh makes.
std::string ModelOfType(const std::string& type) {
  return std::string(BATON_SOURCE_DIR) + "/models/smollm2-135m-instruct-" + type + ".gguf";
}

// Nothing if there is no model.
std::optional<Model> Load(Activations activations, uint32_t threads,
                          const std::string& path = ModelPath()) {
  auto file = Gguf::Open(path);
  if (absl::IsNotFound(file.status())) {
    std::cerr << "SKIPPED: " << file.status().message()
              << " (deploy/get_model.sh, tests/data/quantize.sh, or set BATON_TEST_MODEL)\n";
    return std::nullopt;
  }
  REQUIRE(file.status().ToString() == "OK");
  Model model;
  model.file = std::make_unique<Gguf>(*std::move(file));
  const auto weights = LoadModel(*model.file);
  REQUIRE(weights.status().ToString() == "OK");
  ForwardOptions options;
  options.activations = activations;
  options.threads = threads;
  auto forward = Forward::Create(*weights, options);
  REQUIRE(forward.status().ToString() == "OK");
  model.forward = *std::move(forward);
  return model;
}

// How far rows are from the reference's.
struct Distance {
  std::vector<double> kl;
  int rows = 0, same = 0;              // all rows: the best token
  int sure_rows = 0, sure_same = 0;    // the reference's margin is over 0.5
  int close_rows = 0, close_same = 0;  // ... over 0.001
  double best_error = 0;               // |difference of the best's log-probability|
};

struct LogSoftmax {
  std::vector<float> logits;
  double log_sum = 0;
  explicit LogSoftmax(absl::Span<const float> row) : logits(row.begin(), row.end()) {
    std::vector<float> scratch;
    std::vector<double> blocks;
    log_sum = LogSumExp(row, scratch, blocks);
  }
  double of(TokenId id) const { return logits[id] - log_sum; }
  TokenId best() const {
    return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
};

// KL(reference || row) over the listed tokens and one bucket for the rest.
double Divergence(const json& top, const LogSoftmax& row) {
  double kl = 0, reference_rest = 1, row_rest = 1;
  for (const json& pair : top) {
    const double p = std::exp(pair[1].get<double>());
    kl += p * (pair[1].get<double>() - row.of(pair[0]));
    reference_rest -= p;
    row_rest -= std::exp(row.of(pair[0]));
  }
  if (reference_rest > 1e-9 && row_rest > 1e-12) {
    kl += reference_rest * std::log(reference_rest / row_rest);
  }
  return std::max(kl, 0.0);
}

void Compare(const LogSoftmax& row, TokenId best, double logprob, double margin, Distance& all) {
  const bool same = row.best() == best;
  ++all.rows;
  all.same += same;
  all.sure_rows += margin > 0.5;
  all.sure_same += margin > 0.5 && same;
  all.close_rows += margin > 0.001;
  all.close_same += margin > 0.001 && same;
  all.best_error = std::max(all.best_error, std::fabs(row.of(best) - logprob));
}

// One prompt, and the reference's own 32 tokens behind it.
void ComparePrompt(const json& prompt, Scorer& scorer, Distance& all) {
  const json& greedy = prompt["greedy"];
  std::vector<TokenId> ids = prompt["ids"];
  const size_t n = ids.size();
  for (const json& id : greedy["ids"]) ids.push_back(id);
  ids.pop_back();
  std::map<uint32_t, const json*> tops;
  for (const json& position : prompt["positions"]) {
    tops[position["pos"].get<uint32_t>()] = &position["top"];
  }
  std::vector<uint32_t> wanted;
  for (uint32_t p = 0; p < ids.size(); ++p) {
    if (tops.count(p) == 1 || p + 1 >= n) wanted.push_back(p);
  }
  const absl::Status status =
      scorer.Run(ids, wanted, [&](uint32_t p, absl::Span<const float> logits) {
        const LogSoftmax row(logits);
        if (const auto found = tops.find(p); found != tops.end()) {
          const json& top = *found->second;
          all.kl.push_back(Divergence(top, row));
          if (p + 1 < n) {
            const double best = top[0][1], second = top[1][1];
            Compare(row, top[0][0], best, best - second, all);
          }
        }
        if (p + 1 >= n) {
          const size_t step = p + 1 - n;
          Compare(row, greedy["ids"][step], greedy["logprob"][step], greedy["margin"][step], all);
        }
      });
  REQUIRE(status.ToString() == "OK");
}

// Prompts whose length another prompt has too, and which take long.
bool IsLongTwin(const std::string& id) {
  return id == "p511b" || id == "p512b" || id == "p513b" || id == "p1500b";
}

Distance CompareAll(Forward& forward, KvType type, size_t tokens_max) {
  Distance all;
  Scorer scorer(&forward, type, 256);
  std::ifstream file(kGolden + "logits_smollm2.jsonl");
  REQUIRE(file.good());
  for (std::string line; std::getline(file, line);) {
    const json prompt = json::parse(line);
    if (!Everything() && (prompt["ids"].size() > tokens_max || IsLongTwin(prompt["id"]))) continue;
    ComparePrompt(prompt, scorer, all);
  }
  std::sort(all.kl.begin(), all.kl.end());
  double sum = 0;
  for (const double kl : all.kl) sum += kl;
  std::cerr << forward.isa_name() << ", KV " << KvTypeName(type) << ": " << all.kl.size()
            << " rows, KL mean " << sum / all.kl.size() << " p99 "
            << all.kl[all.kl.size() * 99 / 100] << " max " << all.kl.back() << "; best token "
            << all.same << "/" << all.rows << ", sure " << all.sure_same << "/" << all.sure_rows
            << "; best's error " << all.best_error << "\n";
  return all;
}

// The perplexity corpus in tokens; none, and a word, if it or the model is not there.
std::vector<TokenId> CorpusIds() {
  std::ifstream corpus(std::string(BATON_SOURCE_DIR) + "/../shared/golden/corpus.txt",
                       std::ios::binary);
  if (!corpus.good()) {
    std::cerr << "SKIPPED: the perplexity corpus is not beside the source tree\n";
    return {};
  }
  std::string text((std::istreambuf_iterator<char>(corpus)), {});
  text.pop_back();
  const auto file = Gguf::Open(ModelPath());
  if (!file.ok()) {
    std::cerr << "SKIPPED: " << file.status().message() << " (run deploy/get_model.sh)\n";
    return {};
  }
  const auto words = text::TextModel::Load(*file);
  REQUIRE(words.ok());
  const auto ids = words->EncodePrompt(text);
  REQUIRE(ids.ok());
  return *ids;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

TEST_CASE("with f32 activations logits are the reference's to the fifth decimal") {
  auto model = Load(Activations::kF32, 2);
  if (!model.has_value()) return;
  const Distance all = CompareAll(*model->forward, KvType::kF32, 100);
  // The reference's five decimals alone make up to 5e-6 a row.
  CHECK(Mean(all.kl) <= 1e-6);
  CHECK(all.kl.back() <= 1e-5);
  CHECK(all.close_same == all.close_rows);
  CHECK(all.best_error <= 0.001);
}

void CheckInt8(const Distance& all) {
  CHECK(Mean(all.kl) <= 0.006);
  if (all.kl.size() >= 100) CHECK(all.kl[all.kl.size() * 99 / 100] <= 0.04);
  CHECK(all.kl.back() <= 0.10);
  CHECK(all.same >= 0.95 * all.rows);
  CHECK(all.sure_same >= 0.99 * all.sure_rows);
  CHECK(all.best_error <= 0.8);
}

TEST_CASE("with int8 activations logits are within what int8 costs") {
  auto model = Load(Activations::kInt8, 2);
  if (!model.has_value()) return;
  const Distance all = CompareAll(*model->forward, kDefaultKvType, SIZE_MAX);
  REQUIRE(all.rows > 500);
  CheckInt8(all);
}

TEST_CASE("keys and values as int8 stay within the same") {
  auto model = Load(Activations::kInt8, 2);
  if (!model.has_value()) return;
  CheckInt8(CompareAll(*model->forward, KvType::kInt8, 600));
}

TEST_CASE("a row's bits depend neither on threads nor on the cut into chunks") {
  std::ifstream file(kGolden + "logits_smollm2.jsonl");
  std::vector<TokenId> ids;
  for (std::string line; ids.size() < 100 && std::getline(file, line);) {
    ids = json::parse(line)["ids"].get<std::vector<TokenId>>();
  }
  ids.resize(50);
  std::vector<uint32_t> expected;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    auto model = Load(Activations::kInt8, threads);
    if (!model.has_value()) return;
    for (const uint32_t chunk : {512u, 1u, 7u, 16u, 33u}) {
      Scorer scorer(model->forward.get(), kDefaultKvType, chunk);
      std::vector<uint32_t> bits;
      const auto status =
          scorer.Run(ids, {15, 16, 33, 48, 49}, [&](uint32_t, absl::Span<const float> logits) {
            for (const float x : logits) {
              bits.push_back(std::bit_cast<uint32_t>(x));
            }
          });
      REQUIRE(status.ok());
      if (expected.empty()) expected = bits;
      INFO(threads << " threads, chunk " << chunk);
      CHECK((bits == expected));
    }
  }
}

TEST_CASE("perplexity of the corpus is the reference's within the tolerance") {
  const auto ids = CorpusIds();
  if (ids.empty()) return;
  auto model = Load(Activations::kInt8, 2);
  REQUIRE(model.has_value());
  std::ifstream file(kGolden + "perplexity_smollm2.json");
  const json golden = json::parse(file);
  REQUIRE(ids.size() == golden["n_tokens"]);

  Scorer scorer(model->forward.get(), kDefaultKvType, 256);
  double sum = 0, reference_sum = 0;
  uint32_t tokens = 0;
  for (const json& chunk : golden["oracle_float32"]["chunks"]) {
    const size_t i = chunk["chunk"];
    if (!Everything() && i % 7 != 0) continue;
    const auto window = absl::MakeConstSpan(ids).subspan(i * 512, 512);
    const auto score = ScoreWindow(scorer, window);
    REQUIRE(score.ok());
    REQUIRE(score->tokens == 255);
    const double difference = (score->nll_sum - chunk["nll_sum"].get<double>()) / 255;
    INFO("window " << i);
    CHECK(std::fabs(difference) <= 0.03);
    sum += score->nll_sum;
    reference_sum += chunk["nll_sum"].get<double>();
    tokens += score->tokens;
  }
  std::cerr << "perplexity over " << tokens << " tokens: " << std::exp(sum / tokens)
            << ", reference " << std::exp(reference_sum / tokens) << "\n";
  // Few windows average out less of what int8 activations cost in each.
  CHECK(std::fabs(sum - reference_sum) / tokens <= (Everything() ? 0.007 : 0.01));
}

TEST_CASE("perplexity of every weight type is llama.cpp's within half a percent") {
  if (!Everything()) {
    std::cerr << "SKIPPED: the other weight types take minutes (BATON_GOLDEN_ALL=1)\n";
    return;
  }
  const auto ids = CorpusIds();
  if (ids.empty()) return;
  std::ifstream file(kGolden + "perplexity_types.json");
  const json golden = json::parse(file);
  const size_t windows = golden["windows"];
  for (const auto& [type, peer] : golden["llama_cpp"].items()) {
    auto model = Load(Activations::kInt8, 2, ModelOfType(type));
    if (!model.has_value()) continue;
    Scorer scorer(model->forward.get(), kDefaultKvType, 512);
    WindowScore all;
    for (size_t i = 0; i < windows; ++i) {
      const auto score = ScoreWindow(scorer, absl::MakeConstSpan(ids).subspan(i * 512, 512));
      REQUIRE(score.ok());
      all.nll_sum += score->nll_sum;
      all.tokens += score->tokens;
    }
    const double ours = std::exp(all.nll_sum / all.tokens);
    const double theirs = peer.get<double>();
    std::cerr << type << ": perplexity " << ours << ", llama.cpp's " << theirs << "\n";
    INFO(type);
    CHECK(std::fabs(ours / theirs - 1) <= 0.005);
  }
}

}  // namespace baton::engine
