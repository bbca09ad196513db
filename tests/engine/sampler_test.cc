// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The sampler's order of operations, its cuts, its randomness and its edges.
#include "engine/sampler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "base/random.h"

namespace baton::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SampleSpec Greedy() {
  SampleSpec spec;
  spec.params.temperature = 0;
  return spec;
}

SampleSpec Random1(uint64_t seed = 1) {
  SampleSpec spec;
  spec.params.seed = seed;
  return spec;
}

TokenId DrawId(const std::vector<float>& logits, const SampleSpec& spec) {
  return Sampler(static_cast<uint32_t>(logits.size()), {}).Draw(logits, spec).id;
}

// Ids that come up in `draws` output indices, with how often.
std::vector<int> Counts(const std::vector<float>& logits, SampleSpec spec, int draws) {
  Sampler sampler(static_cast<uint32_t>(logits.size()), {});
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) {
    spec.output_index = static_cast<uint32_t>(i);
    ++counts[sampler.Draw(logits, spec).id];
  }
  return counts;
}

std::set<TokenId> Support(const std::vector<float>& logits, const SampleSpec& spec) {
  std::set<TokenId> ids;
  const std::vector<int> counts = Counts(logits, spec, 2000);
  for (size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] > 0) ids.insert(static_cast<TokenId>(id));
  }
  return ids;
}

// Logits of given probabilities.
std::vector<float> Logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3));
  return logits;
}

}  // namespace

TEST_CASE("temperature 0 takes the best token, and of equals the lowest id") {
  CHECK(DrawId({1, 3, 2}, Greedy()) == 1);
  CHECK(DrawId({1, 3, 3}, Greedy()) == 1);
  CHECK(DrawId({-5}, Greedy()) == 0);
}

TEST_CASE("NaN and infinite logits neither win wrongly nor break a draw") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(DrawId({nan, 1, 2}, Greedy()) == 2);
  CHECK(DrawId({nan, kInfinity, 2}, Greedy()) == 1);
  CHECK(DrawId({nan, kInfinity, 2}, Random1()) == 1);
  CHECK(DrawId({nan, -kInfinity, 2}, Random1()) == 2);
  CHECK(DrawId({nan, nan}, Random1()) == 0);
}

TEST_CASE("a bias comes before everything, a ban after it") {
  SampleSpec spec = Greedy();
  spec.params.logit_bias = {{2, 5.0f}, {-1, 9.0f}, {99, 9.0f}};
  CHECK(DrawId({1, 3, 0}, spec) == 2);
  spec.banned = {2, 99, -7};
  CHECK(DrawId({1, 3, 0}, spec) == 1);
}

TEST_CASE("holes of the vocabulary are neither drawn nor reported") {
  Sampler sampler(4, {1, 3});
  SampleSpec spec = Greedy();
  spec.params.logprobs = 4;
  spec.params.logit_bias = {{3, 100.0f}};
  const OutputToken token = sampler.Draw(std::vector<float>{0, 9, 1, 9}, spec);
  CHECK(token.id == 2);
  REQUIRE(token.top.size() == 2);
  CHECK(token.top[0].id == 2);
  CHECK(token.top[1].id == 0);
}

TEST_CASE("repetition penalty sees prompt and outputs, divides what is positive") {
  SampleSpec spec = Greedy();
  spec.params.repetition_penalty = 2;
  spec.history = {1, 1};
  spec.prompt_tokens = 2;
  CHECK(DrawId({3, 4, 0}, spec) == 0);     // 4 / 2 < 3
  CHECK(DrawId({-3, -2, -9}, spec) == 0);  // -2 * 2 < -3
}

TEST_CASE("presence and frequency penalties see outputs only") {
  SampleSpec spec = Greedy();
  spec.history = {1, 1, 1, 2};
  spec.prompt_tokens = 3;
  spec.params.presence_penalty = 2;
  CHECK(DrawId({0, 5, 6}, spec) == 1);  // 6 - 2 < 5, which only the prompt has
  spec.params.presence_penalty = 0;
  spec.params.frequency_penalty = 0.5;
  spec.prompt_tokens = 0;
  CHECK(DrawId({4, 5, 4.25f}, spec) == 0);  // 5 - 3 * 0.5, 4.25 - 0.5
}

TEST_CASE("penalties leave no trace in the next draw") {
  Sampler sampler(3, {});
  SampleSpec spec = Greedy();
  spec.params.presence_penalty = 2;
  spec.history = {1};
  const std::vector<float> row = {4, 5, 0};
  CHECK(sampler.Draw(row, spec).id == 0);
  CHECK(sampler.Draw(row, spec).id == 0);
  CHECK(sampler.Draw(row, Greedy()).id == 1);
}

TEST_CASE("draws follow the probabilities") {
  const std::vector<double> p = {0.5, 0.25, 0.125, 0.125};
  const std::vector<int> counts = Counts(Logs(p), Random1(7), 20000);
  for (size_t id = 0; id < p.size(); ++id) {
    INFO(id);
    // Five standard deviations.
    CHECK(std::fabs(counts[id] - 20000 * p[id]) < 5 * std::sqrt(20000 * p[id] * (1 - p[id])));
  }
}

TEST_CASE("draws over many blocks follow the probabilities") {
  std::vector<float> logits(1000, -kInfinity);
  for (const size_t id : {3, 255, 256, 700, 999}) logits[id] = 1;
  const std::vector<int> counts = Counts(logits, Random1(3), 10000);
  for (const size_t id : {3, 255, 256, 700, 999}) CHECK(std::abs(counts[id] - 2000) < 200);
}

TEST_CASE("temperature sharpens, and a tiny one is greedy") {
  const std::vector<float> logits = Logs({0.8, 0.2});
  SampleSpec spec = Random1();
  spec.params.temperature = 0.5;
  const std::vector<int> counts = Counts(logits, spec, 20000);
  CHECK(std::fabs(counts[1] - 20000 * 0.04 / 0.68) < 250);
  spec.params.temperature = 1e-40f;
  CHECK(Support(logits, spec) == std::set<TokenId>{0});
}

TEST_CASE("top_k keeps the best, lower ids first among equals") {
  SampleSpec spec = Random1();
  spec.params.top_k = 2;
  CHECK(Support({1, 1, 1, 1}, spec) == std::set<TokenId>{0, 1});
  CHECK(Support({0, 1, 0.5, 1}, spec) == std::set<TokenId>{1, 3});
  spec.params.top_k = 1;
  CHECK(Support({0, 1, 1}, spec) == std::set<TokenId>{1});
  spec.params.top_k = 100;
  CHECK(Support({0, 0, 0}, spec) == std::set<TokenId>{0, 1, 2});
}

TEST_CASE("top_p keeps the shortest run of the best that holds the share") {
  const std::vector<float> logits = Logs({0.1, 0.5, 0.15, 0.25});
  SampleSpec spec = Random1();
  spec.params.top_p = 0.4;
  CHECK(Support(logits, spec) == std::set<TokenId>{1});
  spec.params.top_p = 0.7;
  CHECK(Support(logits, spec) == std::set<TokenId>{1, 3});
  spec.params.top_p = 0.8;
  CHECK(Support(logits, spec) == std::set<TokenId>{1, 2, 3});
  spec.params.top_p = 1e-6f;
  CHECK(Support(logits, spec) == std::set<TokenId>{1});
}

TEST_CASE("top_p counts the share of what top_k left") {
  SampleSpec spec = Random1();
  spec.params.top_k = 2;  // 0.5 and 0.25: 2/3 and 1/3
  spec.params.top_p = 0.6;
  CHECK(Support(Logs({0.1, 0.5, 0.15, 0.25}), spec) == std::set<TokenId>{1});
}

TEST_CASE("min_p keeps what is likely enough next to the best") {
  SampleSpec spec = Random1();
  spec.params.min_p = 0.45;
  CHECK(Support(Logs({0.1, 0.5, 0.15, 0.25}), spec) == std::set<TokenId>{1, 3});
  spec.params.min_p = 1;
  CHECK(Support(Logs({0.1, 0.5, 0.15, 0.25}), spec) == std::set<TokenId>{1});
  spec.params.min_p = 0.45;
  spec.params.top_p = 0.3;
  CHECK(Support(Logs({0.1, 0.5, 0.15, 0.25}), spec) == std::set<TokenId>{1});
}

TEST_CASE("cuts on a long row agree with a full sort") {
  Random random(5);
  std::vector<float> logits(3000);
  for (float& x : logits) x = static_cast<float>(12 * random.Unit() * random.Unit());
  logits[7] = logits[8] = logits[9] = 9.5f;
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  double total = 0;
  for (const float x : logits) total += std::exp(x);
  for (const float top_p : {0.01f, 0.3f, 0.9f, 0.999f}) {
    std::set<TokenId> expected;
    double sum = 0;
    for (const TokenId id : order) {
      if (sum >= top_p * total * (1 + 1e-6)) break;
      sum += std::exp(logits[id]);
      expected.insert(id);
    }
    SampleSpec spec = Random1();
    spec.params.top_p = top_p;
    for (const TokenId id : Support(logits, spec)) CHECK(expected.count(id) == 1);
  }
  SampleSpec spec = Random1();
  spec.params.top_k = 50;
  const std::set<TokenId> best(order.begin(), order.begin() + 50);
  for (const TokenId id : Support(logits, spec)) CHECK(best.count(id) == 1);
  spec.params.logprobs = 50;
  const OutputToken token = Sampler(3000, {}).Draw(logits, spec);
  REQUIRE(token.top.size() == 50);
  for (size_t i = 0; i < 50; ++i) {
    CHECK(token.top[i].id == order[i]);
    CHECK(token.top[i].logprob == Approx(logits[order[i]] - std::log(total)).margin(1e-5));
  }
}

TEST_CASE("log-probabilities are the raw model's, whatever is done to the row") {
  SampleSpec spec = Random1();
  spec.params.temperature = 0.1f;
  spec.params.top_k = 1;
  spec.params.logit_bias = {{0, 50.0f}};
  spec.params.logprobs = 1;
  const OutputToken token = Sampler(3, {}).Draw(Logs({0.2, 0.7, 0.1}), spec);
  CHECK(token.id == 0);
  CHECK(token.logprob == Approx(std::log(0.2)).epsilon(1e-5));
  REQUIRE(token.top.size() == 1);
  CHECK(token.top[0].id == 1);
  CHECK(token.top[0].logprob == Approx(std::log(0.7)).epsilon(1e-5));
  spec.params.logprobs = 0;
  CHECK(Sampler(3, {}).Draw(Logs({0.2, 0.7, 0.1}), spec).top.empty());
}

TEST_CASE("a draw depends on seed, choice and output index, and on nothing else") {
  const std::vector<float> logits(500, 1.0f);
  SampleSpec spec = Random1(42);
  spec.output_index = 9;
  Sampler used(500, {});
  for (uint32_t i = 0; i < 9; ++i) {
    SampleSpec other = Random1(i);
    other.params.top_k = 5;
    used.Draw(logits, other);
  }
  const TokenId id = DrawId(logits, spec);
  CHECK(used.Draw(logits, spec).id == id);
  std::set<TokenId> others;
  for (uint32_t i = 0; i < 5; ++i) {
    SampleSpec changed = spec;
    changed.params.choice = i + 1;
    others.insert(DrawId(logits, changed));
    changed = spec;
    changed.output_index = 10 + i;
    others.insert(DrawId(logits, changed));
  }
  CHECK(others.size() > 5);
}

TEST_CASE("known draws stay as they are: a change breaks resumed answers") {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 17) * 0.25f;
  Sampler sampler(1000, {});
  SampleSpec spec = Random1(2026);
  std::vector<TokenId> all, cut;
  for (uint32_t i = 0; i < 6; ++i) {
    spec.output_index = i;
    spec.params.top_p = 1;
    all.push_back(sampler.Draw(logits, spec).id);
    spec.params.top_p = 0.5f;
    cut.push_back(sampler.Draw(logits, spec).id);
  }
  CHECK(all == std::vector<TokenId>{390, 728, 16, 151, 399, 528});
  CHECK(cut == std::vector<TokenId>{372, 679, 16, 150, 373, 507});
}

}  // namespace baton::engine
