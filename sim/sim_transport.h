// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// KV transfer in virtual time: the production state machines over an adversary's network.
//
// Processes have names, lives and real pools; pairs of them have links.  The fabric is the
// driver of every life's core (kv_transfer/link_io.h) and as hostile as its contract allows:
//   control links   FIFO, each frame with its own delay; they break, with a tail lost, are cut in
//                   one direction or both, or lose all that is sent one way from some moment on;
//   path A          a write lands torn, in any order, any time before its flush ends; after a
//                   crash each part lands or not until the process is gone; a stopped process's
//                   parts land while it is stopped or after it woke;
//   path B          messages overtake each other, are checked on arrival, land in parts;
//   either          bytes arrive damaged, and everything says that they arrived.
// It knows the truth and aborts when bytes land under a generation that the owner has been told
// is settled (K2).
//
// Thread:     one.  All calls, and everything they cause, run inside EventQueue.
// Ownership:  the fabric owns processes and pools; `random` and `queue` outlive it.
// Cost:       per write one event per part.  The queue never runs empty: ticks go on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/messages.h"
#include "base/random.h"
#include "kv_transfer/layout.h"
#include "kv_transfer/owner_core.h"
#include "kv_transfer/transport.h"
#include "kv_transfer/writer_core.h"
#include "sim/event_queue.h"
#include "sim/skewed_clock.h"

namespace baton::sim {

struct SimNetOptions {
  absl::Duration delay_min = absl::Microseconds(20);  // of frames and messages
  absl::Duration delay_max = absl::Microseconds(500);
  absl::Duration write_jitter = absl::Milliseconds(1);  // a part of a write lands so much later
  double late_chance = 0;                               // of a write to be later still
  absl::Duration late_max = absl::Seconds(3);
  absl::Duration reconnect_min = absl::Milliseconds(50);
  absl::Duration reconnect_max = absl::Milliseconds(300);
  absl::Duration exit_max = absl::Milliseconds(20);  // crash → gone, and again → seen
  absl::Duration tick = absl::Milliseconds(50);
  ClockOptions clocks;  // of each life
};

struct SimProcessConfig {
  std::string worker;
  Role role = Role::kPrefill;
  kv::Layout layout;
  std::string host = "host-0";
  uint32_t protocol = kv::kProtocolVersion;
  uint64_t model_fingerprint = 1;
  std::string numeric_class = "sim";
  kv::OwnerCore::Options owner;
  kv::WriterCore::Options writer;
  uint32_t owners = 1;  // of a writer that converts: staging for so many at a time
};

struct SimPairConfig {
  char path = 'A';
  bool close_fences = false;  // path A as on rc: closing the owner's endpoint is a fence
  double bandwidth_bytes_per_second = 10e9;
};

// What a pair's network does now.
struct LinkWeather {
  bool to_writer_cut = false;  // nothing passes until it is healed; nothing is lost
  bool to_owner_cut = false;
  bool memory_cut = false;      // path A between hosts: writes wait as well, or fail
  bool refuses = false;         // no new connection comes about
  absl::Duration clog;          // each message may take so much longer
  double bytes_per_second = 0;  // of the data path; 0: as configured
  double damage_chance = 0;     // of a part of a write to arrive wrong
  bool tears = false;           // damage: its rest is missing; else a bit is flipped
  bool any_cut() const { return to_writer_cut || to_owner_cut; }
};

class Checkers;
class SimProcess;
using LifeId = uint64_t;  // one life of a process; never reused

class SimFabric {
 public:
  using Index = uint32_t;  // a process's name; survives its lives

  SimFabric(Random& random, EventQueue& queue, const SimNetOptions& options = {});
  ~SimFabric();
  SimFabric(const SimFabric&) = delete;
  SimFabric& operator=(const SimFabric&) = delete;

  // Everything from now on is told to them.  REQUIRES: no process yet; they outlive the fabric.
  void Watch(Checkers& checkers) { checkers_ = &checkers; }

  // Starts its first life at once.
  Index Add(const SimProcessConfig& config);
  // The writer connects to the owner from now on, again after every break.  Path A on two hosts
  // needs close_fences (there is no pidfd).
  void Pair(Index writer, Index owner, const SimPairConfig& config = {});

  // Of the current life; a crash makes the references useless.
  kv::OwnerTransport& owner(Index process);
  kv::WriterTransport& writer(Index process);
  const kv::OwnerCore& owner_core(Index process) const;
  const kv::WriterCore& writer_core(Index process) const;
  WorkerRef self(Index process) const;
  uint8_t* pool(Index process);
  const SkewedClock& clock(Index process) const;
  bool alive(Index process) const;
  LifeId life_id(Index process) const;
  bool paused(Index process) const;
  // Called, as an event of its own, when Poll of the current life has news.
  void SetBell(Index process, absl::AnyInvocable<void()> on_news);

  // ── faults ────────────────────────────────────────────────────────────────────────
  void Crash(Index process);              // kill -9; what it said last may be lost
  void Exit(Index process);               // by itself: all that it said arrives
  void Restart(Index process);            // REQUIRES: crashed; a new incarnation and a new pool
  void Pause(Index process);              // SIGSTOP
  void Resume(Index process);             // SIGCONT
  void Break(Index writer, Index owner);  // reset of the control connection, if any
  void SetWeather(Index writer, Index owner, const LinkWeather& weather);
  const LinkWeather& weather(Index writer, Index owner) const;
  void Cut(Index writer, Index owner, bool cut);  // both directions of the control link
  // The present connection is half dead: what is sent towards these ends from now on is lost,
  // and nobody is told.  `data`: of path B the data only.
  struct Deaf {
    bool writer = false, owner = false, data = false;
  };
  void Deafen(Index writer, Index owner, Deaf deaf);
  // Later lives say hello with this instead (K6).
  SimProcessConfig& config(Index process);

  // ── the truth, for invariants ─────────────────────────────────────────────────────
  uint64_t writes_out() const { return writes_.size(); }  // posted, not all landed or dropped
  uint64_t bytes_landed() const { return bytes_landed_; }
  uint64_t damaged() const { return damaged_; }  // parts that are not their source's bytes

 private:
  friend class SimProcess;
  static constexpr int kWriter = 0, kOwner = 1;
  struct PairState {
    Index ends[2];
    SimPairConfig config;
    LinkWeather weather;
    bool connected = false;                   // as the writer's driver sees it
    bool trying = false;                      // an attempt is scheduled
    std::vector<EventQueue::Action> held[2];  // by a cut, towards that end

    bool cut(int end) const {
      return end == kWriter ? weather.to_writer_cut : weather.to_owner_cut;
    }
  };
  struct Wire {
    kv::LinkId id;
    size_t pair = 0;
    SimProcess* ends[2] = {nullptr, nullptr};
    bool closed[2] = {false, false};  // by the core of that end, or dead
    bool prepared[2] = {false, false};
    bool data_gone[2] = {false, false};  // DataClosed was said
    bool deaf[2] = {false, false};       // hears nothing any more
    bool deaf_data = false;
    absl::Time last[2];  // latest delivery towards that end
    absl::Time lost[2] = {absl::InfiniteFuture(), absl::InfiniteFuture()};
    absl::Time busy_until;  // of the data path
    uint32_t posted = 0;    // writes not ended
  };
  struct WriteState {
    uint32_t parts = 0;  // not yet landed or dropped
    bool failed = false;
    kv::DataWrite write;
  };
  using WriteKey = std::pair<kv::LinkId, uint64_t>;

  absl::Duration Delay(const PairState& pair);
  absl::Duration Upto(absl::Duration max);
  SimProcess& life(Index process) const;
  Wire* FindWire(kv::LinkId link);
  PairState* FindPair(Index writer, Index owner);
  const PairState& ThePair(Index writer, Index owner) const;
  void Release(PairState& pair, int end);
  // Runs `action` as the process, now, when it wakes, or never.
  void As(SimProcess* process, EventQueue::Action action);
  void ScheduleTick(SimProcess* process);
  void ScheduleConnect(size_t pair, absl::Duration pause);
  void TryConnect(size_t pair);
  void Arrive(kv::LinkId link, int end, EventQueue::Action action);
  void EndLife(Index process, bool in_order);
  void TellLost(Wire& wire, int end, absl::Time when, const absl::Status& why);
  void WriterClosed(Wire& wire);

  // LinkIo of one end.
  void Send(SimProcess* from, kv::LinkId link, std::vector<uint8_t> frame);
  void Close(SimProcess* from, kv::LinkId link);
  void Prepare(SimProcess* from, kv::LinkId link);
  void Post(SimProcess* from, kv::LinkId link, kv::DataWrite write);

  void CloseData(kv::LinkId link, int end, bool fenced);
  void ForgetWireIfOver(kv::LinkId link);
  void PostPathA(Wire& wire, uint64_t number);
  void LandPart(kv::LinkId link, uint64_t number, kv::Copy part, bool waits);
  bool MemoryCut(const Wire& wire) const;
  void Land(const Wire& wire, const kv::GrantKey& key, uint64_t target_offset,
            absl::Span<const uint8_t> bytes);
  void PartDone(kv::LinkId link, uint64_t number);
  void EndWrite(kv::LinkId link, uint64_t number, const absl::Status& status);
  void DepartPathB(kv::LinkId link, uint64_t number, bool waits);
  void ArrivePathB(kv::LinkId link, const kv::DataHeader& header, std::vector<uint8_t> payload);

  Checkers* checkers_ = nullptr;
  Random& random_;
  EventQueue& queue_;
  const SimNetOptions options_;
  std::vector<SimProcessConfig> configs_;
  std::vector<std::unique_ptr<SimProcess>> lives_;  // all of them, dead ones too
  std::vector<SimProcess*> current_;                // by Index
  std::vector<PairState> pairs_;
  absl::btree_map<kv::LinkId, Wire> wires_;
  absl::btree_map<WriteKey, WriteState> writes_;
  uint64_t last_link_ = 0;
  uint32_t last_pid_ = 0;
  uint64_t bytes_landed_ = 0;
  uint64_t damaged_ = 0;
};

}  // namespace baton::sim
