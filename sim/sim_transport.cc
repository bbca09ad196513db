// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Processes, pairs, control links and faults.  sim_data_path.cc moves the bytes.
#include "sim/sim_transport.h"

#include <algorithm>
#include <utility>

#include "base/ensure.h"
#include "sim/checkers/checkers.h"
#include "sim/sim_process.h"

namespace baton::sim {

SimFabric::SimFabric(Random& random, EventQueue& queue, const SimNetOptions& options)
    : random_(random), queue_(queue), options_(options) {
  ENSURE(options.delay_min <= options.delay_max);
  ENSURE(options.reconnect_min <= options.reconnect_max);
}
SimFabric::~SimFabric() = default;

absl::Duration SimFabric::Upto(absl::Duration max) {
  return absl::Nanoseconds(random_.Between(0, absl::ToInt64Nanoseconds(max)));
}
absl::Duration SimFabric::Delay(const PairState& pair) {
  return options_.delay_min + Upto(options_.delay_max - options_.delay_min + pair.weather.clog);
}

// ── processes ─────────────────────────────────────────────────────────────────────────

SimFabric::Index SimFabric::Add(const SimProcessConfig& config) {
  ENSURE(config.role != Role::kFrontend);
  configs_.push_back(config);
  current_.push_back(nullptr);
  const auto index = static_cast<Index>(configs_.size() - 1);
  Restart(index);
  return index;
}

void SimFabric::Restart(Index index) {
  ENSURE(current_[index] == nullptr || !current_[index]->alive);
  const SimProcessConfig& config = configs_[index];
  kv::Hello hello;
  hello.protocol = config.protocol;
  hello.self = {config.worker, Incarnation(random_.Next() | 1)};
  hello.role = config.role;
  hello.process = {.boot_id = config.host, .pid_namespace = 1, .pid = ++last_pid_, .start_time = 1};
  hello.host = config.host;
  hello.model_fingerprint = config.model_fingerprint;
  hello.layout = config.layout;
  hello.numeric_class = config.numeric_class;
  const uint64_t seed = random_.Next();
  const LifeId id = lives_.size() + 1;
  lives_.push_back(std::make_unique<SimProcess>(*this, index, id, hello, seed));
  if (checkers_ != nullptr) checkers_->Started(id, hello);
  current_[index] = lives_.back().get();
  current_[index]->clock = options_.clocks.Draw(random_);
  ScheduleTick(current_[index]);
  for (size_t pair = 0; pair < pairs_.size(); ++pair) {
    if (pairs_[pair].ends[kWriter] == index) {
      pairs_[pair].connected = false;
      ScheduleConnect(pair, Delay(pairs_[pair]));
    }
  }
}

void SimFabric::ScheduleTick(SimProcess* process) {
  queue_.After(options_.tick, [this, process] {
    if (!process->alive) return;
    if (!process->paused) {
      process->core().Tick(process->now(), process->polls_);
      process->RingIfNews();
    }
    ScheduleTick(process);
  });
}

SimProcess& SimFabric::life(Index process) const {
  ENSURE(process < current_.size());
  return *current_[process];
}
kv::OwnerTransport& SimFabric::owner(Index process) { return life(process); }
kv::WriterTransport& SimFabric::writer(Index process) { return life(process); }
const kv::OwnerCore& SimFabric::owner_core(Index process) const {
  ENSURE(life(process).owner != nullptr);
  return *life(process).owner;
}
const kv::WriterCore& SimFabric::writer_core(Index process) const {
  ENSURE(life(process).writer != nullptr);
  return *life(process).writer;
}
WorkerRef SimFabric::self(Index process) const { return life(process).core().self().self; }
uint8_t* SimFabric::pool(Index process) { return life(process).pool.data(); }
LifeId SimFabric::life_id(Index process) const { return life(process).id; }
const SkewedClock& SimFabric::clock(Index process) const { return life(process).clock; }
bool SimFabric::alive(Index process) const { return life(process).alive; }
bool SimFabric::paused(Index process) const { return life(process).paused; }
SimProcessConfig& SimFabric::config(Index process) { return configs_[process]; }
void SimFabric::SetBell(Index process, absl::AnyInvocable<void()> on_news) {
  life(process).on_news = std::move(on_news);
}

void SimFabric::As(SimProcess* process, EventQueue::Action action) {
  if (!process->alive) return;
  if (process->paused) {
    process->held.push_back(std::move(action));
    return;
  }
  action();
  process->RingIfNews();
}

// ── pairs and wires ───────────────────────────────────────────────────────────────────

void SimFabric::Pair(Index writer, Index owner, const SimPairConfig& config) {
  ENSURE(life(writer).writer != nullptr && life(owner).owner != nullptr);
  ENSURE(config.path == 'A' || config.path == 'B');
  ENSURE(config.path == 'B' || config.close_fences || life(writer).host == life(owner).host);
  ENSURE(FindPair(writer, owner) == nullptr);
  PairState pair;
  pair.ends[kWriter] = writer;
  pair.ends[kOwner] = owner;
  pair.config = config;
  pairs_.push_back(std::move(pair));
  ScheduleConnect(pairs_.size() - 1, Delay(pairs_.back()));
}

SimFabric::PairState* SimFabric::FindPair(Index writer, Index owner) {
  for (PairState& pair : pairs_) {
    if (pair.ends[kWriter] == writer && pair.ends[kOwner] == owner) return &pair;
  }
  return nullptr;
}

const SimFabric::PairState& SimFabric::ThePair(Index writer, Index owner) const {
  for (const PairState& pair : pairs_) {
    if (pair.ends[kWriter] == writer && pair.ends[kOwner] == owner) return pair;
  }
  ENSURE(false);
}

SimFabric::Wire* SimFabric::FindWire(kv::LinkId link) {
  const auto it = wires_.find(link);
  return it == wires_.end() ? nullptr : &it->second;
}

void SimFabric::ScheduleConnect(size_t pair, absl::Duration pause) {
  if (pairs_[pair].trying) return;
  pairs_[pair].trying = true;
  queue_.After(pause, [this, pair] {
    SimProcess* writer = current_[pairs_[pair].ends[kWriter]];
    pairs_[pair].trying = false;
    As(writer, [this, pair] { TryConnect(pair); });
  });
}

void SimFabric::TryConnect(size_t index) {
  PairState& pair = pairs_[index];
  if (pair.connected) return;
  SimProcess* writer = current_[pair.ends[kWriter]];
  SimProcess* owner = current_[pair.ends[kOwner]];
  if (!owner->alive || pair.weather.any_cut() || pair.weather.refuses) {
    ScheduleConnect(index,
                    options_.reconnect_min + Upto(options_.reconnect_max - options_.reconnect_min));
    return;
  }
  pair.connected = true;
  Wire wire;
  wire.id = kv::LinkId(++last_link_);
  wire.pair = index;
  wire.ends[kWriter] = writer;
  wire.ends[kOwner] = owner;
  wire.last[0] = wire.last[1] = wire.busy_until = queue_.Now();
  const kv::LinkId link = wire.id;
  wires_.emplace(link, wire);
  for (const int end : {kWriter, kOwner}) {
    SimProcess* process = wire.ends[end];
    const std::string to = end == kWriter ? config(owner->index).worker : "";
    As(process, [process, link, to] { process->core().LinkOpened(link, to, process->now()); });
  }
}

void SimFabric::Send(SimProcess* from, kv::LinkId link, std::vector<uint8_t> frame) {
  Wire* wire = FindWire(link);
  if (wire == nullptr) return;
  const int end = wire->ends[kWriter] == from ? kOwner : kWriter;
  ENSURE(!wire->closed[1 - end]);
  if (checkers_ != nullptr) checkers_->Framed(from->id, wire->ends[end]->id, frame);
  const absl::Time when = std::max(queue_.Now() + Delay(pairs_[wire->pair]), wire->last[end]);
  wire->last[end] = when;
  SimProcess* to = wire->ends[end];
  const LifeId from_id = from->id;
  queue_.At(when, [this, link, end, to, from_id, frame = std::move(frame)]() mutable {
    Arrive(link, end, [this, link, to, from_id, frame = std::move(frame)] {
      if (checkers_ != nullptr) checkers_->FrameArrived(to->id, from_id, queue_.Now());
      to->core().FrameArrived(link, frame, to->now());
    });
  });
}

// Something comes over a wire to one end, unless the wire is no more by then.
void SimFabric::Arrive(kv::LinkId link, int end, EventQueue::Action action) {
  const Wire* wire = FindWire(link);
  if (wire == nullptr || wire->closed[end] || wire->deaf[end]) return;
  if (queue_.Now() >= wire->lost[end]) return;
  PairState& pair = pairs_[wire->pair];
  if (pair.cut(end)) {
    pair.held[end].push_back([this, link, end, action = std::move(action)]() mutable {
      Arrive(link, end, std::move(action));
    });
    return;
  }
  As(wire->ends[end], std::move(action));
}

// The end learns at `when` that the connection is gone; what would come later is lost.
void SimFabric::TellLost(Wire& wire, int end, absl::Time when, const absl::Status& why) {
  if (wire.closed[end] || wire.deaf[end] || when >= wire.lost[end]) return;
  wire.lost[end] = when;
  const kv::LinkId link = wire.id;
  SimProcess* process = wire.ends[end];
  queue_.At(when, [this, link, process, why] {
    As(process, [link, process, why] { process->core().LinkLost(link, why); });
  });
}

void SimFabric::Close(SimProcess* from, kv::LinkId link) {
  Wire* wire = FindWire(link);
  ENSURE(wire != nullptr);
  const int end = wire->ends[kWriter] == from ? kWriter : kOwner;
  ENSURE(!wire->closed[end]);
  wire->closed[end] = true;
  if (checkers_ != nullptr) checkers_->LinkEnded(from->id, wire->ends[1 - end]->id, queue_.Now());
  PairState& pair = pairs_[wire->pair];
  // What was said before arrives, or a reset overtakes it.  A cut connection says nothing.
  const bool reset = random_.Chance(0.3);
  absl::Time when = queue_.Now() + Delay(pair);
  if (!reset) when = std::max(when, wire->last[1 - end] + absl::Nanoseconds(1));
  if (!pair.cut(1 - end))
    TellLost(*wire, 1 - end, when, absl::UnavailableError("connection closed"));
  if (end == kWriter) {
    WriterClosed(*wire);
    return;
  }
  const bool fenced =
      pair.config.path == 'B' || pair.config.close_fences || !wire->prepared[kOwner];
  queue_.After(Delay(pair), [this, link, fenced] { CloseData(link, kOwner, fenced); });
}

void SimFabric::WriterClosed(Wire& wire) {
  const kv::LinkId link = wire.id;
  PairState& pair = pairs_[wire.pair];
  pair.connected = false;
  ScheduleConnect(wire.pair,
                  options_.reconnect_min + Upto(options_.reconnect_max - options_.reconnect_min));
  if (wire.posted == 0) queue_.After(Delay(pair), [this, link] { CloseData(link, kWriter, true); });
}

void SimFabric::Prepare(SimProcess* from, kv::LinkId link) {
  Wire* wire = FindWire(link);
  ENSURE(wire != nullptr);
  const int end = wire->ends[kWriter] == from ? kWriter : kOwner;
  wire->prepared[end] = true;
  SimProcess* peer = wire->ends[1 - end];
  if (end == kOwner && peer->host == from->host) {
    auto& watched = peer->watched;
    if (std::find(watched.begin(), watched.end(), from) == watched.end()) watched.push_back(from);
    if (!peer->alive) {
      queue_.At(std::max(queue_.Now(), peer->gone) + Delay(pairs_[wire->pair]), [this, from, peer] {
        As(from, [from, peer] { from->owner->ProcessExited(peer->process); });
      });
    }
  }
  const SimPairConfig& config = pairs_[wire->pair].config;
  const kv::LinkInfo info{
      .transport = config.path == 'A' ? "sim-a" : "sim-b",
      .data_path = config.path,
      .cost = {.latency = options_.delay_max, .bandwidth = config.bandwidth_bytes_per_second}};
  const absl::Duration opened = Delay(pairs_[wire->pair]);
  queue_.After(opened + Upto(absl::Milliseconds(5)), [this, from, link, info] {
    As(from, [from, link, info] { from->core().DataReady(link, info); });
  });
}

// ── faults ────────────────────────────────────────────────────────────────────────────

void SimFabric::Crash(Index index) { EndLife(index, false); }
void SimFabric::Exit(Index index) { EndLife(index, true); }

void SimFabric::EndLife(Index index, bool in_order) {
  SimProcess& process = life(index);
  ENSURE(process.alive);
  process.alive = false;
  if (checkers_ != nullptr) checkers_->Gone(process.id);
  process.held.clear();
  process.gone = queue_.Now() + Upto(options_.exit_max);
  std::vector<kv::LinkId> mine;
  for (auto& [link, wire] : wires_) {
    if (wire.ends[kWriter] == &process || wire.ends[kOwner] == &process) mine.push_back(link);
  }
  for (const kv::LinkId link : mine) {
    Wire& wire = *FindWire(link);
    const int end = wire.ends[kWriter] == &process ? kWriter : kOwner;
    wire.closed[end] = wire.data_gone[end] = true;
    absl::Time when = queue_.Now() + Delay(pairs_[wire.pair]);
    if (in_order) when = std::max(when, wire.last[1 - end] + absl::Nanoseconds(1));
    if (!pairs_[wire.pair].cut(1 - end)) {
      TellLost(wire, 1 - end, when, absl::UnavailableError("connection reset"));
    }
    if (end == kWriter) pairs_[wire.pair].connected = false;
    ForgetWireIfOver(link);
  }
  for (SimProcess* watcher : process.watched) {
    const absl::Time seen = process.gone + Upto(options_.exit_max);
    queue_.At(seen, [this, watcher, &process] {
      As(watcher, [watcher, &process] { watcher->owner->ProcessExited(process.process); });
    });
  }
}

void SimFabric::Pause(Index index) {
  SimProcess& process = life(index);
  ENSURE(process.alive && !process.paused);
  process.paused = true;
}

void SimFabric::Resume(Index index) {
  SimProcess& process = life(index);
  ENSURE(process.alive && process.paused);
  process.paused = false;
  if (checkers_ != nullptr) checkers_->Resumed(process.id, queue_.Now());
  std::vector<EventQueue::Action> held;
  held.swap(process.held);
  for (EventQueue::Action& action : held) As(&process, std::move(action));
}

void SimFabric::Break(Index writer, Index owner) {
  const PairState* pair = FindPair(writer, owner);
  ENSURE(pair != nullptr);
  for (auto& [link, wire] : wires_) {
    if (&pairs_[wire.pair] != pair) continue;
    for (const int end : {kWriter, kOwner}) {
      TellLost(wire, end, queue_.Now() + Delay(*pair), absl::UnavailableError("connection reset"));
    }
  }
}

const LinkWeather& SimFabric::weather(Index writer, Index owner) const {
  return ThePair(writer, owner).weather;
}

void SimFabric::SetWeather(Index writer, Index owner, const LinkWeather& weather) {
  PairState* pair = FindPair(writer, owner);
  ENSURE(pair != nullptr);
  const bool was[2] = {pair->cut(kWriter), pair->cut(kOwner)};
  pair->weather = weather;
  for (const int end : {kWriter, kOwner}) {
    if (was[end] && !pair->cut(end)) Release(*pair, end);
  }
}

void SimFabric::Cut(Index writer, Index owner, bool cut) {
  LinkWeather weather = this->weather(writer, owner);
  weather.to_writer_cut = weather.to_owner_cut = cut;
  SetWeather(writer, owner, weather);
}

// What was held towards the end arrives.
void SimFabric::Release(PairState& pair, int end) {
  std::vector<EventQueue::Action> held;
  held.swap(pair.held[end]);
  for (EventQueue::Action& action : held) action();
  for (auto& [link, wire] : wires_) {  // an end that closed meanwhile answers with a reset
    if (&pairs_[wire.pair] != &pair || !wire.closed[1 - end]) continue;
    TellLost(wire, end, queue_.Now() + Delay(pair), absl::UnavailableError("connection reset"));
  }
}

void SimFabric::Deafen(Index writer, Index owner, Deaf deaf) {
  const PairState& pair = ThePair(writer, owner);
  for (auto& [link, wire] : wires_) {
    if (&pairs_[wire.pair] != &pair) continue;
    wire.deaf[kWriter] |= deaf.writer;
    wire.deaf[kOwner] |= deaf.owner;
    wire.deaf_data |= deaf.data;
  }
}

}  // namespace baton::sim
