// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How many prompt tokens fit beside running sequences.
#include "decode_worker/step_pace.h"

#include <catch2/catch.hpp>

#include "base/ids.h"

namespace baton::decode {
namespace {

constexpr absl::Duration kUsual = absl::Milliseconds(15);
constexpr absl::Duration kPerToken = absl::Microseconds(1500);

// A device where each prompt token costs the same.
void RunOn(StepPace& pace, absl::Duration usual, absl::Duration per_token, int steps) {
  for (int i = 0; i < steps; ++i) {
    const uint32_t tokens = i % 4 == 0 ? pace.PromptTokensMax() : 0;
    pace.Took(4, tokens, usual + tokens * per_token);
  }
}

TEST_CASE("a block's worth until something was measured", "[step_pace]") {
  StepPace pace(200);
  CHECK(pace.PromptTokensMax() == kBlockTokens);
  pace.Took(4, 0, kUsual);
  CHECK(pace.PromptTokensMax() == kBlockTokens);
}

TEST_CASE("a step with prompts takes the part of the usual one that was asked for", "[step_pace]") {
  StepPace pace(180);
  RunOn(pace, kUsual, kPerToken, 200);
  const uint32_t tokens = pace.PromptTokensMax();
  CHECK(tokens == 8);  // 0.8 * 15 ms / 1.5 ms
  StepPace generous(300);
  RunOn(generous, kUsual, kPerToken, 200);
  CHECK(generous.PromptTokensMax() == 20);
}

TEST_CASE("it follows a device that becomes slower, and one that becomes faster", "[step_pace]") {
  StepPace pace(200);
  RunOn(pace, kUsual, kPerToken, 200);
  CHECK(pace.PromptTokensMax() == 10);
  RunOn(pace, kUsual, 3 * kPerToken, 200);
  CHECK(pace.PromptTokensMax() == 3);
  RunOn(pace, kUsual, kPerToken / 10, 200);
  CHECK(pace.PromptTokensMax() == 100);
}

TEST_CASE("a step that was held up does not make the next ones longer", "[step_pace]") {
  StepPace pace(200);
  RunOn(pace, kUsual, kPerToken, 200);
  pace.Took(4, 0, absl::Seconds(3));
  CHECK(pace.PromptTokensMax() <= 11);
}

TEST_CASE("prompts that cost nothing are not held back, and costly ones progress", "[step_pace]") {
  StepPace pace(200);
  pace.Took(4, 0, kUsual);
  pace.Took(0, 100, absl::ZeroDuration());
  CHECK(pace.PromptTokensMax() > 100000);
  for (int i = 0; i < 50; ++i) pace.Took(4, 1, absl::Seconds(2));
  CHECK(pace.PromptTokensMax() == 1);
}

TEST_CASE("what prompts alone take is what they cost", "[step_pace]") {
  StepPace pace(200);
  pace.Took(4, 0, kUsual);
  pace.Took(0, 48, 48 * kPerToken);
  CHECK(pace.PromptTokensMax() == 10);
}

}  // namespace
}  // namespace baton::decode
