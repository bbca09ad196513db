// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/rdma_advice.h"

#include <catch2/catch.hpp>

namespace baton::server {
namespace {

using Verdict = RdmaAdvice::Verdict;

RdmaFacts OneDevice() {
  RdmaFacts facts;
  facts.ports = {{"rxe0:1", true, "Ethernet", {{0, "fe80::1"}, {1, "192.0.2.1"}}}};
  facts.has_manager = true;
  return facts;
}

RdmaQuestion Question() {
  RdmaQuestion question;
  question.devices = {"rxe0:1"};
  question.transfers = {{"decode-0", "192.0.2.1"}};
  question.settings = {{"RC_RETRY_COUNT", "6"}, {"REG_METHODS", "direct"}, {"TLS", "rc_verbs"}};
  return question;
}

// Of the advice that has `part` in it; the last one's, if there are several.
const RdmaAdvice* Find(const std::vector<RdmaAdvice>& advice, const std::string& part) {
  const RdmaAdvice* found = nullptr;
  for (const RdmaAdvice& one : advice) {
    if ((one.what + one.fix).find(part) != std::string::npos) found = &one;
  }
  return found;
}

int Bad(const std::vector<RdmaAdvice>& advice) {
  int bad = 0;
  for (const RdmaAdvice& one : advice) bad += one.verdict != Verdict::kOk;
  return bad;
}

TEST_CASE("without a device there is nothing to say about RDMA") {
  CHECK(AdviseRdma({}, Question()).empty());
}

TEST_CASE("a device that links can use is named with its addresses, and what Baton sets") {
  const auto advice = AdviseRdma(OneDevice(), Question());
  CHECK(Bad(advice) == 0);
  REQUIRE(Find(advice, "rxe0:1") != nullptr);
  CHECK(Find(advice, "rxe0:1")->what.find("192.0.2.1") != std::string::npos);
  CHECK(Find(advice, "RC_RETRY_COUNT=6") != nullptr);
  CHECK(Find(advice, "DGID_CHECK") != nullptr);
}

TEST_CASE("each thing that stops RDMA is named with its remedy") {
  RdmaFacts facts = OneDevice();
  RdmaQuestion question = Question();
  std::string part;
  SECTION("the device is down") {
    facts.ports[0].active = false;
    part = "not active";
  }
  SECTION("no connection manager") {
    facts.has_manager = false;
    part = "modprobe rdma_ucm";
  }
  SECTION("links go to another network") {
    question.transfers = {{"decode-0", "198.51.100.7"}};
    part = "decode-0 is 198.51.100.7";
  }
  SECTION("the configuration names another device") {
    question.devices = {"eth0"};
    part = "add rxe0:1";
  }
  SECTION("a GID that is not there") {
    facts.environment["UCX_IB_GID_INDEX"] = "3";
    part = "use one of 0 1";
  }
  SECTION("variables that Baton does not obey") {
    facts.environment["UCX_RC_VERBS_RETRY_COUNT"] = "7";
    part = "UCX_RC_VERBS_RETRY_COUNT=7";
  }
  const auto advice = AdviseRdma(facts, question);
  CHECK(Bad(advice) == 1);
  REQUIRE(Find(advice, part) != nullptr);
  CHECK(Find(advice, part)->verdict != Verdict::kOk);
  CHECK(!Find(advice, part)->fix.empty());
}

TEST_CASE("what is required and cannot be is a failure, not a warning") {
  RdmaQuestion question = Question();
  question.required = true;
  question.transfers = {{"decode-0", "198.51.100.7"}};
  const auto advice = AdviseRdma(OneDevice(), question);
  CHECK(Find(advice, "198.51.100.7")->verdict == Verdict::kFail);
}

TEST_CASE("variables about other things, and a GID that is there, are left alone") {
  RdmaFacts facts = OneDevice();
  facts.environment = {
      {"UCX_LOG_LEVEL", "info"}, {"UCX_IB_GID_INDEX", "1"}, {"UCX_RC_VERBS_RNR_RETRY_COUNT", "7"}};
  CHECK(Bad(AdviseRdma(facts, Question())) == 0);
}

TEST_CASE("a wildcard address says nothing about the device") {
  RdmaQuestion question = Question();
  question.transfers = {{"decode-0", "0.0.0.0"}};
  CHECK(Bad(AdviseRdma(OneDevice(), question)) == 0);
}

}  // namespace
}  // namespace baton::server
