// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/worker_process.h"

#include "base/ensure.h"

namespace baton::sim {

struct WorkerProcess::Life {
  Life(World& world, absl::AnyInvocable<bool()> tick, absl::AnyInvocable<absl::Time()> wake)
      : loop(world.queue, world.random, std::move(tick), std::move(wake)) {}

  // Calls `use` with the worker, whichever it is.
  template <typename Use>
  auto With(Use use) {
    return prefill ? use(*prefill) : use(*decode);
  }
  void Kill() {
    loop.Kill();
    prefill.reset();
    decode.reset();
    checked_engine.reset();
    engine.reset();
  }

  RoleLoop loop;
  LifeId id = 0;
  uint64_t loop_ticks = 0;
  absl::btree_map<StreamId, ClientNumber> clients;  // whom the open streams serve
  std::unique_ptr<HashEngine> engine;
  std::unique_ptr<CheckedEngine> checked_engine;
  std::unique_ptr<prefill::PrefillWorker> prefill;
  std::unique_ptr<decode::DecodeWorker> decode;
};

WorkerProcess::WorkerProcess(const WorkerSetup& setup, World world)
    : usual_(setup), setup_(setup), world_(world) {
  Start();
}
WorkerProcess::~WorkerProcess() = default;

void WorkerProcess::Start() {
  ENSURE(!alive());
  auto life = std::make_unique<Life>(
      world_, [this] { return Tick(*life_); },
      [this] {
        const absl::Time worker = life_->With([](auto& w) { return w.NextWake(); });
        return std::min(world_.fabric.clock(setup_.process).Global(worker),
                        life_->engine->NextEvent());
      });
  const SimFabric::Index process = setup_.process;
  const WorkerRef self = world_.fabric.self(process);
  const engine::KvPool pool{world_.fabric.pool(process), setup_.layout};
  life->engine = std::make_unique<HashEngine>(setup_.engine, pool, world_.queue);
  life->id = world_.fabric.life_id(process);
  life->checked_engine = std::make_unique<CheckedEngine>(*life->engine, world_.checkers, life->id);
  world_.checkers.WorkerStarted(life->id, setup_.name, setup_.role);
  if (setup_.role == Role::kPrefill) {
    life->prefill = std::make_unique<prefill::PrefillWorker>(
        setup_.prefill, *life->checked_engine, world_.fabric.writer(process), self, setup_.layout);
  } else {
    life->decode = std::make_unique<decode::DecodeWorker>(
        setup_.decode, *life->checked_engine, world_.fabric.owner(process), self, setup_.layout);
  }
  life_ = std::move(life);
  stopped_ = wedged_ = false;
  world_.log.Add(setup_.name, "starts as ", ToString(self.incarnation));
  world_.fabric.SetBell(process, [loop = &life_->loop] { loop->Ring(); });
  world_.net.WorkerUp(setup_.index,
                      {[this](WorkerInput input) { Deliver(*life_, std::move(input)); },
                       [this] { return Status(); }});
  life_->loop.Ring();
}

// Whom it is about; remembered for what is said on the stream later.
ClientNumber WorkerProcess::ClientOf(Life& life, const WorkerInput& input) {
  if (const auto* opened = std::get_if<StreamOpened>(&input)) {
    const auto* reserve = std::get_if<Reserve>(&opened->first);
    const auto* prefill = std::get_if<Prefill>(&opened->first);
    if (reserve == nullptr && prefill == nullptr) return 0;
    return life.clients[opened->stream] =
               world_.log.ClientOf(reserve != nullptr ? reserve->sequence : prefill->sequence);
  }
  const auto* said = std::get_if<StreamMessage>(&input);
  const auto* closed = std::get_if<StreamClosed>(&input);
  if (said == nullptr && closed == nullptr) return 0;
  const auto it = life.clients.find(said != nullptr ? said->stream : closed->stream);
  if (it == life.clients.end()) return 0;
  const ClientNumber client = it->second;
  if (closed != nullptr) life.clients.erase(it);
  return client;
}

void WorkerProcess::Deliver(Life& life, WorkerInput input) {
  if (!std::holds_alternative<FrontendAlive>(input)) {
    world_.log.AddAbout(ClientOf(life, input), setup_.name, "<- ", input);
  }
  world_.checkers.Heard(life.id, input);
  life.With([&](auto& worker) { worker.Receive(std::move(input)); });
  life.loop.Ring();
}

bool WorkerProcess::Tick(Life& life) {
  const absl::Time now = LocalTime();
  world_.checkers.Ticking(life.id, now);
  const bool worked = life.With([now](auto& worker) { return worker.Tick(now); });
  for (WorkerOutput& output : life.With([](auto& worker) { return worker.TakeOutputs(); })) {
    const auto client = life.clients.find(output.stream);
    world_.log.AddAbout(client == life.clients.end() ? 0 : client->second, setup_.name, "-> ",
                        output);
    if (output.last) life.clients.erase(output.stream);
    world_.checkers.Said(life.id, output, now);
    world_.net.Say(setup_.index, std::move(output));
  }
  if (life.prefill) {
    world_.checkers.Ticked(life.id, now, [&] { return life.prefill->metrics(); });
  } else {
    world_.checkers.Ticked(life.id, now, [&] { return life.decode->metrics(); });
  }
  if (life.loop_ticks++ % Checkers::kFullEvery == 0) {
    world_.checkers.CheckSelf(life.id, Status().self);
  }
  const bool must_exit = life.decode && !life.decode->fatal().ok();
  if (must_exit || life.With([](auto& worker) { return worker.drained(); })) {
    world_.log.Add(setup_.name, must_exit ? "must exit" : "is drained and exits");
    if (!must_exit) world_.checkers.Leaves(life.id);
    End(must_exit);
  }
  return worked;
}

void WorkerProcess::Crash() { End(true); }

void WorkerProcess::End(bool abrupt) {
  ENSURE(alive());
  world_.log.Add(setup_.name, "is gone");
  world_.net.WorkerDown(setup_.index);
  life_->Kill();
  if (abrupt) {
    world_.fabric.Crash(setup_.process);
  } else {
    world_.fabric.Exit(setup_.process);
  }
  dead_.push_back(std::move(life_));
}

void WorkerProcess::Restart() {
  world_.fabric.Restart(setup_.process);
  Start();
}

void WorkerProcess::SetStopped(bool stop) {
  ENSURE(alive() && stop != stopped_);
  world_.log.Add(setup_.name, stop ? "is stopped" : "goes on");
  stopped_ = stop;
  if (stop) {
    world_.fabric.Pause(setup_.process);
  } else {
    world_.fabric.Resume(setup_.process);
  }
  world_.net.SetWorkerStopped(setup_.index, stop);
  life_->loop.SetStopped(stopped_ || wedged_);
}

void WorkerProcess::SetWedged(bool wedged) {
  ENSURE(alive() && wedged != wedged_);
  world_.log.Add(setup_.name, wedged ? "is wedged" : "ticks again");
  wedged_ = wedged;
  life_->loop.SetStopped(stopped_ || wedged_);
}

void WorkerProcess::SetSlow(absl::Duration late_max) {
  ENSURE(alive());
  world_.log.Add(setup_.name, "ticks up to ", absl::FormatDuration(late_max), " late");
  life_->loop.SetSlow(late_max);
}

void WorkerProcess::SetMisfit(Misfit misfit) {
  constexpr uint64_t kOther = 2;
  const uint64_t fingerprint = misfit == Misfit::kModel ? kOther : usual_.decode.model_fingerprint;
  misfit_ = misfit;
  setup_.prefill.model_fingerprint = setup_.decode.model_fingerprint = fingerprint;
  setup_.engine.weights = misfit == Misfit::kModel ? kOther : usual_.engine.weights;
  SimProcessConfig& config = world_.fabric.config(setup_.process);
  config.model_fingerprint = fingerprint;
  config.protocol = kv::kProtocolVersion + (misfit == Misfit::kProtocol ? 1 : 0);
  // Rows of the same bytes, so that it draws the same tokens, but of two heads.
  setup_.layout = usual_.layout;
  if (misfit == Misfit::kLayout) {
    setup_.layout.kv_heads = 2;
    setup_.layout.head_dim = 2;
    setup_.layout.type = engine::KvType::kBf16;
  }
  config.layout.kv_heads = setup_.layout.kv_heads;
  config.layout.head_dim = setup_.layout.head_dim;
  config.layout.element_type = static_cast<kv::ElementType>(setup_.layout.type);
  config.layout.scales = kv::ScalesOf(config.layout.element_type);
  config.numeric_class = misfit == Misfit::kNumerics ? "other" : SimProcessConfig().numeric_class;
}

void WorkerProcess::Drain() {
  ENSURE(alive());
  Deliver(*life_, StartDrain{});
}

WorkerStatus WorkerProcess::Status() const {
  return life_->With([](auto& worker) { return worker.Status(); });
}
engine::BlockCounts WorkerProcess::blocks() const {
  return life_->With([](auto& worker) { return worker.metrics().blocks; });
}
prefill::Metrics WorkerProcess::prefill_metrics() const { return life_->prefill->metrics(); }
decode::Metrics WorkerProcess::decode_metrics() const { return life_->decode->metrics(); }
size_t WorkerProcess::grants() const { return world_.checkers.unsettled(life_->id); }

}  // namespace baton::sim
