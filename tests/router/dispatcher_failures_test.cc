// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What the dispatcher does when something fails: settle, retry, resume, end (K9, K10).
#include <catch2/catch.hpp>

#include "tests/router/dispatcher_harness.h"

namespace baton::router {
namespace {

// Brings a request of 600 tokens to each state in which it may be when something happens.
struct State {
  const char* name;
  void (*reach)(Harness&);
};
void Queued(Harness& h) { h.Say(0, Ended{absl::ResourceExhaustedError("")}); }
void Reserving(Harness&) {}
void Computing(Harness& h) { h.SayColocated(0, 600); }
void Prefilling(Harness& h) { h.SayTicket(0); }
void Pushed(Harness& h) {
  h.SayTicket(0);
  h.Say(1, PrefillDone{});
}
void Settling(Harness& h) {
  h.SayTicket(0);
  h.Lose(1);
}
void Landing(Harness& h) {
  Settling(h);
  h.Say(0, Settled{true});
}
void Decoding(Harness& h) {
  h.SayTicket(0);
  h.SayToken(0, 0);
}
constexpr State kStates[] = {{"queued", Queued},       {"reserving", Reserving},
                             {"computing", Computing}, {"prefilling", Prefilling},
                             {"pushed", Pushed},       {"settling", Settling},
                             {"landing", Landing},     {"decoding", Decoding}};

}  // namespace

TEST_CASE("cancel ends a request at once in every state, and it owns nothing", "[router]") {
  for (const State& state : kStates) {
    INFO(state.name);
    Harness h;
    const ClientKey client = h.Send(600);
    state.reach(h);
    h.dispatcher->Receive(Cancel{client});
    h.Tick();
    REQUIRE(h.over(client) != nullptr);
    CHECK(h.over(client)->outcome == Outcome::kCancelled);
    CHECK(h.over(client)->status.code() == absl::StatusCode::kCancelled);
    CHECK(h.owns_nothing());
  }
}

TEST_CASE("the deadline ends a request in every state", "[router]") {
  for (const State& state : kStates) {
    INFO(state.name);
    Harness h({}, {.progress_timeout = absl::Seconds(300), .settle_timeout = absl::Seconds(300)});
    const ClientKey client = h.Send(600);
    state.reach(h);
    h.Pass(absl::Milliseconds(59900));
    CHECK(h.over(client) == nullptr);
    CHECK(h.dispatcher->NextWake() <= h.now + absl::Milliseconds(100));
    h.Pass(absl::Milliseconds(100));
    REQUIRE(h.over(client) != nullptr);
    CHECK(h.over(client)->outcome == Outcome::kTimeout);
    CHECK(h.over(client)->status.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK(h.owns_nothing());
  }
}

TEST_CASE("a lost decode stream settles the attempt in every state, and another decode runs it",
          "[router]") {
  for (const State& state : kStates) {
    INFO(state.name);
    if (state.reach == Queued) continue;
    Harness h({.prefill = 1, .decode = 2});
    const ClientKey client = h.Send(600, 2);
    state.reach(h);
    h.Lose(0);
    CHECK(h.call(0).closed);
    const FakeWorkerClient::Call next = h.call(-1);
    CHECK(next.worker.value() != h.call(0).worker.value());
    const Reserve& reserve = std::get<Reserve>(next.first);
    CHECK(reserve.attempt.attempt == 2);
    CHECK(reserve.sequence.outputs.size() == h.indices(client).size());
    CHECK(reserve.sequence.remaining_tokens == 2 - h.indices(client).size());
    h.SayColocated(-1, 600);
    for (uint32_t i = static_cast<uint32_t>(h.indices(client).size()); i < 2; ++i) {
      h.SayToken(-1, i);
    }
    CHECK(h.over(client)->outcome == Outcome::kLength);
    CHECK(h.indices(client) == std::vector<uint32_t>{0, 1});
    CHECK(h.owns_nothing());
  }
}

TEST_CASE("a lost writer: decode is asked, `revoked` moves the request to the other prefill",
          "[router]") {
  Harness h({.prefill = 2});
  const ClientKey client = h.Send(600);
  h.SayTicket(0);
  const WorkerIndex first = h.call(1).worker;
  h.Lose(1);
  CHECK(h.revoked(0));
  CHECK(h.client.calls.size() == 2);  // nothing new before the old attempt is settled
  h.Say(0, Settled{false});
  CHECK(h.call(0).closed);
  REQUIRE(h.reserve(2).writer.has_value());
  h.SayTicket(2);
  CHECK(h.call(3).worker != first);
  CHECK(h.over(client) == nullptr);
}

TEST_CASE("a lost writer: `committed` wins and the answer goes on", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600, 1);
  h.SayTicket(0);
  h.Lose(1);
  h.Say(0, Settled{true});
  CHECK(h.dispatcher->snapshot().waiting[3] == 1);
  h.Pass(absl::Seconds(10));
  h.SayToken(0, 0);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  CHECK(h.over(client)->attempts == 1);
}

TEST_CASE("a token that arrives before the answer to Revoke says `committed` as well", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600, 2);
  h.SayTicket(0);
  h.Lose(1);
  h.SayToken(0, 0);
  h.Say(0, Settled{true});
  h.Pass(absl::Seconds(10));
  h.SayToken(0, 1);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  CHECK(h.over(client)->attempts == 1);
}

TEST_CASE("with one prefill the remedy is decode itself, and the path says fallback", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600, 1);
  h.SayTicket(0);
  h.Say(1, Ended{absl::UnavailableError("link")});
  h.Say(0, Settled{false});
  CHECK_FALSE(h.reserve(2).writer.has_value());
  h.SayColocated(2, 600);
  h.SayToken(2, 0);
  CHECK(h.over(client)->path == Path::kFallback);
  CHECK(h.paths(client) == std::vector{Path::kDisaggregated, Path::kFallback});
  CHECK(h.over(client)->stages.retry == absl::ZeroDuration());
}

TEST_CASE("with many prefills the third attempt still depends on decode alone", "[router]") {
  Harness h({.prefill = 5});
  h.Send(600);
  for (int attempt = 0; attempt < 2; ++attempt) {
    h.SayTicket(-1);
    h.Lose(-1);
    h.Say(-2, Settled{false});
  }
  CHECK_FALSE(h.reserve(-1).writer.has_value());
}

TEST_CASE("when every remedy failed the client gets UNAVAILABLE", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600);
  h.SayTicket(0);
  h.Lose(1);
  h.Say(0, Settled{false});
  for (int i = 0; i < 2; ++i) {
    CHECK(h.over(client) == nullptr);
    h.Lose(-1);
    h.Pass(absl::Milliseconds(200));
  }
  REQUIRE(h.over(client) != nullptr);
  CHECK(h.over(client)->outcome == Outcome::kError);
  CHECK(h.over(client)->status.code() == absl::StatusCode::kUnavailable);
  CHECK(h.over(client)->retry_after > absl::ZeroDuration());
  CHECK(h.over(client)->attempts == 3);
}

TEST_CASE("a prefill without a sign of life is given up after the progress time-out", "[router]") {
  Harness h({}, {.progress_timeout = absl::Seconds(5)});
  h.Send(600);
  h.SayTicket(0);
  h.Pass(absl::Milliseconds(4900));
  h.Say(1, Progress{});  // waiting in its queue is one
  h.Pass(absl::Milliseconds(4900));
  CHECK_FALSE(h.revoked(0));
  h.Pass(absl::Milliseconds(100));
  CHECK(h.revoked(0));
  CHECK(h.call(1).closed);
}

TEST_CASE("the progress time-out does not count from the reservation", "[router]") {
  Harness h({}, {.progress_timeout = absl::Seconds(5)});
  h.Send(600);
  h.Pass(absl::Seconds(10));
  h.SayTicket(0);
  h.Pass(absl::Seconds(4));
  CHECK_FALSE(h.revoked(0));
}

TEST_CASE("a decode that does not settle is not listened to any more", "[router]") {
  Harness h({.prefill = 1, .decode = 2});
  const ClientKey client = h.Send(600);
  h.SayTicket(0);
  h.Lose(1);
  h.Pass(absl::Seconds(2));
  CHECK(h.call(0).closed);
  CHECK(h.call(-1).worker != h.call(0).worker);
  h.SayToken(0, 0);  // too late (K4)
  CHECK(h.indices(client).empty());
  CHECK(h.dispatcher->snapshot().late_messages == 1);
}

TEST_CASE("a decode that stops answering heartbeats is dead and its requests resume elsewhere",
          "[router]") {
  Harness h({.prefill = 0, .decode = 2});
  const ClientKey client = h.Send(10, 3);
  h.SayColocated(0);
  h.SayToken(0, 0);
  h.silent.insert(h.call(0).worker.value());
  h.Pass(absl::Seconds(2));
  REQUIRE(h.client.calls.size() == 2);
  CHECK(h.call(0).closed);
  CHECK(h.reserve(1).sequence.outputs == std::vector<TokenId>{50});
  CHECK(h.reserve(1).sequence.remaining_tokens == 2);
  CHECK(h.reserve(1).sequence.prompt == h.reserve(0).sequence.prompt);
  CHECK(h.reserve(1).sequence.sampling.seed == h.reserve(0).sequence.sampling.seed);
  h.SayColocated(1);
  h.SayToken(1, 1);
  h.SayToken(1, 2);
  CHECK(h.indices(client) == std::vector<uint32_t>{0, 1, 2});
  CHECK(h.over(client)->resumes == 1);
  CHECK(h.over(client)->attempts == 2);
  CHECK(h.dispatcher->snapshot().resumes == 1);
}

TEST_CASE("a prefill that stops answering heartbeats fails its pushes", "[router]") {
  Harness h;
  h.Send(600);
  h.SayTicket(0);
  h.silent.insert(h.prefill(0).value());
  h.Pass(absl::Seconds(2));
  CHECK(h.revoked(0));
}

TEST_CASE("while the front end itself stood still nobody was silent", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600, 1);
  h.SayTicket(0);
  h.Lose(1);
  REQUIRE(h.revoked(0));
  h.now += absl::Seconds(30);
  h.Tick();
  CHECK(h.over(h.Send(10)) == nullptr);  // decode is there
  CHECK_FALSE(h.call(0).closed);         // and its answer to Revoke may be on the way
  h.Say(0, Settled{true});
  h.SayToken(0, 0);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  h.Pass(absl::Milliseconds(100));
  h.silent = {h.prefill(0).value(), h.decode(0).value()};
  h.Pass(absl::Seconds(2));  // this is silence
  CHECK_FALSE(h.dispatcher->snapshot().ready);
}

TEST_CASE("a decode has its grace to return also when the front end stood still", "[router]") {
  Harness h;
  const ClientKey client = h.Send(10, 1);
  h.client.events.push_back(WorkerGone{h.decode(0)});
  h.Lose(0);
  h.now += absl::Seconds(30);
  h.Tick();
  CHECK(h.over(client) == nullptr);
  h.Heartbeat(h.decode(0));
  h.Tick();
  h.SayColocated(1);
  h.SayToken(1, 0);
  CHECK(h.over(client)->outcome == Outcome::kLength);
}

TEST_CASE("a prefill that died after its last word is not asked about", "[router]") {
  Harness h;
  const ClientKey client = h.Send(600, 1);
  Pushed(h);
  h.silent.insert(h.prefill(0).value());
  h.Pass(absl::Seconds(3));
  CHECK_FALSE(h.revoked(0));
  h.SayToken(0, 0);
  CHECK(h.over(client)->outcome == Outcome::kLength);
}

TEST_CASE("a restarted worker is another one: what ran on its earlier life is lost", "[router]") {
  Harness h({.prefill = 1, .decode = 2});
  h.Send(600);
  h.SayTicket(0);
  h.status(h.prefill(0)).self.incarnation = Incarnation(999);
  h.Heartbeat(h.prefill(0));
  h.Tick();
  CHECK(h.revoked(0));
  h.Say(0, Settled{false});
  const WorkerIndex decode = h.call(-1).worker;
  h.SayColocated(-1, 600);
  h.status(decode).self.incarnation = Incarnation(998);
  h.Heartbeat(decode);
  h.Tick();
  CHECK(h.call(2).closed);
  CHECK(h.call(-1).worker != decode);
}

TEST_CASE("a writer that restarted while decode reserved gets no ticket", "[router]") {
  Harness h;
  h.Send(600);
  h.status(h.prefill(0)).self.incarnation = Incarnation(999);
  h.Heartbeat(h.prefill(0));
  h.SayTicket(0);
  CHECK(h.client.calls.size() == 1);
  CHECK(h.revoked(0));
}

TEST_CASE("the only decode gone: UNAVAILABLE within 5 s, and right again when it is back",
          "[router]") {
  Harness h;
  const ClientKey client = h.Send(10);
  h.SayColocated(0);
  h.SayToken(0, 0);
  h.silent.insert(h.decode(0).value());
  h.Pass(absl::Milliseconds(4900));
  REQUIRE(h.over(client) != nullptr);
  CHECK(h.over(client)->status.code() == absl::StatusCode::kUnavailable);
  CHECK(h.over(h.Send(10))->status.code() == absl::StatusCode::kUnavailable);
  h.silent.clear();
  h.status(h.decode(0)).self.incarnation = Incarnation(500);
  h.Pass(absl::Milliseconds(100));
  const ClientKey again = h.Send(10, 1);
  h.SayColocated(-1);
  h.SayToken(-1, 0);
  CHECK(h.over(again)->outcome == Outcome::kLength);
  CHECK(h.dispatcher->snapshot().reconnects == 1);
}

TEST_CASE("the only decode back within its grace goes on with the answer", "[router]") {
  Harness h;
  const ClientKey client = h.Send(10, 2);
  h.SayColocated(0);
  h.SayToken(0, 0);
  h.client.events.push_back(WorkerGone{h.decode(0)});
  h.Lose(0);
  CHECK(h.client.calls.size() == 1);
  h.now += absl::Milliseconds(1000);
  h.Tick();
  h.status(h.decode(0)).self.incarnation = Incarnation(500);
  h.Heartbeat(h.decode(0));
  h.Tick();
  REQUIRE(h.client.calls.size() == 2);
  h.SayColocated(1);
  h.SayToken(1, 1);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  CHECK(h.over(client)->resumes == 1);
}

TEST_CASE("a decode that failed a request is tried again only after news from it", "[router]") {
  Harness h;
  h.Send(10);
  h.Lose(0);
  CHECK(h.client.calls.size() == 1);
  h.Heartbeat(h.decode(0));
  h.Tick();
  CHECK(h.client.calls.size() == 2);
}

TEST_CASE("a stream lost after the last id ends the answer, not the attempt", "[router]") {
  Harness h({.prefill = 0, .decode = 2});
  const ClientKey client = h.Send(10, 1);
  h.SayColocated(0);
  h.client.events.push_back(StreamSaid{h.call(0).stream, Token{0, {50}}});
  h.Lose(0);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  CHECK(h.client.calls.size() == 1);
}

TEST_CASE("only the next index of the current attempt is accepted", "[router]") {
  Harness h({.prefill = 0, .decode = 2});
  const ClientKey client = h.Send(10, 4);
  h.SayColocated(0);
  h.SayToken(0, 0);
  h.SayToken(0, 0);
  CHECK(h.indices(client) == std::vector<uint32_t>{0});
  CHECK(h.dispatcher->snapshot().protocol_errors == 1);
  h.SayToken(0, 2);  // index 1 is missing: whatever this is, it is not the answer
  CHECK(h.indices(client) == std::vector<uint32_t>{0});
  CHECK(h.call(0).closed);
  CHECK(h.reserve(1).sequence.outputs.size() == 1);
}

TEST_CASE("Finished with ids missing is a failure, never an empty answer", "[router]") {
  Harness h({.prefill = 0, .decode = 2});
  const ClientKey client = h.Send(10, 4);
  h.SayColocated(0);
  h.Say(0, Finished{});
  CHECK(h.over(client) == nullptr);
  CHECK(h.client.calls.size() == 2);
}

TEST_CASE("a preempted request resumes without counting as a failure", "[router]") {
  Harness h({.prefill = 0, .decode = 1}, {.attempts_max = 1});
  const ClientKey client = h.Send(10, 10);
  for (uint32_t i = 0; i < 9; ++i) {
    h.SayColocated(-1);
    h.SayToken(-1, i);
    h.Say(-1, Ended{absl::UnavailableError("memory"), true});
    h.Pass(absl::Milliseconds(200));
  }
  h.SayColocated(-1);
  h.SayToken(-1, 9);
  CHECK(h.over(client)->outcome == Outcome::kLength);
  CHECK(h.over(client)->resumes == 9);
  CHECK(h.indices(client).size() == 10);
}

TEST_CASE("a draining prefill hands its prompts back, and that is no failure", "[router]") {
  Harness h({.prefill = 2}, {.attempts_max = 2});
  h.Send(600);
  h.SayTicket(0);
  const WorkerIndex first = h.call(1).worker;
  h.Say(1, Ended{absl::UnavailableError("drained"), true});
  h.Say(0, Settled{false});
  REQUIRE(h.reserve(2).writer.has_value());
  h.SayTicket(2);
  CHECK(h.call(3).worker != first);
}

TEST_CASE("with resume off a begun answer ends with an error", "[router]") {
  Harness h({.prefill = 0, .decode = 2}, {.resume = false});
  const ClientKey begun = h.Send(10, 10);
  h.SayColocated(0);
  h.SayToken(0, 0);
  h.Lose(0);
  CHECK(h.over(begun)->outcome == Outcome::kError);
  CHECK(h.over(begun)->status.code() == absl::StatusCode::kUnavailable);
  const ClientKey fresh = h.Send(10, 10);
  h.Lose(-1);
  CHECK(h.over(fresh) == nullptr);
}

TEST_CASE("an answer is resumed only on a worker with the same model", "[router]") {
  Harness h({.prefill = 0, .decode = 2});
  h.status(h.decode(0)).model_fingerprint = 11;
  h.status(h.decode(1)).model_fingerprint = 22;
  h.Pass(absl::Milliseconds(200));
  const ClientKey client = h.Send(10, 10);
  h.SayColocated(0);
  h.SayToken(0, 0);
  h.Lose(0);
  CHECK(h.client.calls.size() == 1);
  h.silent.insert(h.call(0).worker.value());
  h.Pass(absl::Milliseconds(4900));
  CHECK(h.over(client)->status.code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("an error that would recur everywhere is not tried again", "[router]") {
  Harness h({.prefill = 1, .decode = 2});
  const ClientKey client = h.Send(600);
  h.Say(0, Ended{absl::InvalidArgumentError("bad token id")});
  CHECK(h.over(client)->outcome == Outcome::kError);
  CHECK(h.over(client)->status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(h.client.calls.size() == 1);
}

TEST_CASE("a draining decode gets nothing new and its requests move", "[router]") {
  Harness h({.prefill = 0, .decode = 2});
  const ClientKey client = h.Send(10, 2);
  h.SayColocated(0);
  const WorkerIndex first = h.call(0).worker;
  h.status(first).draining = true;
  h.Pass(absl::Milliseconds(100));
  h.Say(0, Ended{absl::UnavailableError("draining"), true});
  CHECK(h.call(1).worker != first);
  for (int i = 0; i < 4; ++i) {
    h.Send(10);
    CHECK(h.call(-1).worker != first);
  }
  CHECK(h.over(client) == nullptr);
}

}  // namespace baton::router
