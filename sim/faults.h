// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The kinds of faults that a simulated cluster can suffer, one entry each.
//
// An entry says whom the fault may hit and how it is done and undone.  A fault that cannot
// happen now (its process is dead already) does nothing, so that any subset of a plan's faults
// is a plan as well.
//
// Thread: one; a fault acts inside the cluster's events.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/random.h"
#include "sim/cluster.h"
#include "sim/plan.h"

namespace baton::sim {

struct FaultKind {
  const char* name;
  const char* who;   // roles that it may hit: of "fpd"
  const char* whom;  // roles of the other end; empty: it has one end
  uint32_t ways;     // values of `how`
  absl::Duration lasts_max;
  void (*apply)(Cluster&, const Fault&);
  void (*prepare)(Cluster&, const Fault&) = nullptr;  // before the cluster comes together
  bool apart = false;  // drawn by itself, beside those that share a plan's faults
};

absl::Span<const FaultKind> AllFaults();
const FaultKind* FindFault(absl::string_view name);  // nullptr: there is none

// A fault of this kind on some parties of the cluster, to start within `span`.
Fault DrawFault(const FaultKind& kind, const ClusterOptions& cluster, absl::Duration span,
                Random& random);
// Before the cluster has come together.
void PrepareFault(Cluster& cluster, const Fault& fault);
// Now.
void ApplyFault(Cluster& cluster, const Fault& fault);
// Everything is as it was before the first fault; processes that are gone start again,
// unless they have left.
void Heal(Cluster& cluster);

}  // namespace baton::sim
