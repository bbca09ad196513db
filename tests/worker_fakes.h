// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Scripted neighbours of a worker: an engine and a transport that do only what a test says,
// and check that the worker keeps their contracts.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/ensure.h"
#include "base/messages.h"
#include "engine/engine.h"
#include "kv_transfer/transport.h"

namespace baton::fakes {

class ScriptedEngine final : public engine::Engine {
 public:
  explicit ScriptedEngine(uint32_t layers, uint32_t vocab = 1000, uint32_t context = 4096) {
    info_ = {layers, vocab, context};
  }
  const engine::EngineInfo& info() const override { return info_; }
  void Submit(engine::Step step) override {
    ENSURE(!running.has_value() && step.id > last_id_ && !step.slices.empty());
    last_id_ = step.id;
    running = std::move(step);
    ++steps;
  }
  void Poll(std::vector<engine::Event>& events) override {
    events.insert(events.end(), events_.begin(), events_.end());
    events_.clear();
  }

  void LayerDone(uint32_t layer) {
    ENSURE(running.has_value() && running->layer_events);
    events_.push_back(engine::LayerDone{running->id, layer});
  }
  // Ends the step; every sampled slice gets `token`.
  void Finish(TokenId token = 7, const absl::Status& status = absl::OkStatus()) {
    ENSURE(running.has_value());
    engine::StepDone done{running->id, status, {}};
    for (const engine::Slice& slice : running->slices) {
      if (slice.sample.has_value() && status.ok()) done.sampled.push_back({slice.tag, {token}});
    }
    events_.push_back(done);
    running.reset();
  }
  // All layers, then the end.
  void Complete(TokenId token = 7) {
    for (uint32_t layer = 0; layer < info_.layers && running->layer_events; ++layer) {
      LayerDone(layer);
    }
    Finish(token);
  }

  std::optional<engine::Step> running;
  uint32_t steps = 0;

 private:
  engine::EngineInfo info_;
  std::vector<engine::Event> events_;
  uint64_t last_id_ = 0;
};

class ScriptedWriter final : public kv::WriterTransport {
 public:
  struct Posted {
    kv::WriteId id;
    kv::GrantKey key;
    uint32_t layer = 0;
    std::vector<kv::WritePiece> pieces;
  };

  void Accept(const kv::Ticket& ticket) override { accepted.push_back(ticket); }
  void Write(kv::WriteId id, kv::GrantKey key, uint32_t layer,
             absl::Span<const kv::WritePiece> pieces) override {
    ENSURE(!pieces.empty() && id > last_id_);
    ENSURE(std::find(abandoned.begin(), abandoned.end(), key) == abandoned.end());
    last_id_ = id;
    writes.push_back({id, key, layer, {pieces.begin(), pieces.end()}});
  }
  void SendCommit(const kv::Commit& commit) override {
    for (const Posted& write : writes) ENSURE(write.key != commit.key);  // all are done
    commits.push_back(commit);
  }
  void Abandon(kv::GrantKey key, const absl::Status&) override { abandoned.push_back(key); }
  void Poll(std::vector<kv::TransportEvent>& events) override {
    events.insert(events.end(), events_.begin(), events_.end());
    events_.clear();
  }

  void Say(kv::TransportEvent event) { events_.push_back(std::move(event)); }
  // Ends the oldest `count` writes.
  void Done(size_t count, const absl::Status& status = absl::OkStatus()) {
    for (; count > 0; --count) {
      ENSURE(!writes.empty());
      LinkWork work;
      if (status.ok()) work.bytes = writes.front().pieces.size() * block_bytes;
      Say(kv::WriteDone{writes.front().id, status, work});
      writes.erase(writes.begin());
    }
  }

  uint64_t block_bytes = 0;  // of the owner's layout
  std::vector<kv::Ticket> accepted;
  std::vector<Posted> writes;  // out
  std::vector<kv::Commit> commits;
  std::vector<kv::GrantKey> abandoned;

 private:
  std::vector<kv::TransportEvent> events_;
  kv::WriteId last_id_;
};

class ScriptedOwner final : public kv::OwnerTransport {
 public:
  void Grant(const kv::Ticket& ticket) override {
    ENSURE(grants.empty() || ticket.key.generation > last_);
    last_ = ticket.key.generation;
    grants[last_] = ticket;
  }
  void Revoke(Generation generation) override {
    ENSURE(grants.erase(generation) == 1);
    revoked.push_back(generation);
  }
  void Poll(std::vector<kv::TransportEvent>& events) override {
    events.insert(events.end(), events_.begin(), events_.end());
    events_.clear();
  }

  void Say(kv::TransportEvent event) { events_.push_back(std::move(event)); }
  // A right Commit for an open grant.
  kv::Commit CommitFor(Generation generation, uint32_t layers, uint64_t block_bytes,
                       uint32_t first_index = 0, TokenId token = 7) {
    const kv::Ticket& ticket = grants.at(generation);
    kv::Commit commit;
    commit.key = ticket.key;
    commit.writer = ticket.writer;
    commit.attempt = ticket.attempt;
    commit.blocks = static_cast<uint32_t>(ticket.blocks.size());
    commit.layers = layers;
    commit.bytes = commit.blocks * layers * block_bytes;
    commit.first_tokens = {{token}};
    commit.first_index = first_index;
    return commit;
  }
  void Commit(const kv::Commit& commit) {
    grants.erase(commit.key.generation);
    Say(kv::CommitArrived{commit});
  }
  void QuietAll() {
    for (const Generation generation : std::exchange(revoked, {})) Say(kv::Quiet{generation});
  }

  std::map<Generation, kv::Ticket> grants;  // open
  std::vector<Generation> revoked;          // and not yet quiet

 private:
  std::vector<kv::TransportEvent> events_;
  Generation last_;
};

// What a worker said, by stream; a stream says nothing after its last message.
class Heard {
 public:
  void Take(std::vector<WorkerOutput> outputs) {
    for (WorkerOutput& output : outputs) {
      ENSURE(!over[output.stream]);
      over[output.stream] = output.last;
      ENSURE(output.last == (std::holds_alternative<Finished>(output.message) ||
                             std::holds_alternative<Ended>(output.message)));
      said[output.stream].push_back(std::move(output.message));
    }
  }
  template <typename T>
  const T* Last(StreamId stream) const {
    const auto found = said.find(stream);
    if (found == said.end() || found->second.empty()) return nullptr;
    return std::get_if<T>(&found->second.back());
  }
  template <typename T>
  std::vector<T> All(StreamId stream) const {
    std::vector<T> all;
    const auto found = said.find(stream);
    if (found == said.end()) return all;
    for (const FromWorker& message : found->second) {
      if (const T* one = std::get_if<T>(&message)) all.push_back(*one);
    }
    return all;
  }
  absl::StatusCode Code(StreamId stream) const {
    const Ended* ended = Last<Ended>(stream);
    return ended == nullptr ? absl::StatusCode::kOk : ended->why.code();
  }

  std::map<StreamId, std::vector<FromWorker>> said;
  std::map<StreamId, bool> over;
};

inline Sequence Prompt(uint32_t tokens, TokenId first = 1) {
  Sequence sequence;
  sequence.prompt.resize(tokens);
  std::iota(sequence.prompt.begin(), sequence.prompt.end(), first);
  sequence.remaining_tokens = 4;
  return sequence;
}

inline AttemptId Attempt(uint64_t request, uint32_t attempt = 1, uint64_t frontend = 99) {
  return {{Incarnation(frontend), request}, attempt};
}

}  // namespace baton::fakes
