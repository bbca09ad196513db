// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/topologies.h"

namespace baton::sim {
namespace {

uint32_t Number(Random& random, uint64_t low, uint64_t high) {
  return static_cast<uint32_t>(random.Between(low, high));
}

// ── how many of each ──────────────────────────────────────────────────────────────────

void Small(ClusterOptions& o, Random& random) {
  o.frontends = Number(random, 1, 2);
  o.prefill = Number(random, 1, 3);
  o.decode = Number(random, 1, 3);
}
void Pair(ClusterOptions&, Random&) {}
void Wide(ClusterOptions& o, Random& random) {
  o.frontends = Number(random, 1, 4);
  o.prefill = Number(random, 1, 8);
  o.decode = Number(random, 1, 8);
}

// ── ways on which KV travels ──────────────────────────────────────────────────────────

void SharedMemory(ClusterOptions&, Random&) {}
void Rdma(ClusterOptions& o, Random&) { o.close_fences = o.several_hosts = true; }
void Tcp(ClusterOptions& o, Random&) {
  o.path = 'B';
  o.several_hosts = true;
}

// ── memory ────────────────────────────────────────────────────────────────────────────

void Ample(ClusterOptions& o, Random& random) {
  o.prefill_blocks = Number(random, 40, 90);
  o.decode_blocks = Number(random, 60, 200);
}
void Scarce(ClusterOptions& o, Random& random) {
  o.prefill_blocks = Number(random, 20, 60);
  o.decode_blocks = Number(random, 24, 90);
}

// Hardly any: most must wait, much must be dropped and computed again.
void Tiny(ClusterOptions& o, Random& random) {
  o.prefill_blocks = Number(random, 4, 16);
  o.decode_blocks = Number(random, 4, 20);
}

// ── networks and clocks ───────────────────────────────────────────────────────────────

void Near(ClusterOptions&, Random&) {}
void Far(ClusterOptions& o, Random& random) {
  o.links.delay_max = absl::Microseconds(random.Between(500, 20000));
  o.links.write_jitter = absl::Microseconds(random.Between(10, 20000));
  o.calls.delay_max = absl::Microseconds(random.Between(500, 20000));
}
void Late(ClusterOptions& o, Random& random) {
  o.links.late_chance = 0.001 * Number(random, 1, 100);
}
void Skewed(ClusterOptions& o, Random& random) {
  o.clocks.offset_max = absl::Seconds(random.Between(1, 100000));
  o.clocks.drift_ppm_max = Number(random, 0, 100);
}

// ── limits ────────────────────────────────────────────────────────────────────────────

void Limits(ClusterOptions& o, Random& random) {
  o.layers = Number(random, 1, 3);
  o.kv_scales = o.layers == 2;
  o.engine.step = absl::Microseconds(random.Between(500, 5000));
  o.engine.token = absl::Microseconds(random.Between(10, 400));
  o.router.colocate_below_tokens = Number(random, 1, 100);
  o.router.attempts_max = Number(random, 1, 5);
  o.router.resume = random.Chance(0.9);
  o.router.queue_requests = Number(random, 4, 40);
  o.router.progress_timeout = absl::Milliseconds(random.Between(1500, 6000));
  o.router.reserving_max = Number(random, 1, 16);
  o.prefill_options.chunk_tokens = 16 * Number(random, 1, 6);
  o.prefill_options.pipelining = random.Chance(0.8);
  o.prefill_options.sequences_max = Number(random, 1, 8);
  o.prefill_options.queue_requests = Number(random, 2, 40);
  o.prefill_options.drain_max = absl::Milliseconds(random.Between(10, 3000));
  o.decode_options.batch_tokens = Number(random, 8, 80);
  o.decode_options.sequences_max = Number(random, 2, 16);
  o.decode_options.queue_requests = Number(random, 2, 40);
  o.decode_options.recompute_here_max = Number(random, 0, 200);
  o.decode_options.drain_max = absl::Milliseconds(random.Between(10, 3000));
  o.prefill_options.prefix_cache.enabled = random.Chance(0.9);
  o.decode_options.prefix_cache.enabled = random.Chance(0.9);
}

using Entry = void (*)(ClusterOptions&, Random&);

template <size_t kCount>
void TakeOne(const Entry (&entries)[kCount], ClusterOptions& options, Random& random) {
  entries[random.Below(kCount)](options, random);
}

constexpr Entry kShapes[] = {Small, Small, Pair, Wide};
constexpr Entry kWays[] = {SharedMemory, Rdma, Tcp};
constexpr Entry kMemory[] = {Ample, Ample, Scarce, Scarce, Tiny};
constexpr Entry kNetworks[] = {Near, Near, Late, Far};
constexpr Entry kClocks[] = {Near, Skewed};

}  // namespace

ClusterOptions DrawCluster(uint64_t seed, Random& random) {
  ClusterOptions options;
  options.seed = seed;
  options.converts = seed % 4 == 3;
  Limits(options, random);
  TakeOne(kShapes, options, random);
  TakeOne(kWays, options, random);
  TakeOne(kMemory, options, random);
  TakeOne(kNetworks, options, random);
  TakeOne(kClocks, options, random);
  return options;
}

}  // namespace baton::sim
