// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What every WorkerClient must do, whatever carries its calls (router/worker_client.h).
//
// Each implementation brings a WorkerClientFixture: the client under test, two scripted
// workers (0 and 1) that answer heartbeats, and the faults.  RunWorkerClientContract holds
// the sections; call it from one TEST_CASE per implementation.
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "base/messages.h"
#include "router/worker_client.h"

namespace baton::router {

class WorkerClientFixture {
 public:
  virtual ~WorkerClientFixture() = default;

  virtual WorkerClient& client() = 0;
  virtual Incarnation self() const = 0;  // what the client's heartbeats carry
  // Lets things happen for a little while (virtual or real), some milliseconds.
  virtual void Step() = 0;

  // What a worker received since the last call, without heartbeats.
  virtual std::vector<WorkerInput> TakeInputs(WorkerIndex worker) = 0;
  // The front ends whose heartbeats it received since the last call.
  virtual std::vector<Incarnation> TakeHeartbeats(WorkerIndex worker) = 0;
  virtual void Say(WorkerIndex worker, WorkerOutput output) = 0;
  virtual void SetStatus(WorkerIndex worker, WorkerStatus status) = 0;

  virtual void Kill(WorkerIndex worker) = 0;   // the process dies
  virtual void Start(WorkerIndex worker) = 0;  // another process takes its place
  virtual void Break(WorkerIndex worker) = 0;  // the connection breaks, both ends live
};

inline bool Same(const Reserve& a, const Reserve& b) {
  return a.attempt == b.attempt && a.decode == b.decode && a.sequence == b.sequence &&
         a.remaining == b.remaining && a.writer == b.writer && a.colocate_below == b.colocate_below;
}
inline bool Same(const Prefill& a, const Prefill& b) {
  return a.attempt == b.attempt && a.sequence == b.sequence && a.remaining == b.remaining &&
         a.ticket == b.ticket;
}

// A test's view of a fixture: collects what both sides hear, in order.
class ContractRun {
 public:
  explicit ContractRun(std::unique_ptr<WorkerClientFixture> made) : fixture(std::move(made)) {
    inputs.resize(2);
  }

  // Until `done`, at most 2,000 steps.
  bool Until(const std::function<bool()>& done) {
    for (int i = 0; i < 2000; ++i) {
      Collect();
      if (done()) return true;
      fixture->Step();
    }
    return false;
  }
  // Long enough for anything that is under way to arrive.
  void Settle() {
    for (int i = 0; i < 50; ++i) fixture->Step();
    Collect();
  }
  void Collect() {
    fixture->client().Poll(events);
    for (uint32_t worker = 0; worker < 2; ++worker) {
      for (WorkerInput& input : fixture->TakeInputs(WorkerIndex(worker))) {
        inputs[worker].push_back(std::move(input));
      }
    }
  }

  // The worker's name of the stream that it saw opened as its `nth`.
  StreamId WorkerStream(uint32_t worker, size_t nth) {
    size_t seen = 0;
    for (const WorkerInput& input : inputs[worker]) {
      const auto* opened = std::get_if<StreamOpened>(&input);
      if (opened != nullptr && seen++ == nth) return opened->stream;
    }
    FAIL("the worker saw no such stream");
    return StreamId();
  }
  // Opens a stream and waits until the worker has it; returns the worker's name of it.
  StreamId Opened(uint32_t worker, StreamId* client_stream, ToWorker first = Revoke{}) {
    const size_t before = CountOpened(worker);
    *client_stream = fixture->client().Open(WorkerIndex(worker), std::move(first));
    REQUIRE(Until([&] { return CountOpened(worker) > before; }));
    return WorkerStream(worker, before);
  }
  size_t CountOpened(uint32_t worker) const {
    size_t count = 0;
    for (const WorkerInput& input : inputs[worker]) {
      count += std::holds_alternative<StreamOpened>(input);
    }
    return count;
  }
  size_t CountClosed(uint32_t worker, StreamId stream) const {
    size_t count = 0;
    for (const WorkerInput& input : inputs[worker]) {
      const auto* closed = std::get_if<StreamClosed>(&input);
      count += closed != nullptr && closed->stream == stream;
    }
    return count;
  }
  std::vector<const FromWorker*> Said(StreamId stream) const {
    std::vector<const FromWorker*> said;
    for (const ClientEvent& event : events) {
      const auto* one = std::get_if<StreamSaid>(&event);
      if (one != nullptr && one->stream == stream) said.push_back(&one->message);
    }
    return said;
  }
  size_t CountLost(StreamId stream) const {
    size_t count = 0;
    for (const ClientEvent& event : events) {
      const auto* lost = std::get_if<StreamLost>(&event);
      count += lost != nullptr && lost->stream == stream;
    }
    return count;
  }
  bool Gone(uint32_t worker) const {
    for (const ClientEvent& event : events) {
      const auto* gone = std::get_if<WorkerGone>(&event);
      if (gone != nullptr && gone->worker == WorkerIndex(worker)) return true;
    }
    return false;
  }
  // The last answered heartbeat of a worker; nullptr if there is none.
  const WorkerStatus* Status(uint32_t worker) const {
    const WorkerStatus* found = nullptr;
    for (const ClientEvent& event : events) {
      const auto* said = std::get_if<WorkerSaid>(&event);
      if (said != nullptr && said->worker == WorkerIndex(worker)) found = &said->status;
    }
    return found;
  }

  std::unique_ptr<WorkerClientFixture> fixture;
  std::vector<ClientEvent> events;
  std::vector<std::vector<WorkerInput>> inputs;  // by worker
};

inline Sequence ContractSequence() {
  Sequence sequence;
  sequence.prompt = {1, 2, 3, 151935};
  sequence.outputs = {9, 8};
  sequence.remaining_tokens = 77;
  sequence.min_tokens = 3;
  sequence.stop_ids = {2, 5};
  sequence.cache_salt = 0xffffffffffffffff;
  sequence.sampling.temperature = 0.7f;
  sequence.sampling.top_p = 0.9f;
  sequence.sampling.top_k = 40;
  sequence.sampling.min_p = 0.05f;
  sequence.sampling.repetition_penalty = 1.1f;
  sequence.sampling.presence_penalty = -1;
  sequence.sampling.frequency_penalty = 0.5f;
  sequence.sampling.seed = 0x8000000000000001;
  sequence.sampling.choice = 3;
  sequence.sampling.logprobs = 5;
  sequence.sampling.logit_bias = {{7, -100.0f}, {9, 2.5f}};
  return sequence;
}

inline void ContractMessages(ContractRun& run) {
  SECTION("what opens a stream arrives whole") {
    const Reserve reserve{.attempt = {{run.fixture->self(), 5}, 2},
                          .decode = Incarnation(0xfedcba9876543211),
                          .sequence = ContractSequence(),
                          .remaining = absl::Milliseconds(1500),
                          .writer = WorkerRef{"prefill-0", Incarnation(0xfedcba9876543210)},
                          .colocate_below = 512};
    const Prefill prefill{.attempt = {{run.fixture->self(), 5}, 3},
                          .sequence = ContractSequence(),
                          .remaining = absl::Seconds(300),
                          .ticket = {0, 255, 1}};
    StreamId a, b;
    run.Opened(0, &a, reserve);
    run.Opened(1, &b, prefill);
    const auto& at_0 = std::get<StreamOpened>(run.inputs[0].at(0));
    const auto& at_1 = std::get<StreamOpened>(run.inputs[1].at(0));
    REQUIRE(std::holds_alternative<Reserve>(at_0.first));
    REQUIRE(std::holds_alternative<Prefill>(at_1.first));
    CHECK(Same(std::get<Reserve>(at_0.first), reserve));
    CHECK(Same(std::get<Prefill>(at_1.first), prefill));
    CHECK(a != b);
  }
  SECTION("what a worker says arrives whole and in order") {
    StreamId stream;
    const StreamId at_worker = run.Opened(0, &stream);
    const auto say = [&](FromWorker message, bool last = false) {
      run.fixture->Say(WorkerIndex(0), {at_worker, std::move(message), last});
    };
    say(Reserved{16, 584, 16, {7, 0, 7}});
    say(Progress{512});
    say(PromptStats{true, 16, 584, 1u << 30, 37, "posix", absl::Milliseconds(1),
                    absl::Milliseconds(2), absl::Milliseconds(3), absl::Microseconds(4),
                    absl::Microseconds(2900)});
    say(Token{0, {42, -0.5f, {{42, -0.5f}, {43, -1.25f}}}});
    say(Settled{true});
    say(Ended{absl::ResourceExhaustedError("no blocks"), true}, true);
    REQUIRE(run.Until([&] { return run.Said(stream).size() == 6; }));
    const auto said = run.Said(stream);
    const auto& reserved = std::get<Reserved>(*said[0]);
    CHECK(reserved.cached_tokens == 16);
    CHECK(reserved.uncached_tokens == 584);
    CHECK(reserved.first_pushed_position == 16);
    CHECK(reserved.ticket == std::vector<uint8_t>{7, 0, 7});
    CHECK(std::get<Progress>(*said[1]).tokens_done == 512);
    const auto& stats = std::get<PromptStats>(*said[2]);
    CHECK(stats.pushed);
    CHECK(stats.kv_bytes == 1u << 30);
    CHECK(stats.transport == "posix");
    CHECK(stats.exposed == absl::Microseconds(4));
    CHECK(stats.predicted == absl::Microseconds(2900));
    CHECK(std::get<Token>(*said[3]).token == OutputToken{42, -0.5f, {{42, -0.5f}, {43, -1.25f}}});
    CHECK(std::get<Settled>(*said[4]).committed);
    const auto& ended = std::get<Ended>(*said[5]);
    CHECK(ended.why.code() == absl::StatusCode::kResourceExhausted);
    CHECK(ended.why.message() == "no blocks");
    CHECK(ended.preempted);
  }
  SECTION("many messages at once keep their order and none is lost") {
    StreamId stream;
    const StreamId at_worker = run.Opened(0, &stream);
    for (uint32_t i = 0; i < 3000; ++i) {
      run.fixture->Say(WorkerIndex(0), {at_worker, Token{i, {static_cast<TokenId>(i)}}});
    }
    REQUIRE(run.Until([&] { return run.Said(stream).size() == 3000; }));
    const auto said = run.Said(stream);
    for (uint32_t i = 0; i < 3000; ++i) REQUIRE(std::get<Token>(*said[i]).index == i);
  }
  SECTION("a later message follows the one that opened the stream") {
    StreamId stream =
        run.fixture->client().Open(WorkerIndex(0), Reserve{.attempt = {{run.fixture->self(), 5}, 2},
                                                           .decode = Incarnation(9),
                                                           .sequence = ContractSequence(),
                                                           .remaining = absl::Seconds(1),
                                                           .writer = {},
                                                           .colocate_below = 1});
    run.fixture->client().Send(stream, Revoke{});
    run.fixture->client().Close(stream);
    REQUIRE(run.Until([&] { return run.inputs[0].size() >= 3; }));
    const auto* opened = std::get_if<StreamOpened>(&run.inputs[0][0]);
    const auto* message = std::get_if<StreamMessage>(&run.inputs[0][1]);
    const auto* closed = std::get_if<StreamClosed>(&run.inputs[0][2]);
    REQUIRE((opened != nullptr && message != nullptr && closed != nullptr));
    CHECK(message->stream == opened->stream);
    CHECK(closed->stream == opened->stream);
  }
}

inline void ContractEnds(ContractRun& run) {
  SECTION("after its last word a stream says nothing, and sending or closing is harmless") {
    StreamId stream;
    const StreamId at_worker = run.Opened(0, &stream);
    run.fixture->Say(WorkerIndex(0), {at_worker, Finished{}, true});
    REQUIRE(run.Until([&] { return run.Said(stream).size() == 1; }));
    run.fixture->client().Send(stream, Revoke{});
    run.fixture->client().Close(stream);
    run.fixture->client().Close(stream);
    run.Settle();
    CHECK(run.Said(stream).size() == 1);
    CHECK(run.CountLost(stream) == 0);
  }
  SECTION("closing reaches the worker, and no event follows it") {
    StreamId stream;
    const StreamId at_worker = run.Opened(0, &stream);
    for (uint32_t i = 0; i < 100; ++i) {
      run.fixture->Say(WorkerIndex(0), {at_worker, Token{i, {1}}});
    }
    run.fixture->client().Close(stream);
    run.events.clear();
    REQUIRE(run.Until([&] { return run.CountClosed(0, at_worker) == 1; }));
    run.Settle();
    CHECK(run.Said(stream).empty());
    CHECK(run.CountLost(stream) == 0);
    CHECK(run.CountClosed(0, at_worker) == 1);
  }
  SECTION("the end of one stream leaves the others alone") {
    StreamId a, b;
    const StreamId a_at_worker = run.Opened(0, &a);
    const StreamId b_at_worker = run.Opened(0, &b);
    CHECK(a_at_worker != b_at_worker);
    run.fixture->client().Close(a);
    run.fixture->Say(WorkerIndex(0), {b_at_worker, Token{0, {5}}});
    REQUIRE(run.Until([&] { return run.Said(b).size() == 1; }));
    run.Settle();
    CHECK(run.CountLost(b) == 0);
    CHECK(run.CountClosed(0, b_at_worker) == 0);
  }
}

inline void ContractFaults(ContractRun& run) {
  SECTION("a worker's death loses each of its streams once, and says that it is gone") {
    StreamId a, b, other;
    run.Opened(0, &a);
    run.Opened(0, &b);
    run.Opened(1, &other);
    run.fixture->Kill(WorkerIndex(0));
    REQUIRE(run.Until([&] { return run.CountLost(a) > 0 && run.CountLost(b) > 0 && run.Gone(0); }));
    run.Settle();
    CHECK(run.CountLost(a) == 1);
    CHECK(run.CountLost(b) == 1);
    CHECK(run.CountLost(other) == 0);
    CHECK_FALSE(run.Gone(1));
  }
  SECTION("a stream to a dead worker is lost, not refused") {
    run.fixture->Kill(WorkerIndex(0));
    const StreamId stream = run.fixture->client().Open(WorkerIndex(0), Revoke{});
    REQUIRE(run.Until([&] { return run.CountLost(stream) == 1; }));
    run.Settle();
    CHECK(run.CountLost(stream) == 1);
    CHECK(run.CountOpened(0) == 0);
  }
  SECTION("a broken connection closes the worker's end and loses the client's, each once") {
    StreamId stream;
    const StreamId at_worker = run.Opened(0, &stream);
    run.fixture->Break(WorkerIndex(0));
    REQUIRE(run.Until(
        [&] { return run.CountLost(stream) == 1 && run.CountClosed(0, at_worker) == 1; }));
    // It connects again by itself.
    run.events.clear();
    REQUIRE(run.Until([&] { return run.Status(0) != nullptr; }));
    StreamId again;
    run.Opened(0, &again);
    run.Settle();
    CHECK(run.CountLost(stream) == 0);
    CHECK(run.CountClosed(0, at_worker) == 1);
  }
}

inline void ContractHeartbeats(ContractRun& run) {
  SECTION("heartbeats carry the front end's incarnation and bring back the worker's state") {
    WorkerStatus status;
    status.self = {"decode-0", Incarnation(0xabcdef0123456789)};
    status.role = Role::kDecode;
    status.ticks = 12345678901;
    status.ready = true;
    status.draining = true;
    status.context_max = 8192;
    status.model_fingerprint = 0xffffffff00000001;
    status.blocks_total = 100;
    status.blocks_available = 99;
    status.attempts = 7;
    status.waiting_tokens = 4242;
    LinkStatus& link = status.links.emplace_back();
    link.peer = {"prefill-0", Incarnation(3)};
    link.transport = "posix";
    link.cost = {.latency = absl::Microseconds(7),
                 .per_operation = absl::Nanoseconds(130),
                 .bandwidth = 1.5e9,
                 .sums_bandwidth = 9e9};
    link.in_flight_bytes = 77;
    status.kv_layers = 30;
    status.kv_block_bytes = 368640;
    status.prompt_tokens_per_second = 512.5;
    run.fixture->SetStatus(WorkerIndex(0), status);
    REQUIRE(
        run.Until([&] { return run.Status(0) != nullptr && run.Status(0)->ticks == 12345678901; }));
    const WorkerStatus& said = *run.Status(0);
    CHECK(said.self == status.self);
    CHECK(said.role == Role::kDecode);
    CHECK(said.ready);
    CHECK(said.draining);
    CHECK(said.context_max == 8192);
    CHECK(said.model_fingerprint == 0xffffffff00000001);
    CHECK(said.blocks_total == 100);
    CHECK(said.blocks_available == 99);
    CHECK(said.attempts == 7);
    CHECK(said.waiting_tokens == 4242);
    REQUIRE(said.links.size() == 1);
    CHECK(said.links[0].peer == status.links[0].peer);
    CHECK(said.links[0].transport == "posix");
    CHECK(said.links[0].cost == status.links[0].cost);
    CHECK(said.links[0].in_flight_bytes == 77);
    CHECK(said.kv_layers == 30);
    CHECK(said.kv_block_bytes == 368640);
    CHECK(said.prompt_tokens_per_second == 512.5);
    const auto heartbeats = run.fixture->TakeHeartbeats(WorkerIndex(0));
    REQUIRE_FALSE(heartbeats.empty());
    CHECK(heartbeats.front() == run.fixture->self());
  }
  SECTION("a restarted worker answers heartbeats again, under its new incarnation") {
    WorkerStatus status;
    status.self = {"decode-0", Incarnation(1)};
    run.fixture->SetStatus(WorkerIndex(0), status);
    REQUIRE(run.Until([&] { return run.Status(0) != nullptr; }));
    run.fixture->Kill(WorkerIndex(0));
    REQUIRE(run.Until([&] { return run.Gone(0); }));
    status.self.incarnation = Incarnation(2);
    run.fixture->Start(WorkerIndex(0));
    run.fixture->SetStatus(WorkerIndex(0), status);
    REQUIRE(run.Until([&] { return run.Status(0)->self.incarnation == Incarnation(2); }));
    StreamId stream;
    run.Opened(0, &stream);
  }
}

inline void RunWorkerClientContract(
    const std::function<std::unique_ptr<WorkerClientFixture>()>& make) {
  ContractRun run(make());
  ContractMessages(run);
  ContractEnds(run);
  ContractFaults(run);
  ContractHeartbeats(run);
}

}  // namespace baton::router
