// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The simulated calls keep the contract that the dispatcher relies on.
#include "sim/sim_worker_client.h"

#include <catch2/catch.hpp>

#include "tests/router/worker_client_contract.h"

namespace baton::sim {
namespace {

using router::WorkerIndex;

class SimFixture final : public router::WorkerClientFixture {
 public:
  explicit SimFixture(uint64_t seed)
      : net_(queue_, seed, {}), client_(net_, Incarnation(77), 2, [] {}) {
    Start(WorkerIndex(0));
    Start(WorkerIndex(1));
  }
  router::WorkerClient& client() override { return client_; }
  Incarnation self() const override { return Incarnation(77); }
  void Step() override { queue_.RunFor(absl::Milliseconds(2)); }
  std::vector<WorkerInput> TakeInputs(WorkerIndex worker) override {
    return std::exchange(workers_[worker.value()].inputs, {});
  }
  std::vector<Incarnation> TakeHeartbeats(WorkerIndex worker) override {
    return std::exchange(workers_[worker.value()].heartbeats, {});
  }
  void Say(WorkerIndex worker, WorkerOutput output) override {
    net_.Say(worker, std::move(output));
  }
  void SetStatus(WorkerIndex worker, WorkerStatus status) override {
    workers_[worker.value()].status = std::move(status);
  }
  void Kill(WorkerIndex worker) override { net_.WorkerDown(worker); }
  void Start(WorkerIndex worker) override {
    Worker& at = workers_[worker.value()];
    net_.WorkerUp(worker, {[&at](WorkerInput input) {
                             if (const auto* alive = std::get_if<FrontendAlive>(&input)) {
                               at.heartbeats.push_back(alive->frontend);
                             } else {
                               at.inputs.push_back(std::move(input));
                             }
                           },
                           [&at] { return at.status; }});
  }
  void Break(WorkerIndex worker) override { net_.Break(client_, worker); }

 private:
  struct Worker {
    std::vector<WorkerInput> inputs;
    std::vector<Incarnation> heartbeats;
    WorkerStatus status;
  };
  EventQueue queue_;
  CallNet net_;
  std::array<Worker, 2> workers_;
  SimWorkerClient client_;
};

}  // namespace

TEST_CASE("simulated calls to workers keep the contract", "[sim]") {
  router::RunWorkerClientContract([] { return std::make_unique<SimFixture>(1); });
}

TEST_CASE("they keep it whatever the seed", "[sim]") {
  const uint64_t seed = GENERATE(range(2, 12));
  router::RunWorkerClientContract([seed] { return std::make_unique<SimFixture>(seed); });
}

TEST_CASE("a stopped worker hears everything once it goes on", "[sim]") {
  EventQueue queue;
  CallNet net(queue, 1, {});
  std::vector<WorkerInput> heard;
  net.WorkerUp(WorkerIndex(0), {[&](WorkerInput input) { heard.push_back(std::move(input)); },
                                [] { return WorkerStatus(); }});
  SimWorkerClient client(net, Incarnation(7), 1, [] {});
  net.SetWorkerStopped(WorkerIndex(0), true);
  const StreamId stream = client.Open(WorkerIndex(0), Revoke{});
  client.Close(stream);
  queue.RunFor(absl::Seconds(3));
  CHECK(heard.empty());
  net.SetWorkerStopped(WorkerIndex(0), false);
  queue.RunFor(absl::Milliseconds(1));
  std::erase_if(
      heard, [](const WorkerInput& input) { return std::holds_alternative<FrontendAlive>(input); });
  REQUIRE(heard.size() == 2);
  CHECK(std::holds_alternative<StreamOpened>(heard[0]));
  CHECK(std::holds_alternative<StreamClosed>(heard[1]));
  CHECK(net.open_streams() == 1);  // the heartbeats'
}

TEST_CASE("nothing passes a held way, and nothing is lost on it", "[sim]") {
  EventQueue queue;
  CallNet net(queue, 1, {});
  size_t heard = 0;
  net.WorkerUp(WorkerIndex(0), {[&](WorkerInput) { ++heard; }, [] { return WorkerStatus(); }});
  SimWorkerClient client(net, Incarnation(7), 1, [] {});
  client.Open(WorkerIndex(0), Revoke{});
  net.SetHeld(client, WorkerIndex(0), true);
  std::vector<router::ClientEvent> events;
  queue.RunFor(absl::Seconds(3));
  client.Poll(events);
  CHECK(heard == 0);
  CHECK(events.empty());
  net.SetHeld(client, WorkerIndex(0), false);
  queue.RunFor(absl::Seconds(1));
  client.Poll(events);
  CHECK(heard > 1);
  CHECK_FALSE(events.empty());
}

TEST_CASE("the death of a front end closes its streams at the workers", "[sim]") {
  EventQueue queue;
  CallNet net(queue, 1, {});
  size_t closed = 0;
  net.WorkerUp(WorkerIndex(0),
               {[&](WorkerInput input) { closed += std::holds_alternative<StreamClosed>(input); },
                [] { return WorkerStatus(); }});
  {
    SimWorkerClient client(net, Incarnation(7), 1, [] {});
    client.Open(WorkerIndex(0), Revoke{});
    client.Open(WorkerIndex(0), Revoke{});
    queue.RunFor(absl::Seconds(1));
  }
  queue.RunFor(absl::Seconds(1));
  CHECK(closed == 2);
  CHECK(net.open_streams() == 0);
}

}  // namespace baton::sim
