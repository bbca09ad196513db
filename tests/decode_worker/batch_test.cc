// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which sequences run in a step.
#include "decode_worker/batch.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/random.h"

namespace baton::decode {
namespace {

using Pieces = std::vector<Piece>;
constexpr uint32_t kNoLimit = 1u << 30;

TEST_CASE("decoding rows come first, prompts share what is left", "[batch]") {
  const std::vector<Row> rows = {{1, 0, 100}, {2, 49, 50}, {3, 0, 10}, {4, 9, 10}};
  CHECK(PlanBatch(rows, 64, kNoLimit) == Pieces{{2, 49, 50}, {4, 9, 10}, {1, 0, 62}});
  CHECK(PlanBatch(rows, 112, kNoLimit) == Pieces{{2, 49, 50}, {4, 9, 10}, {1, 0, 100}, {3, 0, 10}});
}

TEST_CASE("a batch full of rows still leaves a block's worth to the oldest prompt", "[batch]") {
  std::vector<Row> rows = {{1, 0, 100}};
  for (uint64_t key = 2; key < 42; ++key) rows.push_back({key, 5, 6});
  const Pieces pieces = PlanBatch(rows, 32, kNoLimit);
  CHECK(pieces.size() == 41);
  CHECK(pieces.back() == Piece{1, 0, 16});
}

TEST_CASE("beside rows that decode, prompts share a smaller budget; alone, they have all of it",
          "[batch]") {
  CHECK(PlanBatch(std::vector<Row>{{1, 0, 100}, {2, 49, 50}, {3, 0, 10}}, 64, 7) ==
        Pieces{{2, 49, 50}, {1, 0, 7}});
  CHECK(PlanBatch(std::vector<Row>{{1, 96, 100}, {2, 49, 50}, {3, 0, 10}}, 64, 7) ==
        Pieces{{2, 49, 50}, {1, 96, 100}, {3, 0, 3}});
  CHECK(PlanBatch(std::vector<Row>{{1, 0, 100}, {3, 0, 10}}, 64, 7) == Pieces{{1, 0, 64}});
}

TEST_CASE("a one-token prompt is a row like any other", "[batch]") {
  const std::vector<Row> rows = {{1, 0, 1}};
  CHECK(PlanBatch(rows, 8, kNoLimit) == Pieces{{1, 0, 1}});
}

TEST_CASE("nothing to run, nothing planned", "[batch]") {
  CHECK(PlanBatch({}, 8, kNoLimit).empty());
}

TEST_CASE("random rows: each at most once, in its own bounds, all decoding ones included",
          "[batch]") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const auto budget = static_cast<uint32_t>(random.Between(1, 100));
    const auto beside = static_cast<uint32_t>(random.Between(1, 40));
    bool any_decodes = false;
    std::vector<Row> rows;
    for (uint64_t key = 1; key <= random.Between(1, 20); ++key) {
      const auto tokens = static_cast<uint32_t>(random.Between(1, 80));
      const bool decoding = random.Chance(0.5);
      rows.push_back(
          {key, decoding ? tokens - 1 : static_cast<uint32_t>(random.Below(tokens)), tokens});
    }
    const Pieces pieces = PlanBatch(rows, budget, beside);
    uint32_t prompt_tokens = 0;
    for (const Row& row : rows) {
      const auto count = std::count_if(pieces.begin(), pieces.end(),
                                       [&](const Piece& piece) { return piece.key == row.key; });
      REQUIRE(count <= 1);
      if (row.tokens - row.computed > 1) continue;
      REQUIRE(count == 1);
      any_decodes = true;
    }
    for (const Piece& piece : pieces) {
      const Row& row = rows[piece.key - 1];
      REQUIRE(piece.begin == row.computed);
      REQUIRE(piece.end > piece.begin);
      REQUIRE(piece.end <= row.tokens);
      if (row.tokens - row.computed > 1) prompt_tokens += piece.end - piece.begin;
    }
    REQUIRE(prompt_tokens <= std::max(budget, 16u));
    if (any_decodes) REQUIRE(prompt_tokens <= beside);
  }
}

}  // namespace
}  // namespace baton::decode
