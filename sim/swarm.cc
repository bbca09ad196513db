// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/swarm.h"

#include <algorithm>

namespace baton::sim {
namespace {

constexpr absl::Duration kFaultPhase = absl::Seconds(6);
constexpr absl::Duration kLoadPhase = absl::Seconds(5);

ClusterOptions RandomCluster(uint64_t seed, Random& random) {
  ClusterOptions options;
  options.seed = seed;
  options.frontends = 1 + static_cast<uint32_t>(random.Below(2));
  options.prefill = static_cast<uint32_t>(random.Between(1, 3));
  options.decode = static_cast<uint32_t>(random.Between(1, 3));
  options.prefill_blocks = static_cast<uint32_t>(random.Between(20, 60));
  options.decode_blocks = static_cast<uint32_t>(random.Between(24, 90));
  options.layers = static_cast<uint32_t>(random.Between(1, 3));
  const uint64_t way = random.Below(3);  // shared memory, rc, TCP
  options.path = way == 2 ? 'B' : 'A';
  options.close_fences = way == 1;
  options.several_hosts = way != 0;
  options.engine.step = absl::Microseconds(random.Between(500, 5000));
  options.engine.token = absl::Microseconds(random.Between(10, 400));
  options.router.colocate_below_tokens = static_cast<uint32_t>(random.Between(1, 100));
  options.router.attempts_max = static_cast<uint32_t>(random.Between(1, 5));
  options.router.resume = random.Chance(0.9);
  options.router.queue_requests = static_cast<uint32_t>(random.Between(4, 40));
  options.router.progress_timeout = absl::Milliseconds(random.Between(1500, 6000));
  options.router.reserving_max = static_cast<uint32_t>(random.Between(1, 16));
  options.prefill_options.chunk_tokens = static_cast<uint32_t>(16 * random.Between(1, 6));
  options.prefill_options.pipelining = random.Chance(0.8);
  options.prefill_options.sequences_max = static_cast<uint32_t>(random.Between(1, 8));
  options.prefill_options.queue_requests = static_cast<uint32_t>(random.Between(2, 40));
  options.prefill_options.drain_max = absl::Milliseconds(random.Between(10, 3000));
  options.decode_options.batch_tokens = static_cast<uint32_t>(random.Between(8, 80));
  options.decode_options.sequences_max = static_cast<uint32_t>(random.Between(2, 16));
  options.decode_options.queue_requests = static_cast<uint32_t>(random.Between(2, 40));
  options.decode_options.recompute_here_max = static_cast<uint32_t>(random.Between(0, 200));
  options.decode_options.drain_max = absl::Milliseconds(random.Between(10, 3000));
  options.links.late_chance = random.Chance(0.5) ? 0.1 * random.Unit() : 0;
  return options;
}

}  // namespace

Swarm::Swarm(uint64_t seed) : Swarm(seed, Random(seed)) {}

Swarm::Swarm(uint64_t seed, Random random)
    : seed_(seed), random_(random), cluster_(RandomCluster(seed, random)) {
  random_ = Random(SplitMix64(seed ^ 0x5eed));
  faults_ = random_.Chance(0.9);
}

SwarmResult Swarm::Run() {
  cluster_.Ready();
  ScheduleLoad();
  if (faults_) ScheduleFaults();
  cluster_.Run(kFaultPhase + absl::Seconds(1));
  Heal();
  cluster_.Settle();
  Probe();

  SwarmResult result;
  result.seed = seed_;
  result.violations = cluster_.violations();
  result.tail = cluster_.log().Tail();
  result.hash = cluster_.log().hash();
  result.lines = cluster_.log().count();
  for (const Reply& reply : cluster_.replies()) {
    ++result.requests;
    if (!reply.ok()) continue;
    ++result.answered;
    result.resumed += reply.over->resumes > 0;
    result.pushed += reply.over->path == router::Path::kDisaggregated;
    result.fallbacks += reply.over->path == router::Path::kFallback;
  }
  return result;
}

// ── load ────────────────────────────────────────────────────────────────────────────

void Swarm::ScheduleLoad() {
  const uint64_t requests = random_.Between(3, 30);
  const uint64_t prompt_max = random_.Between(20, 250);
  // Long answers are there when a fault comes; short ones are many.
  const uint64_t new_tokens_max = random_.Chance(0.4) ? 250 : 40;
  for (uint64_t i = 0; i < requests; ++i) {
    Ask ask;
    ask.prompt_tokens = static_cast<uint32_t>(random_.Between(1, prompt_max));
    ask.new_tokens = static_cast<uint32_t>(random_.Between(1, new_tokens_max));
    ask.frontend = static_cast<uint32_t>(random_.Below(cluster_.frontends()));
    ask.content = random_.Chance(0.5) ? random_.Between(1, 3) : 0;
    ask.temperature = random_.Chance(0.3) ? 0 : 1;
    ask.deadline = absl::Milliseconds(random_.Between(500, 40000));
    for (TokenId id = 0; random_.Chance(0.8) && id < 20; ++id) ask.stop_ids.push_back(id);
    const absl::Duration at = Upto(kLoadPhase);
    const bool cancelled = random_.Chance(0.15), completed = random_.Chance(0.1);
    const absl::Duration patience = Upto(absl::Milliseconds(500));
    cluster_.queue().After(at, [this, ask, cancelled, completed, patience] {
      Reply& reply = cluster_.Submit(ask);
      if (!cancelled && !completed) return;
      cluster_.queue().After(patience, [this, cancelled, &reply] {
        if (cancelled) {
          cluster_.Cancel(reply);
        } else if (!reply.tokens.empty()) {
          cluster_.Complete(reply);
        }
      });
    });
  }
}

// When all is healed every kind of request is answered by every front end.
void Swarm::Probe() {
  if (!cluster_.Ready()) {
    cluster_.log().Violation("the cluster does not come together again");
    return;
  }
  for (uint32_t i = 0; i < cluster_.frontends(); ++i) {
    for (const uint32_t tokens : {5u, 120u}) {
      const Reply& reply = cluster_.Submit({.prompt_tokens = tokens, .frontend = i});
      cluster_.Until([&] { return reply.done(); });
      if (!reply.ok()) cluster_.log().Violation("a healed cluster does not answer");
    }
  }
  cluster_.Settle();
}

// ── faults ──────────────────────────────────────────────────────────────────────────

void Swarm::ScheduleFaults() {
  const uint64_t faults = random_.Between(1, 10);
  for (uint64_t i = 0; i < faults; ++i) {
    cluster_.queue().After(Upto(kFaultPhase), [this] { Fault(); });
  }
}

WorkerProcess& Swarm::AnyWorker() {
  return cluster_.worker(static_cast<uint32_t>(random_.Below(cluster_.workers())));
}

void Swarm::Fault() {
  const uint64_t kind = random_.Below(10);
  if (kind < 5) {
    FaultOfWorker(AnyWorker(), kind);
  } else if (kind < 6) {
    FaultOfFrontend(cluster_.frontend(static_cast<uint32_t>(random_.Below(cluster_.frontends()))));
  } else if (kind < 8) {
    FaultOfLink();
  } else {
    FaultOfCalls();
  }
}

void Swarm::FaultOfWorker(WorkerProcess& worker, uint64_t kind) {
  if (!worker.alive()) return;
  const size_t life = worker.lives();
  const absl::Duration pause = Upto(absl::Seconds(4));
  if (kind <= 1) {
    worker.Crash();
    RestartWhenGone(worker, life, pause);
  } else if (kind == 2 && !worker.stopped()) {
    worker.SetStopped(true);
    cluster_.queue().After(pause, [&worker, life] {
      if (worker.lives() == life && worker.stopped()) worker.SetStopped(false);
    });
  } else if (kind == 3 && !worker.wedged()) {
    worker.SetWedged(true);
    cluster_.queue().After(pause, [&worker, life] {
      if (worker.lives() == life && worker.wedged()) worker.SetWedged(false);
    });
  } else if (kind == 4 && !worker.stopped()) {
    worker.Drain();
    RestartWhenGone(worker, life, pause);
  }
}

// One that drains may take its time, and a wedged one does not even hear of it.
void Swarm::RestartWhenGone(WorkerProcess& worker, size_t life, absl::Duration pause) {
  cluster_.queue().After(pause, [this, &worker, life] {
    if (worker.lives() == life) {
      RestartWhenGone(worker, life, absl::Milliseconds(300));
    } else if (!worker.alive()) {
      worker.Restart();
    }
  });
}

void Swarm::FaultOfFrontend(FrontendProcess& frontend) {
  if (!frontend.alive()) return;
  const size_t life = frontend.lives();
  const absl::Duration pause = Upto(absl::Seconds(4));
  if (random_.Chance(0.5)) {
    frontend.Crash();
    cluster_.queue().After(pause, [&frontend] {
      if (!frontend.alive()) frontend.Restart();
    });
  } else if (!frontend.stopped()) {
    frontend.SetStopped(true);
    cluster_.queue().After(pause, [&frontend, life] {
      if (frontend.lives() == life && frontend.stopped()) frontend.SetStopped(false);
    });
  }
}

void Swarm::FaultOfLink() {
  const uint32_t p = static_cast<uint32_t>(random_.Below(cluster_.options().prefill));
  const uint32_t d = static_cast<uint32_t>(random_.Below(cluster_.options().decode));
  const SimFabric::Index writer = cluster_.prefill(p).process();
  const SimFabric::Index owner = cluster_.decode(d).process();
  if (random_.Chance(0.5)) {
    cluster_.log().Add("link", p, "-", d, " breaks");
    cluster_.fabric().Break(writer, owner);
  } else {
    cluster_.log().Add("link", p, "-", d, " is cut");
    cluster_.fabric().Cut(writer, owner, true);
    cluster_.queue().After(Upto(absl::Seconds(4)), [this, writer, owner, p, d] {
      cluster_.log().Add("link", p, "-", d, " is healed");
      cluster_.fabric().Cut(writer, owner, false);
    });
  }
}

void Swarm::FaultOfCalls() {
  const WorkerProcess& worker = AnyWorker();
  FrontendProcess& frontend =
      cluster_.frontend(static_cast<uint32_t>(random_.Below(cluster_.frontends())));
  if (!frontend.alive()) return;
  if (random_.Chance(0.5)) {
    cluster_.log().Add("calls", " to ", worker.name(), " break");
    cluster_.net().Break(frontend.calls(), worker.index());
    return;
  }
  cluster_.log().Add("calls", " to ", worker.name(), " are held");
  cluster_.net().SetHeld(frontend.calls(), worker.index(), true);
  const size_t life = frontend.lives();
  cluster_.queue().After(Upto(absl::Seconds(4)), [this, &frontend, &worker, life] {
    if (!frontend.alive() || frontend.lives() != life) return;
    cluster_.log().Add("calls", " to ", worker.name(), " pass again");
    cluster_.net().SetHeld(frontend.calls(), worker.index(), false);
  });
}

void Swarm::Heal() {
  cluster_.log().Add("all", " is healed");
  for (uint32_t i = 0; i < cluster_.workers(); ++i) {
    WorkerProcess& worker = cluster_.worker(i);
    if (worker.wedged()) worker.SetWedged(false);
    if (worker.stopped()) worker.SetStopped(false);
    if (worker.alive() && worker.Status().draining) worker.Crash();
    if (!worker.alive()) worker.Restart();
  }
  for (uint32_t i = 0; i < cluster_.frontends(); ++i) {
    FrontendProcess& frontend = cluster_.frontend(i);
    if (!frontend.alive()) frontend.Restart();
    if (frontend.stopped()) frontend.SetStopped(false);
    for (uint32_t w = 0; w < cluster_.workers(); ++w) {
      cluster_.net().SetHeld(frontend.calls(), cluster_.worker(w).index(), false);
    }
  }
  for (uint32_t p = 0; p < cluster_.options().prefill; ++p) {
    for (uint32_t d = 0; d < cluster_.options().decode; ++d) {
      cluster_.fabric().Cut(cluster_.prefill(p).process(), cluster_.decode(d).process(), false);
    }
  }
}

}  // namespace baton::sim
