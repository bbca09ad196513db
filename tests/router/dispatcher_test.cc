// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What the dispatcher does while nothing fails: paths, ends, admission, order.
#include <catch2/catch.hpp>

#include "tests/router/dispatcher_harness.h"

namespace baton::router {

TEST_CASE("a short prompt is computed on decode and relayed to its end", "[router]") {
  Harness h;
  const ClientKey client = h.Send(10, 2);
  CHECK(h.call(0).worker == h.decode(0));
  CHECK_FALSE(h.reserve(0).writer.has_value());
  CHECK(h.reserve(0).remaining == absl::Seconds(60));
  CHECK(h.reserve(0).decode == h.status(h.decode(0)).self.incarnation);
  h.SayColocated(0);
  CHECK(h.paths(client) == std::vector{Path::kColocated});
  h.Say(0, PromptStats{.computed_tokens = 10});
  h.SayToken(0, 0);
  h.SayToken(0, 1);
  REQUIRE(h.over(client) != nullptr);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  CHECK(h.over(client)->path == Path::kColocated);
  CHECK(h.over(client)->attempts == 1);
  CHECK(h.over(client)->prompt.computed_tokens == 10);
  CHECK(h.indices(client) == std::vector<uint32_t>{0, 1});
  CHECK(h.owns_nothing());
}

TEST_CASE("a long prompt gets a writer, and its ticket goes to that writer", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600, 2);
  REQUIRE(h.reserve(0).writer.has_value());
  CHECK(h.reserve(0).writer->worker == "prefill-0");
  h.SayTicket(0);
  CHECK(h.call(1).worker == h.prefill(0));
  CHECK(h.prefill_of(1).ticket == std::vector<uint8_t>{1, 2, 3});
  CHECK(h.prefill_of(1).attempt == h.reserve(0).attempt);
  CHECK(h.paths(client) == std::vector{Path::kDisaggregated});
  h.Say(1, Progress{});
  CHECK(h.dispatcher->snapshot().waiting[1] == 1);
  h.Say(1, PrefillDone{});
  CHECK(h.dispatcher->snapshot().waiting[2] == 1);
  h.SayToken(0, 0);
  CHECK(h.dispatcher->snapshot().running == 1);
  h.SayToken(0, 1);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  CHECK(h.over(client)->path == Path::kDisaggregated);
  CHECK(h.owns_nothing());
}

TEST_CASE("a long prompt that decode has cached runs there and is colocated", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600);
  h.SayColocated(0, 100);
  CHECK(h.paths(client) == std::vector{Path::kColocated});
}

TEST_CASE("a long prompt without a linked prefill is computed on decode as a fallback",
          "[router]") {
  Harness h;
  h.status(h.decode(0)).links.clear();
  h.Pass(absl::Milliseconds(200));
  const ClientKey client = h.Send(600);
  CHECK_FALSE(h.reserve(0).writer.has_value());
  h.SayColocated(0, 600);
  CHECK(h.paths(client) == std::vector{Path::kFallback});
}

TEST_CASE("a cluster without prefill workers calls its path colocated", "[router]") {
  Harness h({.prefill = 0});
  const ClientKey client = h.Send(600);
  h.SayColocated(0, 600);
  CHECK(h.paths(client) == std::vector{Path::kColocated});
}

TEST_CASE("a stop id ends the answer; decode's own last word is not waited for", "[router]") {
  Harness h;
  const ClientKey client = h.Send(10, 100);
  h.SayColocated(0);
  h.SayToken(0, 0);
  h.SayToken(0, 1, 2);
  CHECK(h.over(client)->outcome == Outcome::kStop);
  CHECK(h.over(client)->status.ok());
  CHECK(h.indices(client) == std::vector<uint32_t>{0, 1});
  h.Say(0, Finished{});
  CHECK(h.over(client) != nullptr);
}

TEST_CASE("a stop string found by the edge ends the answer", "[router]") {
  Harness h;
  const ClientKey client = h.Send(10, 100);
  h.SayColocated(0);
  h.SayToken(0, 0);
  h.dispatcher->Receive(Complete{client});
  h.Tick();
  CHECK(h.over(client)->outcome == Outcome::kStop);
  CHECK(h.owns_nothing());
}

TEST_CASE("a seed is drawn once per request, and only if asked for", "[router]") {
  Harness h;
  Submit submit;
  submit.sequence.prompt = {1, 2};
  submit.sequence.remaining_tokens = 3;
  submit.received = h.now;
  submit.deadline = absl::Seconds(9);
  submit.client = ClientKey(1001);
  submit.draw_seed = true;
  h.Send(submit);
  submit.client = ClientKey(1002);
  h.Send(submit);
  submit.client = ClientKey(1003);
  submit.draw_seed = false;
  submit.sequence.sampling.seed = 77;
  h.Send(submit);
  CHECK(h.reserve(0).sequence.sampling.seed != h.reserve(1).sequence.sampling.seed);
  CHECK(h.reserve(2).sequence.sampling.seed == 77);
}

TEST_CASE("what can never fit is rejected at once as the client's fault", "[router]") {
  Harness h;
  const ClientKey client = h.Send(8192);
  REQUIRE(h.over(client) != nullptr);
  CHECK(h.over(client)->outcome == Outcome::kRejected);
  CHECK(h.over(client)->status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(h.over(client)->retry_after == absl::ZeroDuration());
  CHECK(h.client.calls.empty());
}

TEST_CASE("more than the queue holds is rejected at once with a time to come back", "[router]") {
  Harness h({}, {.queue_requests = 3});
  for (int i = 0; i < 3; ++i) h.Send(10);
  const ClientKey client = h.Send(10);
  CHECK(h.over(client)->status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(h.over(client)->retry_after > absl::ZeroDuration());
  h.SayColocated(0);  // one holds its memory now: there is place again
  CHECK(h.over(h.Send(10)) == nullptr);
}

TEST_CASE("no decode worker ready means UNAVAILABLE at once", "[router]") {
  Harness h;
  h.status(h.decode(0)).ready = false;
  h.Pass(absl::Milliseconds(200));
  const ClientKey client = h.Send(10);
  CHECK(h.over(client)->outcome == Outcome::kRejected);
  CHECK(h.over(client)->status.code() == absl::StatusCode::kUnavailable);
  CHECK(h.over(client)->retry_after > absl::ZeroDuration());
  CHECK_FALSE(h.dispatcher->snapshot().ready);
}

TEST_CASE("a draining front end takes nothing new and finishes what runs", "[router]") {
  Harness h;
  const ClientKey running = h.Send(10, 1);
  h.SayColocated(0);
  h.dispatcher->StartDrain();
  CHECK(h.over(h.Send(10))->status.code() == absl::StatusCode::kUnavailable);
  CHECK_FALSE(h.dispatcher->idle());
  h.SayToken(0, 0);
  CHECK(h.over(running)->outcome == Outcome::kLength);
  CHECK(h.dispatcher->idle());
}

TEST_CASE("a full decode is asked again later, one request at a time, oldest first", "[router]") {
  Harness h;
  h.Send(600);
  h.Send(10);
  REQUIRE(h.client.calls.size() == 2);
  h.Say(0, Ended{absl::ResourceExhaustedError("no blocks")});
  h.Say(1, Ended{absl::ResourceExhaustedError("no blocks")});
  CHECK(h.client.calls.size() == 2);
  CHECK(h.dispatcher->NextWake() <= h.now + absl::Milliseconds(20));
  h.Pass(absl::Milliseconds(100));
  REQUIRE(h.client.calls.size() == 3);
  CHECK(h.reserve(2).attempt.request.number == 1);
  CHECK(h.reserve(2).attempt.attempt == 2);
  h.SayTicket(2);
  CHECK(h.client.calls.size() == 5);  // the writer's stream, and the second request
  CHECK(h.dispatcher->snapshot().attempts[static_cast<size_t>(AttemptResult::kRefused)] == 2);
}

TEST_CASE("refusals for want of memory never become a failure", "[router]") {
  Harness h;
  const ClientKey client = h.Send(10, 1);
  for (int i = 0; i < 20; ++i) {
    h.Say(-1, Ended{absl::ResourceExhaustedError("no blocks")});
    h.Pass(absl::Milliseconds(100));
  }
  CHECK(h.over(client) == nullptr);
  h.SayColocated(-1);
  h.SayToken(-1, 0);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  CHECK(h.over(client)->attempts == 1);
  CHECK(h.over(client)->stages.queue == absl::Seconds(2));
}

TEST_CASE("unanswered reservations per decode are bounded", "[router]") {
  Harness h({}, {.reserving_max = 2});
  for (int i = 0; i < 5; ++i) h.Send(10);
  CHECK(h.client.calls.size() == 2);
  h.SayColocated(0);
  CHECK(h.client.calls.size() == 3);
}

TEST_CASE("requests with the same beginning go to the same pair, load permitting", "[router]") {
  Harness h({.prefill = 2, .decode = 2});
  Submit submit;
  submit.sequence.prompt.assign(1000, 5);
  submit.sequence.remaining_tokens = 3;
  submit.received = h.now;
  submit.deadline = absl::Seconds(9);
  submit.client = ClientKey(901);
  h.Send(submit);
  h.SayTicket(0);
  h.SayToken(0, 0);
  submit.client = ClientKey(902);
  h.Send(submit);
  CHECK(h.call(2).worker == h.call(0).worker);
  CHECK(h.reserve(2).writer == h.reserve(0).writer);
}

TEST_CASE("stages of an answer add up to its time to the first token", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600, 1);
  const absl::Time sent = h.now;
  h.now += absl::Milliseconds(3);
  h.SayTicket(0);
  h.now += absl::Milliseconds(50);
  h.Say(1, PrefillDone{});
  h.Say(0, PromptStats{.pushed = true,
                       .queued = absl::Milliseconds(1),
                       .compute = absl::Milliseconds(40),
                       .exposed = absl::Milliseconds(4)});
  h.now += absl::Milliseconds(2);
  h.SayToken(0, 0);
  const Stages& s = h.over(client)->stages;
  CHECK(s.queue + s.reserve + s.prefill + s.kv_exposed + s.first_token + s.retry == h.now - sent);
  CHECK(s.kv_exposed == absl::Milliseconds(4));
  CHECK(s.reserve == absl::Milliseconds(3));
}

}  // namespace baton::router
