// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a worker accepts from a peer as a Sequence, and what it tells the engine.
#include "engine/sequence.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <string>

namespace baton::engine {
namespace {

Sequence Good() {
  Sequence sequence;
  sequence.prompt = {1, 2, 3};
  sequence.outputs = {4};
  sequence.remaining_tokens = 5;
  sequence.stop_ids = {9};
  return sequence;
}

absl::Status CheckWith(const std::function<void(Sequence&)>& change) {
  Sequence sequence = Good();
  change(sequence);
  return CheckSequence(sequence, 10, 100);
}

TEST_CASE("a sequence inside all limits is accepted", "[sequence]") {
  CHECK(CheckWith([](Sequence&) {}).ok());
  CHECK(CheckWith([](Sequence& s) { s.prompt.assign(98, 1); }).ok());
}

TEST_CASE("what an engine could not run is the client's fault", "[sequence]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::function<void(Sequence&)>> changes = {
      [](Sequence& s) { s.prompt.clear(); },
      [](Sequence& s) { s.remaining_tokens = 0; },
      [](Sequence& s) { s.prompt.assign(99, 1); },  // 99 + 1 output fill the context
      [](Sequence& s) { s.prompt[1] = 10; },
      [](Sequence& s) { s.prompt[1] = -1; },
      [](Sequence& s) { s.outputs[0] = 10; },
      [](Sequence& s) { s.stop_ids = {-5}; },
      [](Sequence& s) { s.stop_ids.assign(10, 1); },
      [&](Sequence& s) { s.sampling.temperature = nan; },
      [](Sequence& s) { s.sampling.temperature = 2.5f; },
      [](Sequence& s) { s.sampling.top_p = -0.1f; },
      [](Sequence& s) { s.sampling.top_k = -1; },
      [](Sequence& s) { s.sampling.min_p = 1.5f; },
      [](Sequence& s) { s.sampling.repetition_penalty = 0; },
      [](Sequence& s) { s.sampling.presence_penalty = 3; },
      [&](Sequence& s) { s.sampling.frequency_penalty = nan; },
      [](Sequence& s) { s.sampling.logprobs = 1000; },
      [](Sequence& s) {
        s.sampling.logit_bias = {{10, 1.0f}};
      },
      [&](Sequence& s) {
        s.sampling.logit_bias = {{1, nan}};
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    INFO("change " << i);
    CHECK(CheckWith(changes[i]).code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("the next token continues the answer's indices", "[sequence]") {
  const SampleSpec spec = NextSample(Good());
  CHECK(spec.output_index == 1);
  CHECK(spec.prompt_tokens == 3);
  CHECK(spec.history.empty());
  CHECK(spec.banned.empty());
}

TEST_CASE("penalties bring the history along", "[sequence]") {
  Sequence sequence = Good();
  sequence.sampling.presence_penalty = 0.5f;
  CHECK(NextSample(sequence).history == std::vector<TokenId>{1, 2, 3, 4});
}

TEST_CASE("stop ids are banned until min_tokens", "[sequence]") {
  Sequence sequence = Good();
  sequence.min_tokens = 2;
  CHECK(NextSample(sequence).banned == std::vector<TokenId>{9});
  sequence.outputs.push_back(5);
  CHECK(NextSample(sequence).banned.empty());
}

}  // namespace
}  // namespace baton::engine
