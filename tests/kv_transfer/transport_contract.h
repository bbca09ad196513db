// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What every Transport must do, as one suite: SimTransport and UcxTransport run it, on path A
// and on path B.
//
// An implementation provides a TransportPair: one owner, one writer, linked; a way to let time
// pass; the faults it can cause.  RunContract runs every check on a fresh pair:
//
//   TEST_CASE("the contract of …") { contract::RunContract([] { return MakeMyPair('A'); }); }
#pragma once

#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/messages.h"
#include "kv_transfer/layout.h"
#include "kv_transfer/transport.h"

namespace baton::kv::contract {

enum class Fault {
  kBreakLink,     // reset of the control connection; it comes back by itself
  kStopWriter,    // SIGSTOP
  kWakeWriter,    // SIGCONT
  kKillWriter,    // kill -9; not restarted
  kRestartOwner,  // kill -9, then a new life; owner() is the new one
};

class TransportPair {
 public:
  virtual ~TransportPair() = default;
  virtual OwnerTransport& owner() = 0;
  virtual WriterTransport& writer() = 0;
  // Pools of at least 8 blocks and 3 layers.
  virtual Layout owner_layout() const = 0;
  virtual Layout writer_layout() const = 0;
  virtual uint8_t* owner_pool() = 0;
  virtual uint8_t* writer_pool() = 0;
  // Lets a little time pass (10 ms at most); 30 seconds of it must bring a link back.
  virtual void Step() = 0;
  virtual int steps_in_30_seconds() const = 0;
  // False: cannot be caused here; the check ends there.
  virtual bool Cause(Fault fault) = 0;
  // The writer answers no calls while stopped (its process is; in-process: its thread).
};

// A pair, and everything its two sides have said so far.
class Scene {
 public:
  explicit Scene(TransportPair& pair) : pair_(pair) {}

  void Poll();
  // Steps and polls until `done`; a failed REQUIRE after 30 seconds.
  void Until(const std::string& what, const std::function<bool()>& done);
  // Steps and polls for about `share` of 30 seconds.
  void Wait(double share);

  // Until both sides have seen the other come up, after what was already seen.
  void UntilUp();
  Ticket MakeTicket(std::vector<BlockIndex> blocks);
  // Fills the writer's block with bytes that depend on (salt, layer, block).
  void Fill(BlockIndex block, uint32_t salt);
  // Writes every layer of the ticket from the writer's blocks 0, 1, …
  void WriteAll(const Ticket& ticket);
  Commit CommitOf(const Ticket& ticket) const;
  // Grant, Accept, WriteAll, SendCommit, CommitArrived; then compares the pools.
  void PushWhole(std::vector<BlockIndex> blocks, uint32_t salt);
  void CheckPools(const Ticket& ticket) const;
  std::vector<uint8_t> OwnerBytes() const;

  template <typename T, typename Match>
  static int Count(const std::vector<TransportEvent>& events, Match match) {
    int count = 0;
    for (const TransportEvent& event : events) {
      const T* one = std::get_if<T>(&event);
      if (one != nullptr && match(*one)) ++count;
    }
    return count;
  }
  int quiets(Generation g) const {
    return Count<Quiet>(of_owner, [&](const Quiet& q) { return q.generation == g; });
  }
  int commits(Generation g) const {
    return Count<CommitArrived>(
        of_owner, [&](const CommitArrived& c) { return c.commit.key.generation == g; });
  }
  int failures(Generation g) const {
    return Count<WriterFailed>(of_owner, [&](const WriterFailed& f) { return f.generation == g; });
  }
  int ends(GrantKey key) const {
    return Count<PushEnded>(of_writer, [&](const PushEnded& e) { return e.key == key; });
  }
  absl::Status end_of(GrantKey key) const;
  int done() const {
    return Count<WriteDone>(of_writer, [](const WriteDone&) { return true; });
  }
  int done_ok() const {
    return Count<WriteDone>(of_writer, [](const WriteDone& d) { return d.status.ok(); });
  }
  int reborn() const {
    return Count<Reborn>(of_writer, [](const Reborn&) { return true; });
  }
  int owner_ups() const {
    return Count<PeerUp>(of_owner, [](const PeerUp&) { return true; });
  }
  int writer_ups() const {
    return Count<PeerUp>(of_writer, [](const PeerUp&) { return true; });
  }
  int owner_downs() const {
    return Count<PeerDown>(of_owner, [](const PeerDown&) { return true; });
  }

  std::vector<TransportEvent> of_owner, of_writer;
  WorkerRef owner_ref, writer_ref;  // by the last PeerUp that the other side saw
  int writes = 0;                   // asked for so far
  bool writer_answers = true;

  TransportPair& pair() { return pair_; }

 private:
  TransportPair& pair_;
  uint64_t last_generation_ = 0;
  uint32_t last_attempt_ = 0;
  uint64_t last_write_ = 0;
};

struct Check {
  const char* what;
  void (*run)(Scene& scene);
};
const std::vector<Check>& Checks();

// One section per check, each on a fresh pair.
void RunContract(const std::function<std::unique_ptr<TransportPair>()>& make);

}  // namespace baton::kv::contract
