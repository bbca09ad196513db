// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A dispatcher whose workers are played by the test, message by message.
//
// FakeWorkerClient records what the dispatcher calls and says what the test tells it to.
// Harness adds a clock and short words for what a front end's neighbours do.  Worker 0.. are
// the prefills, then the decodes, in the order of the configured list.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "router/dispatcher.h"

namespace baton::router {

class FakeWorkerClient final : public WorkerClient {
 public:
  struct Call {  // one Open and what followed on its stream
    WorkerIndex worker;
    StreamId stream;
    ToWorker first;
    std::vector<ToWorker> sent;
    bool closed = false;
  };

  StreamId Open(WorkerIndex worker, ToWorker first) override {
    calls.push_back({worker, StreamId(calls.size() + 1), std::move(first), {}, false});
    return calls.back().stream;
  }
  void Send(StreamId stream, ToWorker message) override {
    at(stream).sent.push_back(std::move(message));
  }
  void Close(StreamId stream) override { at(stream).closed = true; }
  void Poll(std::vector<ClientEvent>& out) override {
    for (ClientEvent& event : std::exchange(events, {})) out.push_back(std::move(event));
  }

  Call& at(StreamId stream) { return calls.at(stream.value() - 1); }

  std::vector<Call> calls;
  std::vector<ClientEvent> events;
};

struct Shape {
  uint32_t prefill = 1;
  uint32_t decode = 1;
};

class Harness {
 public:
  explicit Harness(Shape shape = {}, Dispatcher::Options options = {}) : shape_(shape) {
    std::vector<WorkerSpec> specs;
    for (uint32_t i = 0; i < shape.prefill; ++i) {
      specs.push_back({"prefill-" + std::to_string(i), Role::kPrefill});
    }
    for (uint32_t i = 0; i < shape.decode; ++i) {
      specs.push_back({"decode-" + std::to_string(i), Role::kDecode});
    }
    for (uint32_t i = 0; i < specs.size(); ++i) {
      WorkerStatus status;
      status.self = {specs[i].name, Incarnation(100 + i)};
      status.role = specs[i].role;
      status.ready = true;
      status.context_max = 8192;
      status.blocks_total = status.blocks_available = 1000;
      statuses.push_back(status);
    }
    LinkAll();
    dispatcher = std::make_unique<Dispatcher>(options, specs, client, Incarnation(7), 42);
    HeartbeatAll();
    Tick();
  }

  WorkerIndex prefill(uint32_t i) const { return WorkerIndex(i); }
  WorkerIndex decode(uint32_t i) const { return WorkerIndex(shape_.prefill + i); }
  WorkerStatus& status(WorkerIndex worker) { return statuses[worker.value()]; }

  // Every decode reports a link to the present life of every prefill.
  void LinkAll() {
    for (WorkerStatus& status : statuses) {
      if (status.role != Role::kDecode) continue;
      status.links.clear();
      for (const WorkerStatus& peer : statuses) {
        if (peer.role == Role::kPrefill)
          status.links.push_back({peer.self, "sim", {.bandwidth = 1e9}});
      }
    }
  }
  void Heartbeat(WorkerIndex worker) {
    ++status(worker).ticks;
    client.events.push_back(WorkerSaid{worker, status(worker)});
  }
  void HeartbeatAll() {
    for (uint32_t i = 0; i < statuses.size(); ++i) {
      if (!silent.count(i)) Heartbeat(WorkerIndex(i));
    }
  }

  // Ticks until there is nothing to do, and keeps what comes out.
  void Tick() {
    while (dispatcher->Tick(now)) Collect();
    Collect();
  }
  // Lets time pass in steps of 100 ms, with heartbeats from whoever is not silent.
  void Pass(absl::Duration time) {
    const absl::Time end = now + time;
    while (now < end) {
      now = std::min(end, now + absl::Milliseconds(100));
      HeartbeatAll();
      Tick();
    }
  }

  ClientKey Send(uint32_t prompt_tokens, uint32_t new_tokens = 4) {
    Submit submit;
    submit.client = ClientKey(++clients_);
    for (uint32_t i = 0; i < prompt_tokens; ++i) {
      submit.sequence.prompt.push_back(static_cast<TokenId>(1000 * clients_ + i));
    }
    submit.sequence.remaining_tokens = new_tokens;
    submit.sequence.stop_ids = {2};
    submit.received = now;
    submit.deadline = absl::Seconds(60);
    return Send(std::move(submit));
  }
  ClientKey Send(Submit submit) {
    const ClientKey client = submit.client;
    dispatcher->Receive(std::move(submit));
    Tick();
    return client;
  }

  // What a worker says on the stream of a call (counted from 0, from the end if negative).
  FakeWorkerClient::Call& call(int index) {
    const int count = static_cast<int>(client.calls.size());
    return client.calls.at(index < 0 ? count + index : index);
  }
  void Say(int index, FromWorker message) {
    client.events.push_back(StreamSaid{call(index).stream, std::move(message)});
    Tick();
  }
  void Lose(int index) {
    client.events.push_back(StreamLost{call(index).stream, absl::UnavailableError("cut")});
    Tick();
  }
  void SayTicket(int index) { Say(index, Reserved{0, 600, 0, {1, 2, 3}}); }
  void SayColocated(int index, uint32_t uncached = 10) { Say(index, Reserved{0, uncached, 0, {}}); }
  void SayToken(int index, uint32_t at, TokenId id = 50) { Say(index, Token{at, {id}}); }

  const Reserve& reserve(int index) { return std::get<Reserve>(call(index).first); }
  const Prefill& prefill_of(int index) { return std::get<Prefill>(call(index).first); }
  bool revoked(int index) {
    return !call(index).sent.empty() && std::holds_alternative<Revoke>(call(index).sent.back());
  }

  // What the edge was told about a client.
  std::vector<uint32_t> indices(ClientKey client) const {
    std::vector<uint32_t> found;
    for (const ClientOutput& output : told) {
      const auto* delivered = std::get_if<Delivered>(&output);
      if (delivered != nullptr && delivered->client == client) found.push_back(delivered->index);
    }
    return found;
  }
  std::vector<Path> paths(ClientKey client) const {
    std::vector<Path> found;
    for (const ClientOutput& output : told) {
      const auto* placed = std::get_if<Placed>(&output);
      if (placed != nullptr && placed->client == client) found.push_back(placed->path);
    }
    return found;
  }
  // The one Over of the client; nullptr while it runs.  Fails if there are two (K9).
  const Over* over(ClientKey client) const {
    const Over* found = nullptr;
    for (const ClientOutput& output : told) {
      const auto* over = std::get_if<Over>(&output);
      if (over == nullptr || over->client != client) continue;
      REQUIRE(found == nullptr);
      found = over;
    }
    return found;
  }
  // No stream is left open: K9 seen from the workers.
  bool owns_nothing() const {
    for (const auto& call : client.calls) {
      if (!call.closed) return false;
    }
    return dispatcher->idle();
  }

  absl::Time now = absl::FromUnixSeconds(1000);
  FakeWorkerClient client;
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<WorkerStatus> statuses;
  std::set<uint32_t> silent;
  std::vector<ClientOutput> told;

 private:
  void Collect() {
    for (ClientOutput& output : dispatcher->TakeOutputs()) told.push_back(std::move(output));
  }

  const Shape shape_;
  uint64_t clients_ = 0;
};

}  // namespace baton::router
