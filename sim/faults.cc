// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/faults.h"

#include "base/ensure.h"
#include "base/lease.h"

namespace baton::sim {
namespace {

constexpr absl::Duration kNone = absl::ZeroDuration();
constexpr absl::Duration kShort = absl::Seconds(4);
constexpr absl::Duration kLong = absl::Seconds(30);  // until all is healed

bool OfFrontend(const Fault& fault) { return fault.who.role == 'f'; }

// ── processes ─────────────────────────────────────────────────────────────────────────

bool Expected(const WorkerProcess& worker) { return worker.member(); }
bool Expected(const FrontendProcess&) { return true; }

// One that drains may take its time, and a wedged one does not even hear of it.
template <typename Process>
void RestartWhenGone(Cluster& cluster, Process& process, size_t life, absl::Duration pause) {
  cluster.queue().After(pause, [&cluster, &process, life] {
    if (process.lives() == life) {
      RestartWhenGone(cluster, process, life, absl::Milliseconds(300));
    } else if (!process.alive() && Expected(process)) {
      process.Restart();
    }
  });
}

// Calls `act` with whichever process the fault hits, if that is alive.
template <typename Act>
void WithProcess(Cluster& cluster, const Fault& fault, Act act) {
  if (OfFrontend(fault)) {
    FrontendProcess& frontend = cluster.frontend(fault.who.index);
    if (frontend.alive()) act(frontend);
  } else {
    WorkerProcess& worker = cluster.worker(fault.who);
    if (worker.alive()) act(worker);
  }
}

void Crash(Cluster& cluster, const Fault& fault) {
  WithProcess(cluster, fault, [&](auto& process) {
    const size_t life = process.lives();
    process.Crash();
    RestartWhenGone(cluster, process, life, fault.lasts);
  });
}

// SIGSTOP, and SIGCONT if it is the same process still.
void Stop(Cluster& cluster, const Fault& fault) {
  WithProcess(cluster, fault, [&](auto& process) {
    if (process.stopped()) return;
    process.SetStopped(true);
    cluster.queue().After(fault.lasts, [&process, life = process.lives()] {
      if (process.lives() == life && process.stopped()) process.SetStopped(false);
    });
  });
}

// A front end that stands still for longer than its lease.
void Silence(Cluster& cluster, const Fault& fault) {
  Fault longer = fault;
  longer.lasts += kDeadAfter;
  Stop(cluster, longer);
}

void Slow(Cluster& cluster, const Fault& fault) {
  // A front end has to end requests by their deadline, give or take the checker's slack.
  const absl::Duration late = absl::Milliseconds(OfFrontend(fault) ? 10 : 20 << (fault.how * 2));
  WithProcess(cluster, fault, [&](auto& process) {
    process.SetSlow(late);
    cluster.queue().After(fault.lasts, [&process, life = process.lives()] {
      if (process.alive() && process.lives() == life) process.SetSlow(absl::ZeroDuration());
    });
  });
}

void Drain(Cluster& cluster, const Fault& fault) {
  WithProcess(cluster, fault, [&](auto& process) {
    if (process.stopped()) return;
    const size_t life = process.lives();
    process.Drain();
    RestartWhenGone(cluster, process, life, fault.lasts);
  });
}

void Wedge(Cluster& cluster, const Fault& fault) {
  WorkerProcess& worker = cluster.worker(fault.who);
  if (!worker.alive() || worker.wedged()) return;
  worker.SetWedged(true);
  cluster.queue().After(fault.lasts, [&worker, life = worker.lives()] {
    if (worker.lives() == life && worker.wedged()) worker.SetWedged(false);
  });
}

// Scaled down: it drains, and never comes back.  One of each role stays.
void Leave(Cluster& cluster, const Fault& fault) {
  WorkerProcess& worker = cluster.worker(fault.who);
  if (fault.who.index == 0 || !worker.member()) return;
  worker.SetMember(false);
  if (worker.alive() && !worker.stopped()) worker.Drain();
}

// Scaled up: it was not there before.
void PrepareJoin(Cluster& cluster, const Fault& fault) {
  WorkerProcess& worker = cluster.worker(fault.who);
  if (fault.who.index == 0 || !worker.alive()) return;
  worker.SetMember(false);
  worker.Crash();
}
void Join(Cluster& cluster, const Fault& fault) {
  WorkerProcess& worker = cluster.worker(fault.who);
  if (worker.member() || worker.alive()) return;
  worker.SetMember(true);
  worker.Restart();
}

// Restarted as what may not pair, and later as what it was (K6).
void Misfit(Cluster& cluster, const Fault& fault) {
  WorkerProcess& worker = cluster.worker(fault.who);
  if (!worker.alive() || worker.misfit() != WorkerProcess::Misfit::kNone) return;
  worker.Crash();
  worker.SetMisfit(static_cast<WorkerProcess::Misfit>(1 + fault.how));
  worker.Restart();
  cluster.queue().After(fault.lasts, [&worker] {
    if (worker.misfit() == WorkerProcess::Misfit::kNone) return;
    if (worker.alive()) worker.Crash();
    worker.SetMisfit(WorkerProcess::Misfit::kNone);
    if (worker.member()) worker.Restart();
  });
}

// ── links between workers ─────────────────────────────────────────────────────────────

// The link's two ends in the fabric.
struct Link {
  Link(Cluster& cluster, Party writer_in, Party owner_in)
      : fabric(cluster.fabric()),
        writer(cluster.worker(writer_in).process()),
        owner(cluster.worker(owner_in).process()) {}

  template <typename Change>
  void Alter(Change change) {
    LinkWeather weather = fabric.weather(writer, owner);
    change(weather);
    fabric.SetWeather(writer, owner, weather);
  }

  SimFabric& fabric;
  const SimFabric::Index writer, owner;
};

void LogLink(Cluster& cluster, const Fault& fault, const char* what) {
  cluster.log().Add("link", fault.who.index, "-", fault.whom.index, what);
}

// Changes the link's weather now, and undoes it later.
template <typename Begin, typename End>
void Weather(Cluster& cluster, const Fault& fault, Begin begin, End end) {
  LogLink(cluster, fault, " suffers");
  Link link(cluster, fault.who, fault.whom);
  link.Alter(begin);
  cluster.queue().After(fault.lasts, [&cluster, fault, link, end]() mutable {
    LogLink(cluster, fault, " is healed");
    link.Alter(end);
  });
}

void BreakLink(Cluster& cluster, const Fault& fault) {
  LogLink(cluster, fault, " breaks");
  const Link link(cluster, fault.who, fault.whom);
  link.fabric.Break(link.writer, link.owner);
}

// how: 0 both ways, 1 towards the owner, 2 towards the writer; 3 more: the memory path as well.
void SetCut(LinkWeather& weather, uint32_t how, bool cut) {
  if (how % 3 != 2) weather.to_owner_cut = cut;
  if (how % 3 != 1) weather.to_writer_cut = cut;
  if (how >= 3) weather.memory_cut = cut;
}
void CutLink(Cluster& cluster, const Fault& fault) {
  Weather(
      cluster, fault, [how = fault.how](LinkWeather& w) { SetCut(w, how, true); },
      [how = fault.how](LinkWeather& w) { SetCut(w, how, false); });
}

void ClogLink(Cluster& cluster, const Fault& fault) {
  const absl::Duration clog = absl::Milliseconds(fault.how == 0 ? 5 : fault.how == 1 ? 50 : 500);
  Weather(
      cluster, fault, [clog](LinkWeather& w) { w.clog = clog; },
      [](LinkWeather& w) { w.clog = absl::ZeroDuration(); });
}

// A block of one layer is some hundred bytes here.
void SlowLink(Cluster& cluster, const Fault& fault) {
  const double speed = fault.how == 0 ? 1e7 : fault.how == 1 ? 3e5 : 1e4;
  Weather(
      cluster, fault, [speed](LinkWeather& w) { w.bytes_per_second = speed; },
      [](LinkWeather& w) { w.bytes_per_second = 0; });
}

// how: 0 a bit is flipped now and then, 1 often; 2 the rest of a part is missing.
void DamageLink(Cluster& cluster, const Fault& fault) {
  const double chance = fault.how == 0 ? 0.02 : 0.3;
  Weather(
      cluster, fault,
      [chance, tears = fault.how == 2](LinkWeather& w) {
        w.damage_chance = chance;
        w.tears = tears;
      },
      [](LinkWeather& w) { w.damage_chance = 0; });
}

void RefuseLink(Cluster& cluster, const Fault& fault) {
  Weather(
      cluster, fault, [](LinkWeather& w) { w.refuses = true; },
      [](LinkWeather& w) { w.refuses = false; });
  BreakLink(cluster, fault);
}

void DeafenLink(Cluster& cluster, const Fault& fault) {
  LogLink(cluster, fault, " is half dead");
  const Link link(cluster, fault.who, fault.whom);
  link.fabric.Deafen(link.writer, link.owner,
                     {.writer = fault.how == 0, .owner = fault.how == 1, .data = fault.how == 2});
}

// ── calls from front ends to workers ──────────────────────────────────────────────────

template <typename Change>
void AlterCalls(Cluster& cluster, uint32_t place, const WorkerProcess& worker, Change change) {
  CallWeather weather = cluster.net().weather(place, worker.index());
  change(weather);
  cluster.net().SetWeather(place, worker.index(), weather);
}

void LogCalls(Cluster& cluster, const Fault& fault, const char* what) {
  cluster.log().Add("calls", " of ", fault.who.index, " to ", cluster.worker(fault.whom).name(),
                    what);
}

template <typename Begin, typename End>
void CallsWeather(Cluster& cluster, const Fault& fault, Begin begin, End end) {
  LogCalls(cluster, fault, " suffer");
  AlterCalls(cluster, fault.who.index, cluster.worker(fault.whom), begin);
  cluster.queue().After(fault.lasts, [&cluster, fault, end] {
    LogCalls(cluster, fault, " pass again");
    AlterCalls(cluster, fault.who.index, cluster.worker(fault.whom), end);
  });
}

void BreakCalls(Cluster& cluster, const Fault& fault) {
  FrontendProcess& frontend = cluster.frontend(fault.who.index);
  if (!frontend.alive()) return;
  LogCalls(cluster, fault, " break");
  cluster.net().Break(frontend.calls(), cluster.worker(fault.whom).index());
}

// One kind of standing still, in each direction.
struct Ways {
  bool CallWeather::*to_worker;
  bool CallWeather::*to_frontend;
};
constexpr Ways kHeld = {&CallWeather::to_worker_held, &CallWeather::to_frontend_held};
// The streams of requests stand still, as flow control makes them; heartbeats pass, so that nobody
// is taken for dead.
constexpr Ways kStalled = {&CallWeather::to_worker_stalled, &CallWeather::to_frontend_stalled};

// how: 0 both ways, 1 towards the worker, 2 towards the front end.
void Set(CallWeather& weather, const Ways& ways, uint32_t how, bool on) {
  if (how != 2) weather.*ways.to_worker = on;
  if (how != 1) weather.*ways.to_frontend = on;
}
template <const Ways& kWays>
void StopCalls(Cluster& cluster, const Fault& fault) {
  CallsWeather(
      cluster, fault, [how = fault.how](CallWeather& w) { Set(w, kWays, how, true); },
      [how = fault.how](CallWeather& w) { Set(w, kWays, how, false); });
}

// One direction is lost without a word; after a while the connection is given up.
void DeafenCalls(Cluster& cluster, const Fault& fault) {
  LogCalls(cluster, fault, " are half dead");
  AlterCalls(cluster, fault.who.index, cluster.worker(fault.whom),
             [&](CallWeather& w) { Set(w, kHeld, 1 + fault.how, true); });
  cluster.queue().After(fault.lasts, [&cluster, fault] {
    if (!cluster.net().weather(fault.who.index, cluster.worker(fault.whom).index()).any_held()) {
      return;  // healed before
    }
    BreakCalls(cluster, fault);
    AlterCalls(cluster, fault.who.index, cluster.worker(fault.whom),
               [&](CallWeather& w) { Set(w, kHeld, 1 + fault.how, false); });
  });
}

void ClogCalls(Cluster& cluster, const Fault& fault) {
  const absl::Duration clog = absl::Milliseconds(fault.how == 0 ? 5 : fault.how == 1 ? 50 : 500);
  CallsWeather(
      cluster, fault, [clog](CallWeather& w) { w.clog = clog; },
      [](CallWeather& w) { w.clog = absl::ZeroDuration(); });
}

void RefuseCalls(Cluster& cluster, const Fault& fault) {
  CallsWeather(
      cluster, fault, [](CallWeather& w) { w.refuses = true; },
      [](CallWeather& w) { w.refuses = false; });
  BreakCalls(cluster, fault);
}

// ── machines ──────────────────────────────────────────────────────────────────────────

// Every link and every way whose ends `parted` tells apart, in the directions that `how` names
// (towards workers that push and serve: 1, from them: 2, both: 0).
template <typename Parted>
void SetPartition(Cluster& cluster, uint32_t how, bool cut, Parted parted) {
  const ClusterOptions& options = cluster.options();
  for (uint32_t d = 0; d < options.decode; ++d) {
    for (uint32_t p = 0; p < options.prefill; ++p) {
      if (!parted(Party{'p', p}, Party{'d', d})) continue;
      Link(cluster, {'p', p}, {'d', d}).Alter([&](LinkWeather& w) { SetCut(w, how + 3, cut); });
    }
  }
  for (uint32_t f = 0; f < options.frontends; ++f) {
    for (const char role : {'p', 'd'}) {
      for (uint32_t i = 0; i < options.count(role); ++i) {
        if (!parted(Party{'f', f}, Party{role, i})) continue;
        AlterCalls(cluster, f, cluster.worker(Party{role, i}),
                   [&](CallWeather& w) { Set(w, kHeld, how, cut); });
      }
    }
  }
}

template <typename Parted>
void Partition(Cluster& cluster, const Fault& fault, uint32_t how, Parted parted) {
  cluster.log().Add("net", " is parted");
  SetPartition(cluster, how, true, parted);
  cluster.queue().After(fault.lasts, [&cluster, how, parted] {
    cluster.log().Add("net", " is whole again");
    SetPartition(cluster, how, false, parted);
  });
}

void Isolate(Cluster& cluster, const Fault& fault) {
  Partition(cluster, fault, fault.how,
            [who = fault.who](Party a, Party b) { return a == who || b == who; });
}

// Two halves: the bits of `how` say who is where.
void Split(Cluster& cluster, const Fault& fault) {
  const auto side = [how = fault.how](Party party) {
    return how >> ((party.index * 3 + (party.role == 'p' ? 1 : party.role == 'd' ? 2 : 0)) % 8) & 1;
  };
  Partition(cluster, fault, 0, [side](Party a, Party b) { return side(a) != side(b); });
}

constexpr FaultKind kFaults[] = {
    {"crash", "fpd", "", 1, kShort, Crash},
    {"stop", "fpd", "", 1, kShort, Stop},
    {"stop_long", "pd", "", 1, kLong, Stop},
    {"slow", "fpd", "", 2, kShort, Slow},
    {"wedge", "pd", "", 1, kShort, Wedge},
    {"drain", "fpd", "", 1, kShort, Drain},
    {"leave", "pd", "", 1, kNone, Leave},
    {"join", "pd", "", 1, kNone, Join, PrepareJoin},
    {"misfit", "pd", "", 4, kShort, Misfit},
    {"break_link", "p", "d", 1, kNone, BreakLink},
    {"cut_link", "p", "d", 6, kShort, CutLink},
    {"clog_link", "p", "d", 3, kShort, ClogLink},
    {"slow_link", "p", "d", 3, kLong, SlowLink},
    {"refuse_link", "p", "d", 1, kShort, RefuseLink},
    {"deafen_link", "p", "d", 3, kNone, DeafenLink},
    {"break_calls", "f", "pd", 1, kNone, BreakCalls},
    {"hold_calls", "f", "pd", 3, kShort, StopCalls<kHeld>},
    {"deafen_calls", "f", "pd", 2, kShort, DeafenCalls},
    {"clog_calls", "f", "pd", 3, kShort, ClogCalls},
    {"refuse_calls", "f", "pd", 1, kShort, RefuseCalls},
    {"isolate", "fpd", "", 3, kShort, Isolate},
    {"split", "f", "", 256, kShort, Split},
    {"stall_calls", "f", "pd", 3, kShort, StopCalls<kStalled>, nullptr, /*apart=*/true},
    {"silence", "f", "", 1, absl::Seconds(1), Silence, nullptr, /*apart=*/true},
    {"damage_link", "p", "d", 3, kShort, DamageLink, nullptr, /*apart=*/true},
};

Party DrawParty(const char* roles, const ClusterOptions& cluster, Random& random) {
  const absl::string_view all(roles);
  Party party;
  party.role = all[random.Below(all.size())];
  party.index = static_cast<uint32_t>(random.Below(cluster.count(party.role)));
  return party;
}

}  // namespace

absl::Span<const FaultKind> AllFaults() { return kFaults; }

const FaultKind* FindFault(absl::string_view name) {
  for (const FaultKind& kind : kFaults) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

Fault DrawFault(const FaultKind& kind, const ClusterOptions& cluster, absl::Duration span,
                Random& random) {
  const auto upto = [&](absl::Duration max) {
    return absl::Microseconds(random.Below(absl::ToInt64Microseconds(max) + 1));
  };
  Fault fault;
  fault.kind = kind.name;
  fault.who = DrawParty(kind.who, cluster, random);
  if (kind.whom[0] != '\0') fault.whom = DrawParty(kind.whom, cluster, random);
  fault.at = upto(span);
  fault.lasts = upto(kind.lasts_max);
  fault.how = static_cast<uint32_t>(random.Below(kind.ways));
  return fault;
}

void PrepareFault(Cluster& cluster, const Fault& fault) {
  const FaultKind* kind = FindFault(fault.kind);
  ENSURE(kind != nullptr);
  if (kind->prepare != nullptr) kind->prepare(cluster, fault);
}

void ApplyFault(Cluster& cluster, const Fault& fault) {
  const FaultKind* kind = FindFault(fault.kind);
  ENSURE(kind != nullptr);
  kind->apply(cluster, fault);
}

void Heal(Cluster& cluster) {
  cluster.log().Add("all", " is healed");
  for (uint32_t i = 0; i < cluster.workers(); ++i) {
    WorkerProcess& worker = cluster.worker(i);
    if (worker.wedged()) worker.SetWedged(false);
    if (worker.stopped()) worker.SetStopped(false);
    if (worker.alive()) worker.SetSlow(absl::ZeroDuration());
    const bool odd = worker.misfit() != WorkerProcess::Misfit::kNone;
    if (worker.alive() && (odd || !worker.member() || worker.Status().draining)) worker.Crash();
    if (odd) worker.SetMisfit(WorkerProcess::Misfit::kNone);
    if (!worker.alive() && worker.member()) worker.Restart();
  }
  for (uint32_t f = 0; f < cluster.frontends(); ++f) {
    FrontendProcess& frontend = cluster.frontend(f);
    if (frontend.alive() && frontend.draining()) frontend.Crash();
    if (!frontend.alive()) frontend.Restart();
    if (frontend.stopped()) frontend.SetStopped(false);
    frontend.SetSlow(absl::ZeroDuration());
    for (uint32_t i = 0; i < cluster.workers(); ++i) {
      cluster.net().SetWeather(f, cluster.worker(i).index(), {});
    }
  }
  for (uint32_t p = 0; p < cluster.options().prefill; ++p) {
    for (uint32_t d = 0; d < cluster.options().decode; ++d) {
      cluster.fabric().SetWeather(cluster.prefill(p).process(), cluster.decode(d).process(), {});
    }
  }
}

}  // namespace baton::sim
