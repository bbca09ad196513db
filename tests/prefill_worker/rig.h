// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A prefill worker between a scripted engine and a scripted transport.
#pragma once

#include <catch2/catch.hpp>
#include <vector>

#include "prefill_worker/prefill_worker.h"
#include "tests/worker_fakes.h"

namespace baton::prefill {

inline const engine::KvLayout kLayout{.layers = 2, .kv_heads = 1, .head_dim = 4, .blocks = 16};
inline const WorkerRef kSelf{"prefill-0", Incarnation(10)};
inline const WorkerRef kOwner{"decode-0", Incarnation(20)};

struct Rig {
  explicit Rig(Options options = {}, const engine::KvLayout& layout = kLayout)
      : engine(layout.layers), worker(WithKey(options), engine, transport, kSelf, layout) {
    transport.block_bytes = layout.block_bytes();
    transport.Say(kv::PeerUp{kOwner, {.transport = "fake", .data_path = 'A'}});
    Tick();
  }
  static Options WithKey(Options options) {
    options.prefix_cache.key = {1, 2};
    options.push_events_max = 1000;
    return options;
  }

  static kv::Ticket TicketFor(const Sequence& sequence, AttemptId attempt, uint64_t generation,
                              uint32_t first_position = 0) {
    kv::Ticket ticket;
    ticket.key = {kOwner.incarnation, Generation(generation)};
    ticket.writer = kSelf.incarnation;
    ticket.attempt = attempt;
    ticket.first_position = first_position;
    ticket.tokens = sequence.size();
    for (uint32_t i = first_position / kBlockTokens; i < BlocksFor(sequence.size()); ++i) {
      ticket.blocks.push_back(100 + i);
    }
    return ticket;
  }
  // Opens a stream with the number `n` for request and generation `n`.
  StreamId Open(uint64_t n, const Sequence& sequence, uint32_t first_position = 0,
                absl::Duration remaining = absl::Seconds(60)) {
    const kv::Ticket ticket = TicketFor(sequence, fakes::Attempt(n), n, first_position);
    return OpenWith(n, sequence, kv::Encode(ticket), remaining);
  }
  StreamId OpenWith(uint64_t n, const Sequence& sequence, std::vector<uint8_t> ticket,
                    absl::Duration remaining = absl::Seconds(60)) {
    const StreamId stream(n);
    worker.Receive(
        StreamOpened{stream, Prefill{fakes::Attempt(n), sequence, remaining, std::move(ticket)}});
    Tick();
    return stream;
  }
  void Close(StreamId stream) {
    worker.Receive(StreamClosed{stream});
    Tick();
  }
  void Tick(absl::Duration later = absl::ZeroDuration()) {
    now += later;
    worker.Tick(now);
    heard.Take(worker.TakeOutputs());
    const engine::BlockCounts blocks = worker.metrics().blocks;
    REQUIRE(blocks.total() == kLayout.blocks);
    REQUIRE(blocks.reserved + blocks.quarantined == 0);  // nobody writes a prefill's pool
  }
  void Alive() { worker.Receive(FrontendAlive{Incarnation(99)}); }
  // Everything that was posted is done, and every step completes.
  void RunAll() {
    for (int i = 0; i < 100; ++i) {
      if (engine.running.has_value()) engine.Complete();
      Tick();
      transport.Done(transport.writes.size());
      Tick();
    }
  }
  bool Idle() const {
    const Metrics m = worker.metrics();
    return m.blocks.used == 0 && m.waiting + m.computing + m.pushing == 0;
  }
  uint64_t Failures(Failure reason) const {
    return worker.metrics().failures[static_cast<size_t>(reason)];
  }

  absl::Time now = absl::UnixEpoch();
  fakes::ScriptedEngine engine;
  fakes::ScriptedWriter transport;
  PrefillWorker worker;
  fakes::Heard heard;
};

}  // namespace baton::prefill
