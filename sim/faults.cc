// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/faults.h"

#include <iterator>

#include "base/ensure.h"

namespace baton::sim {
namespace {

constexpr absl::Duration kShort = absl::Seconds(4);

// ── processes ─────────────────────────────────────────────────────────────────────────

// One that drains may take its time, and a wedged one does not even hear of it.
void RestartWhenGone(Cluster& cluster, WorkerProcess& worker, size_t life, absl::Duration pause) {
  cluster.queue().After(pause, [&cluster, &worker, life] {
    if (worker.lives() == life) {
      RestartWhenGone(cluster, worker, life, absl::Milliseconds(300));
    } else if (!worker.alive()) {
      worker.Restart();
    }
  });
}

void CrashFrontend(Cluster& cluster, const Fault& fault) {
  FrontendProcess& frontend = cluster.frontend(fault.who.index);
  if (!frontend.alive()) return;
  frontend.Crash();
  cluster.queue().After(fault.lasts, [&frontend] {
    if (!frontend.alive()) frontend.Restart();
  });
}

void Crash(Cluster& cluster, const Fault& fault) {
  if (fault.who.role == 'f') return CrashFrontend(cluster, fault);
  WorkerProcess& worker = cluster.worker(fault.who);
  if (!worker.alive()) return;
  const size_t life = worker.lives();
  worker.Crash();
  RestartWhenGone(cluster, worker, life, fault.lasts);
}

// SIGSTOP, and SIGCONT if it is the same process still.
template <typename Process>
void StopProcess(Cluster& cluster, Process& process, absl::Duration lasts) {
  if (!process.alive() || process.stopped()) return;
  process.SetStopped(true);
  cluster.queue().After(lasts, [&process, life = process.lives()] {
    if (process.lives() == life && process.stopped()) process.SetStopped(false);
  });
}

void Stop(Cluster& cluster, const Fault& fault) {
  if (fault.who.role == 'f') {
    StopProcess(cluster, cluster.frontend(fault.who.index), fault.lasts);
  } else {
    StopProcess(cluster, cluster.worker(fault.who), fault.lasts);
  }
}

void Wedge(Cluster& cluster, const Fault& fault) {
  WorkerProcess& worker = cluster.worker(fault.who);
  if (!worker.alive() || worker.wedged()) return;
  worker.SetWedged(true);
  cluster.queue().After(fault.lasts, [&worker, life = worker.lives()] {
    if (worker.lives() == life && worker.wedged()) worker.SetWedged(false);
  });
}

void Drain(Cluster& cluster, const Fault& fault) {
  WorkerProcess& worker = cluster.worker(fault.who);
  if (!worker.alive() || worker.stopped()) return;
  const size_t life = worker.lives();
  worker.Drain();
  RestartWhenGone(cluster, worker, life, fault.lasts);
}

// ── links between workers ─────────────────────────────────────────────────────────────

void BreakLink(Cluster& cluster, const Fault& fault) {
  cluster.log().Add("link", fault.who.index, "-", fault.whom.index, " breaks");
  cluster.fabric().Break(cluster.worker(fault.who).process(), cluster.worker(fault.whom).process());
}

void CutLink(Cluster& cluster, const Fault& fault) {
  const SimFabric::Index writer = cluster.worker(fault.who).process();
  const SimFabric::Index owner = cluster.worker(fault.whom).process();
  cluster.log().Add("link", fault.who.index, "-", fault.whom.index, " is cut");
  cluster.fabric().Cut(writer, owner, true);
  cluster.queue().After(fault.lasts, [&cluster, fault, writer, owner] {
    cluster.log().Add("link", fault.who.index, "-", fault.whom.index, " is healed");
    cluster.fabric().Cut(writer, owner, false);
  });
}

// ── calls from front ends to workers ──────────────────────────────────────────────────

void BreakCalls(Cluster& cluster, const Fault& fault) {
  FrontendProcess& frontend = cluster.frontend(fault.who.index);
  if (!frontend.alive()) return;
  const WorkerProcess& worker = cluster.worker(fault.whom);
  cluster.log().Add("calls", " to ", worker.name(), " break");
  cluster.net().Break(frontend.calls(), worker.index());
}

void HoldCalls(Cluster& cluster, const Fault& fault) {
  FrontendProcess& frontend = cluster.frontend(fault.who.index);
  if (!frontend.alive()) return;
  const WorkerProcess& worker = cluster.worker(fault.whom);
  cluster.log().Add("calls", " to ", worker.name(), " are held");
  cluster.net().SetHeld(frontend.calls(), worker.index(), true);
  cluster.queue().After(fault.lasts, [&cluster, &frontend, &worker, life = frontend.lives()] {
    if (!frontend.alive() || frontend.lives() != life) return;
    cluster.log().Add("calls", " to ", worker.name(), " pass again");
    cluster.net().SetHeld(frontend.calls(), worker.index(), false);
  });
}

constexpr FaultKind kFaults[] = {
    {"crash", "fpd", "", 1, kShort, Crash},
    {"stop", "fpd", "", 1, kShort, Stop},
    {"wedge", "pd", "", 1, kShort, Wedge},
    {"drain", "pd", "", 1, kShort, Drain},
    {"break_link", "p", "d", 1, absl::ZeroDuration(), BreakLink},
    {"cut_link", "p", "d", 1, kShort, CutLink},
    {"break_calls", "f", "pd", 1, absl::ZeroDuration(), BreakCalls},
    {"hold_calls", "f", "pd", 1, kShort, HoldCalls},
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
    if (worker.alive() && worker.Status().draining) worker.Crash();
    if (!worker.alive()) worker.Restart();
  }
  for (uint32_t i = 0; i < cluster.frontends(); ++i) {
    FrontendProcess& frontend = cluster.frontend(i);
    if (!frontend.alive()) frontend.Restart();
    if (frontend.stopped()) frontend.SetStopped(false);
    for (uint32_t w = 0; w < cluster.workers(); ++w) {
      cluster.net().SetHeld(frontend.calls(), cluster.worker(w).index(), false);
    }
  }
  for (uint32_t p = 0; p < cluster.options().prefill; ++p) {
    for (uint32_t d = 0; d < cluster.options().decode; ++d) {
      cluster.fabric().Cut(cluster.prefill(p).process(), cluster.decode(d).process(), false);
    }
  }
}

}  // namespace baton::sim
