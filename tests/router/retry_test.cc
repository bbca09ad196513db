// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/retry.h"

#include <catch2/catch.hpp>

namespace baton::router {
namespace {

const absl::Status kGone = absl::UnavailableError("gone");

}  // namespace

TEST_CASE("decode's last word tells whose fault it was", "[router]") {
  CHECK(ClassifyDecodeEnded(absl::ResourceExhaustedError(""), {.reserving = true}).blame ==
        Blame::kFull);
  CHECK(ClassifyDecodeEnded(kGone, {.pushing = true}).blame == Blame::kPrefill);
  CHECK(ClassifyDecodeEnded(kGone, {}).blame == Blame::kDecode);
  CHECK(ClassifyDecodeEnded(kGone, {.preempted = true}).blame == Blame::kNobody);
  CHECK(ClassifyDecodeEnded(absl::InternalError("bug"), {}).blame == Blame::kRequest);
  CHECK(ClassifyPrefillEnded(absl::InternalError("bug"), false).blame == Blame::kPrefill);
  CHECK(ClassifyPrefillEnded(absl::ResourceExhaustedError("queue"), false).blame ==
        Blame::kWriterBack);
  CHECK(ClassifyPrefillEnded(absl::InvalidArgumentError(""), false).blame == Blame::kRequest);
}

TEST_CASE("attempts end at attempts_max with UNAVAILABLE", "[router]") {
  const RetryPolicy policy{.attempts_max = 3};
  CHECK(MayRetry({Blame::kDecode, kGone}, {.attempts = 2}, policy).ok());
  CHECK(MayRetry({Blame::kDecode, kGone}, {.attempts = 3}, policy).code() ==
        absl::StatusCode::kUnavailable);
}

TEST_CASE("being handed back, or refused for want of memory, is not a failure", "[router]") {
  const RetryPolicy policy{.attempts_max = 1};
  CHECK(MayRetry({Blame::kNobody, kGone}, {.attempts = 9}, policy).ok());
  CHECK(MayRetry({Blame::kWriterBack, kGone}, {.attempts = 9}, policy).ok());
  CHECK(MayRetry({Blame::kFull, kGone}, {.attempts = 9}, policy).ok());
}

TEST_CASE("with resume off an answer that has begun is never continued", "[router]") {
  const RetryPolicy policy{.attempts_max = 3, .resume = false};
  CHECK_FALSE(MayRetry({Blame::kDecode, kGone}, {.attempts = 1, .tokens_sent = true}, policy).ok());
  CHECK_FALSE(MayRetry({Blame::kNobody, kGone}, {.attempts = 1, .tokens_sent = true}, policy).ok());
  CHECK(MayRetry({Blame::kDecode, kGone}, {.attempts = 1}, policy).ok());
}

TEST_CASE("after a lost writer another is asked once, and never by the last attempt", "[router]") {
  CHECK(WriterAllowed({.attempts = 0}, {.attempts_max = 1}));
  CHECK(WriterAllowed({.attempts = 1, .prefill_failures = 1}, {.attempts_max = 3}));
  CHECK_FALSE(WriterAllowed({.attempts = 1, .prefill_failures = 1}, {.attempts_max = 2}));
  CHECK_FALSE(WriterAllowed({.attempts = 2, .prefill_failures = 2}, {.attempts_max = 9}));
}

}  // namespace baton::router
