// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The merge loop against the definition, written as plainly as possible: join the leftmost
// of the best-ranked pairs, start again.
#include "engine/text/bpe.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace baton::text {
namespace {

struct Draw {
  uint64_t state;
  uint32_t operator()(uint32_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33) % below;
  }
};

// Rules over three letters, in an order in which a rule may come before the one that makes
// its parts.
struct Rules {
  std::map<std::pair<TokenId, TokenId>, std::pair<uint32_t, TokenId>> table;
  BpeMerges merges;
};

Rules RandomRules(Draw& draw) {
  Rules rules;
  std::vector<std::string> tokens = {"a", "b", "c"};
  std::map<std::string, TokenId> ids = {{"a", 0}, {"b", 1}, {"c", 2}};
  std::vector<std::pair<TokenId, TokenId>> pairs;
  for (int i = 0; i < 12; ++i) {
    const uint32_t count = static_cast<uint32_t>(tokens.size());
    const TokenId left = static_cast<TokenId>(draw(count));
    const TokenId right = static_cast<TokenId>(draw(count));
    const std::string joined = tokens[left] + tokens[right];
    if (ids.try_emplace(joined, count).second) tokens.push_back(joined);
    pairs.emplace_back(left, right);
  }
  for (size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[draw(i)]);
  for (uint32_t rank = 0; rank < pairs.size(); ++rank) {
    const auto [left, right] = pairs[rank];
    const TokenId joined = ids[tokens[left] + tokens[right]];
    rules.table[pairs[rank]] = {rank, joined};
    rules.merges.Add(left, right, joined, rank);
  }
  return rules;
}

std::vector<TokenId> ByDefinition(const Rules& rules, std::vector<TokenId> symbols) {
  while (true) {
    std::pair<uint32_t, TokenId> best = {UINT32_MAX, 0};
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rule = rules.table.find({symbols[i], symbols[i + 1]});
      if (rule == rules.table.end() || rule->second.first >= best.first) continue;
      best = rule->second;
      place = i;
    }
    if (best.first == UINT32_MAX) return symbols;
    symbols[place] = best.second;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(place) + 1);
  }
}

TEST_CASE("short and long pieces merge as the definition says, whatever the rules") {
  Draw draw{7};
  for (int round = 0; round < 200; ++round) {
    const Rules rules = RandomRules(draw);
    BpeMerges::Workspace work;
    for (const uint32_t size : {0u, 1u, 2u, 9u, 100u, 256u, 257u, 400u}) {
      std::vector<TokenId> symbols;
      const uint32_t letters = 1 + draw(3);
      for (uint32_t i = 0; i < size; ++i) symbols.push_back(static_cast<TokenId>(draw(letters)));
      std::vector<TokenId> merged;
      rules.merges.Apply(symbols, work, merged);
      CHECK(merged == ByDefinition(rules, symbols));
    }
  }
}

}  // namespace
}  // namespace baton::text
