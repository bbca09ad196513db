// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Calls from front ends to workers in virtual time: streams, heartbeats, and what breaks them.
//
// CallNet carries every stream between every front end and every worker.  A stream is FIFO in
// each direction and independent of all others; each message takes its own delay, drawn from
// the seed.  Like a TCP connection, a held or stopped party delays messages and loses none; a
// broken connection delivers a prefix of what was on its way and then says that it is lost.
// SimWorkerClient is one front end's end of it: the production seam (router/worker_client.h).
//
// Thread:     one; everything happens in events of the queue.
// Ownership:  the queue is borrowed and outlives the net; the net outlives its clients.
// Lives:      a worker or front end that starts again is a new party: messages of its earlier
//             life never reach it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "base/messages.h"
#include "base/random.h"
#include "router/worker_client.h"
#include "sim/event_queue.h"

namespace baton::sim {

struct CallOptions {
  absl::Duration delay_min = absl::Microseconds(50);
  absl::Duration delay_max = absl::Microseconds(500);
  absl::Duration loss_noticed = absl::Milliseconds(1);  // a broken connection, by either end
  absl::Duration release_max = absl::Milliseconds(30);  // between messages of a way held before
};

// What the way between a front end and a worker does now.
struct CallWeather {
  bool to_worker_held = false;  // nothing passes, nothing is lost, nobody is told
  bool to_frontend_held = false;
  bool to_worker_stalled = false;  // the same of requests' streams alone: heartbeats pass
  bool to_frontend_stalled = false;
  bool refuses = false;  // no new connection comes about
  absl::Duration clog;   // each message may take so much longer
  bool any_held() const { return to_worker_held || to_frontend_held; }
};

// What travels on a stream; the last thing that a reader hears is its end.
struct StreamEnd {
  bool broken = false;  // noticed at the reader's own end: nothing has to pass for it
};
using ForwardCall = std::variant<StreamOpened, StreamMessage, FrontendAlive, StreamEnd>;
using BackwardCall = std::variant<FromWorker, WorkerStatus, StreamEnd>;

// One direction of a stream.
template <typename Message>
struct CallLane {
  std::deque<std::pair<absl::Time, Message>> pending;  // with the moments of arrival
  absl::Time last = absl::InfinitePast();              // arrival of the newest
  bool ended = false;                                  // nothing may be added
  bool open = true;                                    // the reader still wants to hear
};

class SimWorkerClient;

class CallNet {
 public:
  // How the net speaks to a running worker process.
  struct Port {
    absl::AnyInvocable<void(WorkerInput)> deliver;
    absl::AnyInvocable<WorkerStatus()> status;  // what answers a heartbeat
  };

  CallNet(EventQueue& queue, uint64_t seed, CallOptions options);
  CallNet(const CallNet&) = delete;
  CallNet& operator=(const CallNet&) = delete;

  // ── workers ───────────────────────────────────────────────────────────────────────
  // A process of the worker listens from now on; another one's streams are lost first.
  void WorkerUp(router::WorkerIndex worker, Port port);
  void WorkerDown(router::WorkerIndex worker);  // it died
  // Stopped: it says nothing, and what arrives waits.
  void SetWorkerStopped(router::WorkerIndex worker, bool stopped);
  void Say(router::WorkerIndex worker, WorkerOutput output);

  // ── the way between a front end and a worker ──────────────────────────────────────
  void Break(SimWorkerClient& client, router::WorkerIndex worker);
  // Of the place, so that a front end's next life has it as well.
  void SetWeather(uint32_t place, router::WorkerIndex worker, const CallWeather& weather);
  const CallWeather& weather(uint32_t place, router::WorkerIndex worker) const;
  // Both directions.
  void SetHeld(const SimWorkerClient& client, router::WorkerIndex worker, bool held);

  // The front end is stopped: it sends no heartbeats, and what comes for it waits.
  void SetStopped(SimWorkerClient& client, bool stopped);

  // Streams that either end still knows.
  size_t open_streams() const { return streams_.size(); }

 private:
  friend class SimWorkerClient;
  using StreamKey = uint64_t;                    // the net's own name for a stream
  using WayKey = std::pair<uint64_t, uint32_t>;  // (front end's number, worker)

  struct Stream {
    WayKey way;
    StreamId client_id, worker_id;
    bool heartbeat = false;
    CallLane<ForwardCall> forward;
    CallLane<BackwardCall> backward;
  };
  static bool HeldToWorker(const Stream& stream, const CallWeather& weather);
  static bool HeldToFrontend(const Stream& stream, const CallWeather& weather);
  struct Way {
    bool connected = false;
    StreamKey heartbeats = 0;
  };
  struct Worker {
    std::optional<Port> port;
    bool stopped = false;
    absl::btree_map<StreamId, StreamKey> streams;
  };

  StreamId Open(SimWorkerClient& client, router::WorkerIndex worker, ToWorker first);
  void Send(SimWorkerClient& client, StreamId stream, ToWorker message);
  void Close(SimWorkerClient& client, StreamId stream);
  void Attach(SimWorkerClient& client);
  void Detach(SimWorkerClient& client);
  void Heartbeat(uint64_t client_number, uint32_t worker);
  bool Connect(const WayKey& key);

  StreamKey MakeStream(const WayKey& key, StreamId client_id, bool heartbeat);
  template <typename Message>
  void Push(StreamKey key, CallLane<Message>& lane, Message message);
  // Keeps a prefix of what is on its way, then ends the lane.
  template <typename Message>
  void Cut(StreamKey key, CallLane<Message>& lane, bool held);
  void CutWay(const WayKey& key, bool client_hears, bool worker_hears);
  // What was held arrives piece by piece, as after a partition.
  template <typename Message>
  void Respace(StreamKey key, CallLane<Message>& lane);
  void Pump(StreamKey key);
  void PumpWay(const WayKey& key);
  void PumpForward(StreamKey key);
  void PumpBackward(StreamKey key);
  void Deliver(StreamKey key, ForwardCall message);
  void Deliver(StreamKey key, BackwardCall message);
  void ForgetIfOver(StreamKey key);
  Worker& worker(uint32_t index);
  SimWorkerClient* client_of(const WayKey& key) const;
  const CallWeather& weather(const WayKey& key) const;

  EventQueue& queue_;
  const CallOptions options_;
  Random random_;
  absl::btree_map<StreamKey, Stream> streams_;
  absl::btree_map<WayKey, Way> ways_;
  absl::btree_map<uint32_t, Worker> workers_;
  absl::btree_map<uint64_t, SimWorkerClient*> clients_;  // attached
  absl::btree_map<uint64_t, uint32_t> places_;           // of all clients ever, by number
  absl::btree_map<std::pair<uint32_t, uint32_t>, CallWeather> weather_;  // (place, worker)
  uint64_t last_stream_ = 0;
  uint64_t last_client_ = 0;
};

class SimWorkerClient final : public router::WorkerClient {
 public:
  // One life of the front end at `place` that calls workers 0 … workers - 1; `ring` is called
  // when there is something to poll.  Destroying it is the front end's death.
  SimWorkerClient(CallNet& net, Incarnation self, uint32_t workers, absl::AnyInvocable<void()> ring,
                  uint32_t place = 0);
  ~SimWorkerClient() override;

  StreamId Open(router::WorkerIndex worker, ToWorker first) override;
  void Send(StreamId stream, ToWorker message) override;
  void Close(StreamId stream) override;
  void Poll(std::vector<router::ClientEvent>& events) override;

 private:
  friend class CallNet;
  void Hear(router::ClientEvent event);

  CallNet& net_;
  const Incarnation self_;
  const uint32_t workers_;
  absl::AnyInvocable<void()> ring_;
  const uint32_t place_;
  uint64_t number_ = 0;  // the net's
  bool stopped_ = false;
  uint64_t last_stream_ = 0;
  absl::btree_map<StreamId, CallNet::StreamKey> streams_;  // open
  std::vector<router::ClientEvent> events_;
};

}  // namespace baton::sim
