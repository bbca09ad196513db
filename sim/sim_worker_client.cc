// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/sim_worker_client.h"

#include <algorithm>

#include "base/ensure.h"
#include "base/lease.h"

namespace baton::sim {

using router::WorkerIndex;

CallNet::CallNet(EventQueue& queue, uint64_t seed, CallOptions options)
    : queue_(queue), options_(options), random_(seed) {}

CallNet::Worker& CallNet::worker(uint32_t index) { return workers_[index]; }

SimWorkerClient* CallNet::client_of(const WayKey& key) const {
  const auto it = clients_.find(key.first);
  return it == clients_.end() ? nullptr : it->second;
}

const CallWeather& CallNet::weather(const WayKey& key) const {
  return weather(places_.at(key.first), WorkerIndex(key.second));
}

const CallWeather& CallNet::weather(uint32_t place, WorkerIndex index) const {
  static const CallWeather kFair;
  const auto it = weather_.find({place, index.value()});
  return it == weather_.end() ? kFair : it->second;
}

bool CallNet::HeldToWorker(const Stream& stream, const CallWeather& weather) {
  return weather.to_worker_held || (weather.to_worker_stalled && !stream.heartbeat);
}

bool CallNet::HeldToFrontend(const Stream& stream, const CallWeather& weather) {
  return weather.to_frontend_held || (weather.to_frontend_stalled && !stream.heartbeat);
}

// ── lanes ───────────────────────────────────────────────────────────────────────────

template <typename Message>
void CallNet::Push(StreamKey key, CallLane<Message>& lane, Message message) {
  if (!lane.open || lane.ended) return;
  const absl::Duration clog = weather(streams_.at(key).way).clog;
  const absl::Duration span = options_.delay_max - options_.delay_min + clog;
  const absl::Time arrival =
      std::max(lane.last, queue_.Now() + options_.delay_min + span * random_.Unit());
  lane.last = arrival;
  lane.pending.emplace_back(arrival, std::move(message));
  queue_.At(arrival, [this, key] { Pump(key); });
}

template <typename Message>
void CallNet::Cut(StreamKey key, CallLane<Message>& lane, bool held) {
  if (!lane.open) return;
  if (lane.ended && !held) {  // in order: it delivers what it has
    if (!lane.pending.empty()) lane.pending.back().second = StreamEnd{.broken = true};
    return;
  }
  const uint64_t kept = held ? 0 : random_.Between(0, lane.pending.size());
  lane.pending.erase(lane.pending.begin() + static_cast<ptrdiff_t>(kept), lane.pending.end());
  const absl::Time noticed = queue_.Now() + options_.loss_noticed;
  const absl::Time arrival = kept > 0 ? std::max(noticed, lane.pending.back().first) : noticed;
  lane.pending.emplace_back(arrival, StreamEnd{.broken = true});
  lane.ended = true;
  queue_.At(arrival, [this, key] { Pump(key); });
}

template <typename Message>
void CallNet::Respace(StreamKey key, CallLane<Message>& lane) {
  absl::Time arrival = queue_.Now();
  for (auto& [at, message] : lane.pending) {
    arrival = std::max(at, arrival + options_.release_max * random_.Unit());
    at = arrival;
    queue_.At(arrival, [this, key] { Pump(key); });
  }
  lane.last = std::max(lane.last, arrival);
}

void CallNet::Pump(StreamKey key) {
  PumpForward(key);
  PumpBackward(key);
}

void CallNet::PumpForward(StreamKey key) {
  while (true) {
    const auto it = streams_.find(key);
    if (it == streams_.end()) return;
    auto& pending = it->second.forward.pending;
    if (pending.empty() || pending.front().first > queue_.Now()) return;
    const auto* end = std::get_if<StreamEnd>(&pending.front().second);
    const bool broken = end != nullptr && end->broken;
    // The end of a broken way is noticed by each side alone; only a stopped reader waits.
    if (worker(it->second.way.second).stopped) return;
    if (HeldToWorker(it->second, weather(it->second.way)) && !broken) return;
    ForwardCall message = std::move(pending.front().second);
    pending.pop_front();
    Deliver(key, std::move(message));
  }
}

void CallNet::PumpBackward(StreamKey key) {
  while (true) {
    const auto it = streams_.find(key);
    if (it == streams_.end()) return;
    auto& pending = it->second.backward.pending;
    if (pending.empty() || pending.front().first > queue_.Now()) return;
    const auto* end = std::get_if<StreamEnd>(&pending.front().second);
    const bool broken = end != nullptr && end->broken;
    if (HeldToFrontend(it->second, weather(it->second.way)) && !broken) return;
    const SimWorkerClient* client = client_of(it->second.way);
    if (client != nullptr && client->stopped_) return;
    BackwardCall message = std::move(pending.front().second);
    pending.pop_front();
    Deliver(key, std::move(message));
  }
}

void CallNet::PumpWay(const WayKey& key) {
  std::vector<StreamKey> keys;
  for (const auto& [stream_key, stream] : streams_) {
    if (stream.way == key) keys.push_back(stream_key);
  }
  for (const StreamKey stream_key : keys) Pump(stream_key);
}

void CallNet::Deliver(StreamKey key, ForwardCall message) {
  Stream& stream = streams_.at(key);
  Worker& at = worker(stream.way.second);
  if (!at.port || !stream.forward.open) return;
  if (auto* opened = std::get_if<StreamOpened>(&message)) {
    at.streams[stream.worker_id] = key;
    at.port->deliver(std::move(*opened));
  } else if (auto* said = std::get_if<StreamMessage>(&message)) {
    at.port->deliver(std::move(*said));
  } else if (auto* alive = std::get_if<FrontendAlive>(&message)) {
    at.port->deliver(*alive);
    Push<BackwardCall>(key, streams_.at(key).backward, at.port->status());
  } else {
    stream.forward.open = false;
    const StreamId id = stream.worker_id;
    const bool known = at.streams.erase(id) > 0;
    ForgetIfOver(key);
    if (known) at.port->deliver(StreamClosed{id});
  }
}

void CallNet::Deliver(StreamKey key, BackwardCall message) {
  Stream& stream = streams_.at(key);
  SimWorkerClient* client = client_of(stream.way);
  if (client == nullptr || !stream.backward.open) {
    stream.backward.open = false;
    ForgetIfOver(key);
    return;
  }
  const StreamId id = stream.client_id;
  if (auto* status = std::get_if<WorkerStatus>(&message)) {
    client->Hear(router::WorkerSaid{WorkerIndex(stream.way.second), std::move(*status)});
    return;
  }
  const bool lost = std::holds_alternative<StreamEnd>(message);
  const auto* said = std::get_if<FromWorker>(&message);
  const bool last =
      lost || std::holds_alternative<Finished>(*said) || std::holds_alternative<Ended>(*said);
  if (last) {
    stream.backward.open = false;
    client->streams_.erase(id);
    ForgetIfOver(key);
  }
  if (!lost) {
    client->Hear(router::StreamSaid{id, *said});
  } else if (id != StreamId()) {
    client->Hear(router::StreamLost{id, absl::UnavailableError("the connection broke")});
  }
}

// A stream is over for the net when neither end can hear anything any more.
void CallNet::ForgetIfOver(StreamKey key) {
  const auto it = streams_.find(key);
  if (it == streams_.end()) return;
  if (!it->second.forward.open && !it->second.backward.open) streams_.erase(it);
}

// ── workers ─────────────────────────────────────────────────────────────────────────

void CallNet::WorkerUp(WorkerIndex index, Port port) {
  WorkerDown(index);
  worker(index.value()).port = std::move(port);
  worker(index.value()).stopped = false;
}

void CallNet::WorkerDown(WorkerIndex index) {
  for (auto& [key, way] : ways_) {
    if (key.second == index.value()) CutWay(key, true, false);
  }
  worker(index.value()).streams.clear();
  worker(index.value()).port.reset();
}

void CallNet::SetWorkerStopped(WorkerIndex index, bool stopped) {
  worker(index.value()).stopped = stopped;
  if (stopped) return;
  std::vector<WayKey> keys;  // of dead front ends as well: the worker has to hear their end
  for (const auto& [key, way] : ways_) {
    if (key.second == index.value()) keys.push_back(key);
  }
  for (const WayKey& key : keys) PumpWay(key);
}

void CallNet::Say(WorkerIndex index, WorkerOutput output) {
  // Finished and Ended are a worker's last words, and nothing else is.
  ENSURE(output.last == (std::holds_alternative<Finished>(output.message) ||
                         std::holds_alternative<Ended>(output.message)));
  Worker& from = worker(index.value());
  const auto it = from.streams.find(output.stream);
  if (it == from.streams.end()) return;  // the stream broke; nobody hears it
  const StreamKey key = it->second;
  Stream& stream = streams_.at(key);
  if (output.last) {
    stream.forward.open = false;
    stream.forward.pending.clear();
    from.streams.erase(it);
  }
  if (stream.backward.open) Push<BackwardCall>(key, stream.backward, std::move(output.message));
  ForgetIfOver(key);
}

// ── ways ────────────────────────────────────────────────────────────────────────────

void CallNet::CutWay(const WayKey& key, bool client_hears, bool worker_hears) {
  Way& way = ways_[key];
  const bool connected = std::exchange(way.connected, false);
  way.heartbeats = 0;
  std::vector<StreamKey> keys;
  for (const auto& [stream_key, stream] : streams_) {
    if (stream.way == key) keys.push_back(stream_key);
  }
  for (const StreamKey stream_key : keys) {
    Stream& stream = streams_.at(stream_key);
    if (client_hears) {
      Cut(stream_key, stream.backward, HeldToFrontend(stream, weather(key)));
    } else {
      stream.backward.open = false;
    }
    if (worker_hears) {
      Cut(stream_key, stream.forward, HeldToWorker(stream, weather(key)));
    } else {
      stream.forward.open = false;
    }
    ForgetIfOver(stream_key);
  }
  if (!client_hears || !connected) return;
  queue_.After(options_.loss_noticed, [this, key] {
    if (SimWorkerClient* client = client_of(key)) {
      client->Hear(router::WorkerGone{WorkerIndex(key.second)});
    }
  });
}

bool CallNet::Connect(const WayKey& key) {
  Way& way = ways_[key];
  if (way.connected) return true;
  const CallWeather& now = weather(key);
  if (!worker(key.second).port || now.any_held() || now.refuses) return false;
  way.connected = true;
  return true;
}

void CallNet::Break(SimWorkerClient& client, WorkerIndex index) {
  CutWay({client.number_, index.value()}, true, true);
}

void CallNet::SetWeather(uint32_t place, WorkerIndex index, const CallWeather& weather) {
  const CallWeather was = std::exchange(weather_[{place, index.value()}], weather);
  for (auto& [stream_key, stream] : streams_) {
    if (stream.way.second != index.value() || places_.at(stream.way.first) != place) continue;
    if (HeldToWorker(stream, was) && !HeldToWorker(stream, weather)) {
      Respace(stream_key, stream.forward);
    }
    if (HeldToFrontend(stream, was) && !HeldToFrontend(stream, weather)) {
      Respace(stream_key, stream.backward);
    }
  }
}

void CallNet::SetHeld(const SimWorkerClient& client, WorkerIndex index, bool held) {
  CallWeather weather = this->weather(client.place_, index);
  weather.to_worker_held = weather.to_frontend_held = held;
  SetWeather(client.place_, index, weather);
}

void CallNet::SetStopped(SimWorkerClient& client, bool stopped) {
  client.stopped_ = stopped;
  if (stopped) return;
  for (uint32_t index = 0; index < client.workers_; ++index) PumpWay({client.number_, index});
}

// ── front ends ──────────────────────────────────────────────────────────────────────

CallNet::StreamKey CallNet::MakeStream(const WayKey& way, StreamId client_id, bool heartbeat) {
  const StreamKey key = ++last_stream_;
  Stream& stream = streams_[key];
  stream.way = way;
  stream.client_id = client_id;
  stream.worker_id = StreamId(key);  // never reused, so unique in any worker's life
  stream.heartbeat = heartbeat;
  return key;
}

StreamId CallNet::Open(SimWorkerClient& client, WorkerIndex index, ToWorker first) {
  const StreamId id(++client.last_stream_);
  const WayKey way{client.number_, index.value()};
  const StreamKey key = MakeStream(way, id, false);
  client.streams_[id] = key;
  Stream& stream = streams_.at(key);
  if (!Connect(way)) {
    stream.forward.open = false;
    Cut(key, stream.backward, weather(way).to_frontend_held);
    return id;
  }
  Push<ForwardCall>(key, stream.forward, StreamOpened{stream.worker_id, std::move(first)});
  return id;
}

void CallNet::Send(SimWorkerClient& client, StreamId id, ToWorker message) {
  const auto it = client.streams_.find(id);
  if (it == client.streams_.end()) return;
  Stream& stream = streams_.at(it->second);
  Push<ForwardCall>(it->second, stream.forward,
                    StreamMessage{stream.worker_id, std::move(message)});
}

void CallNet::Close(SimWorkerClient& client, StreamId id) {
  const auto it = client.streams_.find(id);
  if (it == client.streams_.end()) return;
  const StreamKey key = it->second;
  client.streams_.erase(it);
  Stream& stream = streams_.at(key);
  stream.backward.open = false;
  Push<ForwardCall>(key, stream.forward, StreamEnd{});
  stream.forward.ended = true;
  ForgetIfOver(key);
}

void CallNet::Attach(SimWorkerClient& client) {
  client.number_ = ++last_client_;
  places_[client.number_] = client.place_;
  clients_[client.number_] = &client;
  for (uint32_t worker = 0; worker < client.workers_; ++worker) {
    const absl::Duration offset = kHeartbeatInterval * random_.Unit();
    const uint64_t number = client.number_;
    queue_.After(offset, [this, number, worker] { Heartbeat(number, worker); });
  }
}

void CallNet::Detach(SimWorkerClient& client) {
  for (auto& [key, way] : ways_) {
    if (key.first == client.number_) CutWay(key, false, true);
  }
  clients_.erase(client.number_);
}

void CallNet::Heartbeat(uint64_t number, uint32_t index) {
  const auto it = clients_.find(number);
  if (it == clients_.end()) return;  // that life is over
  queue_.After(kHeartbeatInterval, [this, number, index] { Heartbeat(number, index); });
  if (it->second->stopped_) return;
  const WayKey key{number, index};
  if (!Connect(key)) {
    if (!weather(key).any_held()) it->second->Hear(router::WorkerGone{WorkerIndex(index)});
    return;
  }
  Way& way = ways_[key];
  if (way.heartbeats == 0) way.heartbeats = MakeStream(key, StreamId(), true);
  constexpr size_t kUnansweredMax = 20;  // what a connection would buffer
  Stream& stream = streams_.at(way.heartbeats);
  if (stream.forward.pending.size() >= kUnansweredMax) return;
  Push<ForwardCall>(way.heartbeats, stream.forward, FrontendAlive{it->second->self_});
}

// ── the client ──────────────────────────────────────────────────────────────────────

SimWorkerClient::SimWorkerClient(CallNet& net, Incarnation self, uint32_t workers,
                                 absl::AnyInvocable<void()> ring, uint32_t place)
    : net_(net), self_(self), workers_(workers), ring_(std::move(ring)), place_(place) {
  net_.Attach(*this);
}
SimWorkerClient::~SimWorkerClient() { net_.Detach(*this); }

StreamId SimWorkerClient::Open(WorkerIndex worker, ToWorker first) {
  return net_.Open(*this, worker, std::move(first));
}
void SimWorkerClient::Send(StreamId stream, ToWorker message) {
  net_.Send(*this, stream, std::move(message));
}
void SimWorkerClient::Close(StreamId stream) {
  // What was heard but not polled is not to be told any more.
  std::erase_if(events_, [stream](const router::ClientEvent& event) {
    const auto* said = std::get_if<router::StreamSaid>(&event);
    const auto* lost = std::get_if<router::StreamLost>(&event);
    return (said != nullptr && said->stream == stream) ||
           (lost != nullptr && lost->stream == stream);
  });
  net_.Close(*this, stream);
}
void SimWorkerClient::Poll(std::vector<router::ClientEvent>& events) {
  for (router::ClientEvent& event : std::exchange(events_, {})) events.push_back(std::move(event));
}
void SimWorkerClient::Hear(router::ClientEvent event) {
  events_.push_back(std::move(event));
  ring_();
}

}  // namespace baton::sim
