// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/runner.h"

#include <algorithm>

#include "base/ensure.h"
#include "sim/faults.h"

namespace baton::sim {
namespace {

// The least time in which the decodes give all the answers of a plan: as many at once as they
// run and have blocks for.
absl::Duration LoadOf(const Plan& plan) {
  const ClusterOptions& cluster = plan.cluster;
  uint64_t tokens = 0;
  uint64_t longest = 1;
  for (const PlannedRequest& request : plan.requests) {
    const Ask& ask = request.ask;
    tokens += uint64_t{ask.new_tokens} * ask.choices;
    longest = std::max<uint64_t>(longest, ask.history.size() + ask.prompt_tokens + ask.new_tokens);
  }
  const uint64_t fit = std::max<uint64_t>(1, cluster.decode_blocks / BlocksFor(longest));
  const uint64_t rows =
      cluster.decode * std::min<uint64_t>(fit, cluster.decode_options.sequences_max);
  return (cluster.engine.step + cluster.engine.token) * (tokens / rows);
}

}  // namespace

RunResult Runner::Run() {
  ENSURE(CheckPlan(plan_).ok());
  for (const Fault& fault : plan_.faults) PrepareFault(cluster_, fault);
  cluster_.Ready();
  // Without resume, memory pressure may end an answer that has begun; a write that is late by
  // seconds is beyond a short time-out's patience.
  if (plan_.faults.empty() && plan_.cluster.router.resume && plan_.cluster.links.late_chance == 0) {
    cluster_.checkers().liveness().ExpectNoFaults();
  }
  Schedule();
  cluster_.Run(plan_.heal_at);
  Heal(cluster_);
  cluster_.checkers().liveness().FaultsStop(cluster_.now(), LoadOf(plan_));
  cluster_.Settle();
  Probe();
  return Result();
}

void Runner::Schedule() {
  EventQueue& queue = cluster_.queue();
  const absl::Time begin = queue.Now();
  const uint64_t first_event = queue.executed();
  fault_times_.assign(plan_.faults.size(), absl::InfiniteDuration());
  replies_.assign(plan_.requests.size(), nullptr);
  for (size_t i = 0; i < plan_.requests.size(); ++i) {
    queue.At(begin + plan_.requests[i].at, [this, i] { Submit(i); });
  }
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    auto happen = [this, i, begin, &fault] {
      if (cluster_.now() >= begin + plan_.heal_at) return;
      fault_times_[i] = cluster_.now() - begin;
      ApplyFault(cluster_, fault);
    };
    if (fault.at_event > 0) {
      queue.BeforeEvent(first_event + fault.at_event, happen);
    } else {
      queue.At(begin + fault.at, happen);
    }
  }
}

void Runner::Submit(size_t request) {
  const PlannedRequest& planned = plan_.requests[request];
  Ask ask = planned.ask;
  const size_t before = size_t{planned.extends} - 1;
  if (planned.extends > 0 && before < replies_.size() && replies_[before] != nullptr) {
    const Reply& earlier = *replies_[before];
    ask.history = earlier.sequence.prompt;
    for (const OutputToken& token : earlier.tokens) ask.history.push_back(token.id);
  }
  replies_[request] = &cluster_.Submit(ask);
}

// A write may still be late beyond what a plan's time-outs and attempts have patience for, and a
// connection that died half is noticed after 2 s of silence: a client asks again, as it is told.
bool Runner::Answered(const Ask& ask) {
  for (int again = 0; again < 3; ++again) {
    const Reply& reply = cluster_.Submit(ask);
    cluster_.Until([&] { return reply.done(); });
    if (reply.ok()) return true;
    cluster_.Run(absl::Seconds(1));
  }
  return false;
}

// When all is healed every kind of request is answered by every front end.
void Runner::Probe() {
  if (!cluster_.Ready()) {
    cluster_.log().Violation("liveness: the cluster does not come together again");
    return;
  }
  bool any_decode = false;
  for (uint32_t i = 0; i < plan_.cluster.decode; ++i) any_decode |= cluster_.decode(i).member();
  if (!any_decode) return;
  const uint32_t long_one = std::min(120u, plan_.cluster.decode_blocks * kBlockTokens / 2);
  for (uint32_t i = 0; i < cluster_.frontends(); ++i) {
    for (const uint32_t tokens : {5u, long_one}) {
      if (!Answered({.prompt_tokens = tokens, .frontend = i})) {
        cluster_.log().Violation("liveness: a healed cluster does not answer");
      }
    }
  }
  cluster_.Settle();
}

RunResult Runner::Result() {
  RunResult result;
  result.violations = cluster_.violations();
  result.tail = cluster_.log().Tail();
  result.hash = cluster_.log().hash();
  result.lines = cluster_.log().count();
  result.fault_times = fault_times_;
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

}  // namespace baton::sim
