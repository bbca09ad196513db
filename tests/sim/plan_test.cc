// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/plan.h"

#include <catch2/catch.hpp>
#include <set>

#include "sim/faults.h"
#include "sim/runner.h"
#include "sim/shrink.h"
#include "sim/swarm.h"

namespace baton::sim {

TEST_CASE("a plan is the same after it was printed and read, and runs the same", "[plan]") {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    const Plan plan = DrawPlan(seed);
    const std::string text = Print(plan);
    const auto again = ParsePlan(text);
    INFO(text);
    REQUIRE(again.ok());
    CHECK(CheckPlan(*again).ok());
    CHECK(Print(*again) == text);
    CHECK(again->requests == plan.requests);
    CHECK(again->faults == plan.faults);
    if (seed > 5) continue;
    CHECK(Runner(*again).Run().hash == Runner(plan).Run().hash);
  }
}

TEST_CASE("what is not a plan is refused with the words that are wrong", "[plan]") {
  for (const char* text : {"nonsense", "cluster seed", "cluster seed=x", "request prompt=-1",
                           "fault quake who=p0", "fault crash who=x0", "fault crash at=1parsec"}) {
    INFO(text);
    CHECK(ParsePlan(text).status().code() == absl::StatusCode::kInvalidArgument);
  }
  for (const char* text :
       {"cluster decode=0", "cluster path=A several_hosts=true", "request frontend=1",
        "fault crash who=d1", "fault break_link who=d0 whom=d0", "cluster prefill.chunk=17",
        "cluster check_one_in=2\nfault damage_link who=p0 whom=d0"}) {
    INFO(text);
    REQUIRE(ParsePlan(text).ok());
    CHECK(!CheckPlan(*ParsePlan(text)).ok());
  }
  CHECK(CheckPlan(*ParsePlan("# a comment\n\ncluster\nrequest\nfault crash who=p0")).ok());
}

TEST_CASE("a seed's plan can be run, and seeds are not alike", "[plan]") {
  std::set<std::string> kinds;
  size_t without_faults = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const Plan plan = DrawPlan(seed);
    INFO(Print(plan));
    CHECK(CheckPlan(plan).ok());
    CHECK(!plan.requests.empty());
    without_faults += plan.faults.empty();
    for (const Fault& fault : plan.faults) kinds.insert(fault.kind);
  }
  CHECK(kinds.size() == AllFaults().size());
  CHECK(without_faults > 10);
  CHECK(without_faults < 100);
}

TEST_CASE("a failing plan is shrunk to what makes it fail", "[plan]") {
  // It fails if p1 crashes while a request of more than 100 tokens is there.
  const auto failure_of = [](const Plan& plan) -> std::string {
    bool crash = false, long_one = false;
    for (const Fault& fault : plan.faults) {
      crash |= fault.kind == "crash" && fault.who == Party{'p', 1};
    }
    for (const PlannedRequest& request : plan.requests) {
      long_one |= request.ask.prompt_tokens > 100;
    }
    return crash && long_one ? "K9: it fails" : "";
  };
  uint32_t shrunk = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const Plan plan = DrawPlan(seed);
    if (failure_of(plan).empty()) continue;
    ++shrunk;
    const Plan small = Shrink(plan, failure_of);
    INFO(Print(small));
    CHECK(small.faults.size() == 1);
    REQUIRE(small.requests.size() == 1);
    CHECK(small.requests[0].ask.prompt_tokens == 101);
    CHECK(small.cluster.prefill == 2);
    CHECK(small.cluster.decode == 1);
  }
  CHECK(shrunk > 5);
}

TEST_CASE("violations of one kind differ in names and numbers only", "[plan]") {
  CHECK(KindOf("decode-0 K2: block 5 granted under 7") == "K2: block granted under");
  CHECK(KindOf("K9: client 12 never ends") == "K9: client never ends");
}

}  // namespace baton::sim
