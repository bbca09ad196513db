// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/workloads.h"

namespace baton::sim {
namespace {

using Requests = std::vector<PlannedRequest>;

uint32_t Number(Random& random, uint64_t low, uint64_t high) {
  return static_cast<uint32_t>(random.Between(low, high));
}
absl::Duration Upto(absl::Duration max, Random& random) {
  return absl::Microseconds(random.Below(absl::ToInt64Microseconds(max) + 1));
}

PlannedRequest& AddRequest(Requests& requests, const ClusterOptions& cluster, absl::Duration at,
                           Random& random) {
  PlannedRequest& request = requests.emplace_back();
  request.at = at;
  request.ask.frontend = Number(random, 0, cluster.frontends - 1);
  return request;
}

// Any request at any moment.
void Mixed(Requests& requests, const ClusterOptions& cluster, absl::Duration span, Random& random) {
  const uint64_t count = random.Between(3, 30);
  const uint64_t prompt_max = random.Between(20, 250);
  // Long answers are there when a fault comes; short ones are many.
  const uint64_t new_tokens_max = random.Chance(0.4) ? 250 : 40;
  for (uint64_t i = 0; i < count; ++i) {
    Ask& ask = AddRequest(requests, cluster, Upto(span, random), random).ask;
    ask.prompt_tokens = Number(random, 1, prompt_max);
    ask.new_tokens = Number(random, 1, new_tokens_max);
    if (random.Chance(0.5)) ask.content = random.Between(1, 3);
    if (random.Chance(0.3)) ask.temperature = 0;
    ask.deadline = absl::Milliseconds(random.Between(500, 40000));
    while (random.Chance(0.8) && ask.stop_ids < 20) ++ask.stop_ids;
    if (random.Chance(0.15)) {
      ask.cancel_after = Upto(absl::Milliseconds(500), random);
    } else if (random.Chance(0.1)) {
      ask.complete_at = Number(random, 1, 20);
    }
  }
}

// Open-loop arrivals of one kind of request.
void Poisson(Requests& requests, const ClusterOptions& cluster, absl::Duration span,
             Random& random) {
  const double mean_ms = static_cast<double>(random.Between(20, 400));
  const uint32_t prompt = Number(random, 1, 120), answer = Number(random, 1, 30);
  double at_ms = 0;
  while ((at_ms += random.Exponential(mean_ms)) < absl::ToDoubleMilliseconds(span)) {
    const auto at = absl::Microseconds(static_cast<int64_t>(at_ms * 1000));
    Ask& ask = AddRequest(requests, cluster, at, random).ask;
    ask.prompt_tokens = prompt;
    ask.new_tokens = answer;
  }
}

// Many at the same moment, now and then; every other time all ask the same.
void Bursts(Requests& requests, const ClusterOptions& cluster, absl::Duration span,
            Random& random) {
  const uint64_t bursts = random.Between(1, 3);
  for (uint64_t burst = 0; burst < bursts; ++burst) {
    const absl::Duration at = Upto(span, random);
    const uint64_t count = random.Between(5, 25);
    for (uint64_t i = 0; i < count; ++i) {
      Ask& ask = AddRequest(requests, cluster, at, random).ask;
      ask.prompt_tokens = Number(random, 1, 150);
      ask.new_tokens = Number(random, 1, 20);
      ask.deadline = absl::Milliseconds(random.Between(200, 20000));
      if (burst % 2 == 1) ask.content = 4;
    }
  }
}

// Conversations under one system prompt: each turn extends the answer before it.
void Chat(Requests& requests, const ClusterOptions& cluster, absl::Duration span, Random& random) {
  const uint32_t system = Number(random, 10, 100);
  const uint64_t conversations = random.Between(1, 5);
  for (uint64_t c = 0; c < conversations; ++c) {
    const uint32_t turns = Number(random, 1, 5);
    for (uint32_t turn = 0; turn < turns; ++turn) {
      const auto before = static_cast<uint32_t>(requests.size());
      const absl::Duration at =
          turn == 0 ? Upto(span / 2, random) : requests.back().at + Upto(span / 4, random);
      PlannedRequest& request = AddRequest(requests, cluster, at, random);
      request.ask.new_tokens = Number(random, 1, 30);
      if (turn == 0) {
        request.ask.prompt_tokens = system + Number(random, 1, 30);
        request.ask.content = 7;
        request.ask.shared_tokens = system;
      } else {
        request.extends = before;
        request.ask.prompt_tokens = Number(random, 1, 30);
      }
    }
  }
}

// Answers that outgrow the memory together: someone has to give way.
void LongAnswers(Requests& requests, const ClusterOptions& cluster, absl::Duration span,
                 Random& random) {
  const uint64_t count = random.Between(4, 16);
  for (uint64_t i = 0; i < count; ++i) {
    Ask& ask = AddRequest(requests, cluster, Upto(span / 4, random), random).ask;
    ask.prompt_tokens = Number(random, 1, 80);
    ask.new_tokens = Number(random, 100, 500);
    if (i % 4 == 0) ask.new_tokens *= 2;  // longer than a lease
    ask.deadline = absl::Seconds(random.Between(5, 300));
  }
}

// Clients that leave, read slowly, give no time, or know when to stop.
void Impatient(Requests& requests, const ClusterOptions& cluster, absl::Duration span,
               Random& random) {
  const uint64_t count = random.Between(4, 25);
  for (uint64_t i = 0; i < count; ++i) {
    Ask& ask = AddRequest(requests, cluster, Upto(span, random), random).ask;
    ask.prompt_tokens = Number(random, 1, 150);
    ask.new_tokens = Number(random, 1, 120);
    switch (random.Below(6)) {
      case 0:
        ask.deadline =
            random.Chance(0.3) ? absl::ZeroDuration() : Upto(absl::Milliseconds(300), random);
        break;
      case 1:
        ask.cancel_after = Upto(absl::Milliseconds(200), random);
        break;
      case 2:
        ask.cancel_at = Number(random, 1, ask.new_tokens);
        break;
      case 3:
        ask.complete_at = Number(random, 1, ask.new_tokens);
        break;
      case 4:
        ask.reads_every = absl::Milliseconds(random.Between(1, 100));
        break;
      default:
        ask.deadline = absl::Seconds(random.Between(1, 300));
    }
  }
}

// Several answers to one prompt.
void Choices(Requests& requests, const ClusterOptions& cluster, absl::Duration span,
             Random& random) {
  const uint64_t count = random.Between(1, 6);
  for (uint64_t i = 0; i < count; ++i) {
    Ask& ask = AddRequest(requests, cluster, Upto(span, random), random).ask;
    ask.prompt_tokens = Number(random, 1, 150);
    ask.new_tokens = Number(random, 1, 60);
    ask.choices = Number(random, 2, 5);
  }
}

constexpr Workload kWorkloads[] = {
    {"mixed", Mixed},     {"poisson", Poisson},          {"bursts", Bursts},
    {"chat", Chat},       {"long answers", LongAnswers}, {"impatient", Impatient},
    {"choices", Choices},
};

}  // namespace

absl::Span<const Workload> AllWorkloads() { return kWorkloads; }

}  // namespace baton::sim
