// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/frontend_process.h"

#include "base/ensure.h"

namespace baton::sim {

struct FrontendProcess::Life {
  Life(World& world, absl::AnyInvocable<bool()> tick, absl::AnyInvocable<absl::Time()> wake)
      : loop(world.queue, world.random, std::move(tick), std::move(wake)) {}

  RoleLoop loop;
  std::unique_ptr<SimWorkerClient> client;
  std::unique_ptr<AttemptsChecker> attempts;
  std::unique_ptr<CheckedWorkerClient> checked;
  std::unique_ptr<router::Dispatcher> dispatcher;
  uint64_t ticks = 0;
};

FrontendProcess::FrontendProcess(const FrontendSetup& setup, World world, RequestChecker& checker)
    : setup_(setup), world_(world), checker_(checker) {
  Start();
}
FrontendProcess::~FrontendProcess() = default;

void FrontendProcess::Start() {
  ENSURE(!alive());
  life_ = std::make_unique<Life>(
      world_, [this] { return Tick(); },
      [this] { return clock_.Global(life_->dispatcher->NextWake()); });
  stopped_ = draining_ = false;
  clock_ = setup_.clocks.Draw(world_.random);
  const Incarnation self(world_.random.Next() | 1);
  life_->client = std::make_unique<SimWorkerClient>(
      world_.net, self, static_cast<uint32_t>(setup_.workers.size()),
      [loop = &life_->loop] { loop->Ring(); }, setup_.index);
  life_->attempts = world_.checkers.MakeAttempts(setup_.name, self, setup_.router);
  life_->checked = std::make_unique<CheckedWorkerClient>(*life_->client, *life_->attempts);
  life_->dispatcher = std::make_unique<router::Dispatcher>(
      setup_.router, setup_.workers, *life_->checked, self, world_.random.Next());
  world_.log.Add(setup_.name, "starts as ", ToString(self));
}

void FrontendProcess::Restart() { Start(); }

bool FrontendProcess::Tick() {
  const absl::Time now = LocalTime();
  life_->attempts->Ticking(now);
  const bool worked = life_->dispatcher->Tick(now);
  for (const router::ClientOutput& output : life_->dispatcher->TakeOutputs()) {
    life_->attempts->Told(output);
    const router::ClientKey client = std::visit([](const auto& o) { return o.client; }, output);
    const auto it = open_.find(client);
    if (it == open_.end()) {
      world_.log.Violation("K9: ", setup_.name, " speaks of a request that is over");
      continue;
    }
    Reply& reply = *it->second;
    checker_.Heard(reply, output, now);
    if (reply.on_token && std::holds_alternative<router::Delivered>(output)) reply.on_token();
    if (reply.over) world_.checkers.liveness().Over(*reply.over);
    if (reply.over) open_.erase(it);
  }
  life_->attempts->Ticked();
  if (++life_->ticks % Checkers::kFullEvery == 0 || open_.empty()) {
    world_.checkers.CheckFrontend(setup_.name, *life_->attempts, life_->dispatcher->snapshot());
  }
  if (draining_ && life_->dispatcher->idle()) Crash();  // what its workers see is the same
  return worked;
}

void FrontendProcess::Input(router::ClientInput input) {
  ENSURE(alive());
  if (const auto* submit = std::get_if<router::Submit>(&input)) {
    life_->attempts->Submitted(*submit);
  } else {
    const auto* cancel = std::get_if<router::Cancel>(&input);
    life_->attempts->Ending(cancel != nullptr ? cancel->client
                                              : std::get<router::Complete>(input).client);
  }
  life_->dispatcher->Receive(std::move(input));
  life_->loop.Ring();
}

void FrontendProcess::Submit(Reply& reply) {
  const absl::Duration deadline = reply.deadline - reply.received;
  reply.received = LocalTime();
  reply.deadline = reply.received + deadline;
  open_[reply.client] = &reply;
  reply.frontend_stopped = stopped_;
  world_.log.AddAbout(reply.client.value(), "client", reply.client.value(), " submits ",
                      reply.sequence.prompt.size(), "+", reply.sequence.remaining_tokens,
                      " tokens to ", setup_.name);
  Input(router::Submit{.client = reply.client,
                       .sequence = reply.sequence,
                       .received = reply.received,
                       .deadline = deadline});
}

void FrontendProcess::Cancel(const Reply& reply) {
  world_.log.AddAbout(reply.client.value(), "client", reply.client.value(), " cancels");
  Input(router::Cancel{reply.client});
}

void FrontendProcess::Complete(Reply& reply) {
  world_.log.AddAbout(reply.client.value(), "client", reply.client.value(), " has its stop string");
  reply.completed = true;
  Input(router::Complete{reply.client});
}

void FrontendProcess::Crash() {
  ENSURE(alive());
  world_.log.Add(setup_.name, "is gone");
  for (auto& [client, reply] : open_) reply->frontend_lost = true;
  open_.clear();
  life_->loop.Kill();
  life_->dispatcher.reset();
  life_->client.reset();
  dead_.push_back(std::move(life_));
}

void FrontendProcess::SetStopped(bool stop) {
  ENSURE(alive() && stop != stopped_);
  world_.log.Add(setup_.name, stop ? "is stopped" : "goes on");
  stopped_ = stop;
  for (auto& [client, reply] : open_) reply->frontend_stopped = true;
  world_.net.SetStopped(*life_->client, stop);
  life_->loop.SetStopped(stop);
}

void FrontendProcess::Drain() {
  ENSURE(alive());
  world_.log.Add(setup_.name, "drains");
  draining_ = true;
  life_->dispatcher->StartDrain();
  life_->loop.Ring();
}

void FrontendProcess::SetSlow(absl::Duration late_max) {
  ENSURE(alive());
  world_.log.Add(setup_.name, "ticks up to ", absl::FormatDuration(late_max), " late");
  life_->loop.SetSlow(late_max);
}

bool FrontendProcess::idle() const { return !alive() || life_->dispatcher->idle(); }
router::Snapshot FrontendProcess::snapshot() const { return life_->dispatcher->snapshot(); }
SimWorkerClient& FrontendProcess::calls() { return *life_->client; }

}  // namespace baton::sim
