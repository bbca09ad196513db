// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A decode worker between a scripted engine and a scripted transport.
#pragma once

#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "decode_worker/decode_worker.h"
#include "tests/worker_fakes.h"

namespace baton::decode {

inline const engine::KvLayout kLayout{.layers = 2, .kv_heads = 1, .head_dim = 4, .blocks = 32};
inline const WorkerRef kSelf{"decode-0", Incarnation(20)};
inline const WorkerRef kWriter{"prefill-0", Incarnation(10)};

struct Rig {
  explicit Rig(Options options = {}, const engine::KvLayout& layout = kLayout)
      : layout(layout),
        engine(layout.layers),
        worker(WithKey(options), engine, transport, kSelf, layout) {
    transport.Say(kv::PeerUp{kWriter, {.transport = "fake", .data_path = 'A'}});
    Tick();
  }
  static Options WithKey(Options options) {
    options.prefix_cache.key = {1, 2};
    return options;
  }

  StreamId Reserve(uint64_t n, const Sequence& sequence, std::optional<WorkerRef> writer = kWriter,
                   uint32_t colocate_below = 0, absl::Duration remaining = absl::Seconds(60)) {
    const StreamId stream(n);
    worker.Receive(
        StreamOpened{stream, baton::Reserve{fakes::Attempt(n), kSelf.incarnation, sequence,
                                            remaining, writer, colocate_below}});
    Tick();
    return stream;
  }
  StreamId RunHere(uint64_t n, const Sequence& sequence) {
    return Reserve(n, sequence, std::nullopt);
  }
  // The generation of the stream's ticket.
  Generation TicketOf(StreamId stream) {
    const auto reserved = heard.All<Reserved>(stream);
    REQUIRE(reserved.size() == 1);
    REQUIRE(!reserved[0].ticket.empty());
    const auto ticket = kv::DecodeTicket(reserved[0].ticket);
    REQUIRE(ticket.ok());
    REQUIRE(transport.grants.at(ticket->key.generation) == *ticket);
    return ticket->key.generation;
  }
  void Commit(Generation generation, uint32_t first_index = 0, TokenId token = 7) {
    transport.Commit(
        transport.CommitFor(generation, layout.layers, layout.block_bytes(), first_index, token));
    Tick();
  }
  void Say(StreamId stream, ToWorker message) {
    worker.Receive(StreamMessage{stream, std::move(message)});
    Tick();
  }
  void Close(StreamId stream) {
    worker.Receive(StreamClosed{stream});
    Tick();
  }
  void Alive() { worker.Receive(FrontendAlive{Incarnation(99)}); }
  void Tick(absl::Duration later = absl::ZeroDuration()) {
    now += later;
    worker.Tick(now);
    heard.Take(worker.TakeOutputs());
    const engine::BlockCounts blocks = worker.metrics().blocks;
    REQUIRE(blocks.total() == layout.blocks);
    REQUIRE(blocks.reserved + blocks.quarantined <= layout.blocks / 2);
  }
  void Step(TokenId token = 7) {
    REQUIRE(engine.running.has_value());
    engine.Finish(token);
    Tick();
  }
  void RunAll(TokenId token = 7) {
    for (int i = 0; i < 400 && engine.running.has_value(); ++i) Step(token);
  }
  engine::BlockCounts blocks() const { return worker.metrics().blocks; }
  bool OwnsNothing() const { return blocks().free + blocks().cached == layout.blocks; }
  uint64_t Failures(Failure reason) const {
    return worker.metrics().failures[static_cast<size_t>(reason)];
  }
  uint64_t Stales(Stale kind) const { return worker.metrics().stale[static_cast<size_t>(kind)]; }

  const engine::KvLayout layout;
  absl::Time now = absl::UnixEpoch();
  fakes::ScriptedEngine engine;
  fakes::ScriptedOwner transport;
  DecodeWorker worker;
  fakes::Heard heard;
};

}  // namespace baton::decode
