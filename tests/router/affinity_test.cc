// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/affinity.h"

#include <catch2/catch.hpp>

namespace baton::router {
namespace {

Sequence Counting(TokenId from, uint32_t tokens) {
  Sequence sequence;
  for (uint32_t i = 0; i < tokens; ++i) sequence.prompt.push_back(from + static_cast<TokenId>(i));
  return sequence;
}

}  // namespace

TEST_CASE("only full blocks before the last token are hashed", "[router]") {
  CHECK(LeadingBlockHashes(Counting(0, 1)).empty());
  CHECK(LeadingBlockHashes(Counting(0, 16)).empty());
  CHECK(LeadingBlockHashes(Counting(0, 17)).size() == 1);
  CHECK(LeadingBlockHashes(Counting(0, 100000)).size() == 128);
}

TEST_CASE("hashes depend on everything before the block and on the salt", "[router]") {
  Sequence salted = Counting(0, 40);
  salted.cache_salt = 1;
  const auto plain = LeadingBlockHashes(Counting(0, 40));
  CHECK(plain != LeadingBlockHashes(salted));
  Sequence other = Counting(0, 40);
  other.prompt[0] = 99;
  CHECK(plain[1] != LeadingBlockHashes(other)[1]);
}

TEST_CASE("the worker that saw the longest prefix last is found", "[router]") {
  PrefixAffinity affinity(1000);
  affinity.Remember(LeadingBlockHashes(Counting(0, 33)), WorkerIndex(1));
  const auto longer = affinity.Match(LeadingBlockHashes(Counting(0, 100)));
  REQUIRE(longer.size() == 1);
  CHECK(longer[0] == std::pair(WorkerIndex(1), 32u));
  CHECK(affinity.Match(LeadingBlockHashes(Counting(5, 100))).empty());
}

TEST_CASE("memory of prefixes is bounded; what is used last stays", "[router]") {
  PrefixAffinity affinity(8);
  for (TokenId i = 0; i < 100; ++i) {
    affinity.Remember(LeadingBlockHashes(Counting(1000 * i, 17)), WorkerIndex(1));
  }
  CHECK(affinity.Match(LeadingBlockHashes(Counting(1000 * 99, 17))).size() == 1);
  CHECK(affinity.Match(LeadingBlockHashes(Counting(0, 17))).empty());
}

}  // namespace baton::router
