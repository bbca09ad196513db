// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/cluster.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "sim/process_checker.h"

namespace baton::sim {
namespace {

constexpr uint64_t kFingerprint = 1;
constexpr absl::Duration kWatch = absl::Milliseconds(20);

engine::KvLayout LayoutOf(const ClusterOptions& options, uint32_t blocks) {
  return {.layers = options.layers,
          .kv_heads = 1,
          .head_dim = 4,
          .blocks = blocks,
          .type = options.kv_scales ? engine::KvType::kInt8 : engine::kDefaultKvType};
}

kv::Layout WireLayout(const engine::KvLayout& layout) {
  return {.layers = layout.layers,
          .kv_heads = layout.kv_heads,
          .head_dim = layout.head_dim,
          .block_tokens = kBlockTokens,
          .element_type = static_cast<kv::ElementType>(layout.type),
          .scales = kv::ScalesOf(static_cast<kv::ElementType>(layout.type)),
          .blocks = layout.blocks};
}

// Pieces of two blocks, two of them a link: pushes are split, and wait for pieces.
void AllowConversion(SimProcessConfig& config, uint32_t owners) {
  config.owner.link.pair.allow_conversion = config.writer.link.pair.allow_conversion = true;
  config.writer.staging = {.piece_bytes = 2 * config.layout.block_bytes(), .per_link = 2};
  config.owners = owners;
}

SimNetOptions NetOptions(const ClusterOptions& options) {
  SimNetOptions net = options.links;
  net.clocks = options.clocks;
  return net;
}

uint32_t ContextTokens(const ClusterOptions& options) {
  return std::min(options.engine.context_max, options.decode_blocks * kBlockTokens);
}

}  // namespace

ClusterOptions::ClusterOptions() {
  engine.context_max = 1024;
  router.colocate_below_tokens = 33;  // prompts of three blocks are long already
  prefill_options.chunk_tokens = 32;
  prefill_options.model_fingerprint = kFingerprint;
  decode_options.batch_tokens = 48;
  decode_options.model_fingerprint = kFingerprint;
}

Cluster::Cluster(const ClusterOptions& options)
    : options_(options),
      random_(options.seed),
      log_(queue_),
      checker_(log_, options.engine, LayoutOf(options, options.decode_blocks),
               ContextTokens(options)),
      checkers_(log_),
      fabric_(random_, queue_, NetOptions(options)),
      net_(queue_, random_.Next(), options.calls) {
  World world{queue_, random_, fabric_, net_, log_, checkers_};
  fabric_.Watch(checkers_);
  if (options_.converts) checkers_.AllowConversion();
  checkers_.SetLimits({.decode = options_.decode_options,
                       .prefill = options_.prefill_options,
                       .router = options_.router});
  std::vector<router::WorkerSpec> specs;
  for (uint32_t i = 0; i < options_.prefill + options_.decode; ++i) {
    const bool prefill = i < options_.prefill;
    WorkerSetup setup;
    setup.role = prefill ? Role::kPrefill : Role::kDecode;
    setup.name =
        prefill ? absl::StrCat("prefill-", i) : absl::StrCat("decode-", i - options_.prefill);
    setup.index = router::WorkerIndex(i);
    setup.layout = LayoutOf(options_, prefill ? options_.prefill_blocks : options_.decode_blocks);
    setup.engine = options_.engine;
    setup.engine.rows_paired = prefill && options_.converts;
    setup.prefill = options_.prefill_options;
    setup.decode = options_.decode_options;
    SimProcessConfig config;
    config.worker = setup.name;
    config.role = setup.role;
    config.layout = WireLayout(setup.layout);
    config.model_fingerprint = kFingerprint;
    config.writer.check_one_in = options_.check_one_in;
    config.writer.link.stuck_after = kv::StuckAfter(options_.router.progress_timeout);
    if (options_.several_hosts) config.host = setup.name;
    if (options_.converts) AllowConversion(config, options_.decode);
    if (setup.engine.rows_paired) config.layout.kv_order = kv::KvOrder::kInner;
    setup.process = fabric_.Add(config);
    workers_.push_back(std::make_unique<WorkerProcess>(setup, world));
    specs.push_back({setup.name, setup.role});
  }
  for (uint32_t p = 0; p < options_.prefill; ++p) {
    for (uint32_t d = 0; d < options_.decode; ++d) {
      fabric_.Pair(prefill(p).process(), decode(d).process(),
                   {.path = options_.path, .close_fences = options_.close_fences});
    }
  }
  for (uint32_t i = 0; i < options_.frontends; ++i) {
    frontends_.push_back(std::make_unique<FrontendProcess>(
        FrontendSetup{absl::StrCat("frontend-", i), i, options_.router, options_.clocks, specs},
        world, checker_));
  }
  Watch();
}

Cluster::~Cluster() = default;

void Cluster::Watch() {
  for (const auto& worker : workers_) {
    CheckBounds(*worker, options_.prefill_options, options_.decode_options, log_);
  }
  for (const auto& frontend : frontends_) CheckBounds(*frontend, options_.router, log_);
  while (first_open_ < replies_.size() && replies_[first_open_].done()) ++first_open_;
  for (size_t i = first_open_; i < replies_.size(); ++i) {
    const FrontendProcess& frontend = *frontends_[replies_[i].frontend];
    if (frontend.alive()) checker_.CheckDeadline(replies_[i], frontend.LocalTime());
  }
  queue_.After(kWatch, [this] { Watch(); });
}

bool Cluster::Together() const {
  size_t prefill = 0, decode = 0;
  for (const auto& worker : workers_) {
    if (worker->member()) ++(worker->role() == Role::kPrefill ? prefill : decode);
  }
  for (const auto& frontend : frontends_) {
    if (!frontend->alive()) continue;
    const router::Snapshot seen = frontend->snapshot();
    const size_t ready = static_cast<size_t>(router::PeerMetric::kReady);
    if (seen.prefill_peers[ready] != prefill || seen.decode_peers[ready] != decode) return false;
  }
  for (const auto& worker : workers_) {
    if (!worker->member() || worker->role() != Role::kDecode) continue;
    if (!worker->alive() || worker->Status().links.size() != prefill) return false;
  }
  return true;
}

bool Cluster::Ready() {
  if (!Until([this] { return Together(); }, absl::Seconds(20))) return false;
  Run(2 * kHeartbeatInterval);  // links reach the front ends
  return true;
}

std::string Cluster::Owned() const {
  std::string owned;
  for (const auto& worker : workers_) absl::StrAppend(&owned, OwnedBy(*worker));
  for (const auto& frontend : frontends_) absl::StrAppend(&owned, OwnedBy(*frontend));
  const size_t heartbeats = workers_.size() * frontends_.size();
  if (net_.open_streams() > heartbeats) absl::StrAppend(&owned, "streams are open; ");
  if (fabric_.writes_out() > 0) absl::StrAppend(&owned, "writes are out; ");
  return owned;
}

bool Cluster::Settle() {
  const auto over = [this] {
    return std::all_of(replies_.begin(), replies_.end(), [](const Reply& r) { return r.done(); });
  };
  if (!Until(over, LivenessChecker::kRequestMax)) {
    for (const Reply& reply : replies_) {
      if (!reply.done()) checkers_.liveness().Unanswered(reply.client.value());
    }
    return false;
  }
  if (!Until([this] { return Owned().empty(); }, LivenessChecker::kOwnedMax)) {
    checkers_.liveness().Owned(Owned());
    return false;
  }
  for (const auto& worker : workers_) {
    if (!worker->alive()) continue;
    const SimFabric::Index process = worker->process();
    if (worker->role() == Role::kDecode) {
      checkers_.CheckIdle(fabric_.life_id(process), fabric_.owner_core(process));
    } else {
      checkers_.CheckIdle(fabric_.life_id(process), fabric_.writer_core(process));
    }
  }
  return true;
}

}  // namespace baton::sim
