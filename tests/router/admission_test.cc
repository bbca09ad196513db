// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/admission.h"

#include <catch2/catch.hpp>

namespace baton::router {
namespace {

Sequence Prompt(size_t tokens, uint32_t remaining = 10) {
  Sequence sequence;
  sequence.prompt.assign(tokens, 1);
  sequence.remaining_tokens = remaining;
  return sequence;
}

constexpr Capacity kCapacity{.context_tokens = 1000, .pool_tokens = 800, .any_usable = true};
constexpr AdmissionLimits kLimits{.queue_requests = 4, .queue_tokens = 900};

absl::StatusCode Check(const Sequence& sequence, const Capacity& capacity = kCapacity,
                       const Waiting& waiting = {}) {
  return CheckAdmission(sequence, capacity, waiting, kLimits).code();
}

}  // namespace

TEST_CASE("what can never be served is the client's fault, also while nobody is there",
          "[router]") {
  CHECK(Check(Prompt(0)) == absl::StatusCode::kInvalidArgument);
  CHECK(Check(Prompt(5, 0)) == absl::StatusCode::kInvalidArgument);
  CHECK(Check(Prompt(1000)) == absl::StatusCode::kInvalidArgument);
  CHECK(Check(Prompt(800)) == absl::StatusCode::kInvalidArgument);
  Capacity nobody = kCapacity;
  nobody.any_usable = false;
  CHECK(Check(Prompt(800), nobody) == absl::StatusCode::kInvalidArgument);
  CHECK(Check(Prompt(799)) == absl::StatusCode::kOk);
}

TEST_CASE("without a ready decode worker a request is told to come later", "[router]") {
  CHECK(Check(Prompt(5), Capacity{}) == absl::StatusCode::kUnavailable);
  Capacity draining = kCapacity;
  draining.draining = true;
  CHECK(Check(Prompt(5), draining) == absl::StatusCode::kUnavailable);
}

TEST_CASE("a worker that claims to hold nothing counts as nobody", "[router]") {
  CHECK(Check(Prompt(5), Capacity{.any_usable = true}) == absl::StatusCode::kUnavailable);
}

TEST_CASE("the queue is bounded in requests and in tokens", "[router]") {
  CHECK(Check(Prompt(5), kCapacity, {3, 100}) == absl::StatusCode::kOk);
  CHECK(Check(Prompt(5), kCapacity, {4, 100}) == absl::StatusCode::kResourceExhausted);
  CHECK(Check(Prompt(5), kCapacity, {3, 895}) == absl::StatusCode::kOk);
  CHECK(Check(Prompt(6), kCapacity, {3, 895}) == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("the answer is cut to what context and pool can hold", "[router]") {
  CHECK(RemainingWithin(Prompt(100, 50), kCapacity) == 50);
  CHECK(RemainingWithin(Prompt(100, 5000), kCapacity) == 700);
}

}  // namespace baton::router
