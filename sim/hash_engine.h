// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// An Engine in virtual time whose next token is a hash of every KV byte it reads.
//
// It writes real bytes into the pool: layer l's row of a position depends on the token, the
// position and all rows of layer l - 1 up to there, as attention does; the token drawn is a
// hash of all rows of the last layer, the output index and the sampling parameters.  So a lost,
// stale or misplaced block changes the answer, in whatever process it is read, while batching and
// chunking do not (K8).  A layer's bytes appear at the moment of its LayerDone, not before.
//
// Thread:    one; virtual time comes from `clock`, which the simulator moves.
// Ownership: pool and clock are borrowed and outlive the engine.
// Cost:      a slice reads its whole prefix once per layer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/request.h"
#include "engine/engine.h"
#include "engine/kv_layout.h"

namespace baton::sim {

struct HashEngineOptions {
  uint32_t vocab_size = 1000;
  uint64_t weights = 1;  // others draw other tokens
  // In the pool K's and V's row of a token lie side by side (kv::KvOrder::kInner); the tokens drawn
  // are the same.
  bool rows_paired = false;
  uint32_t context_max = 8192;
  // A step takes step + token * (all its tokens); each layer has an equal share of it, and
  // so has the head, after the last layer.
  absl::Duration step = absl::Milliseconds(2);
  absl::Duration token = absl::Microseconds(100);
};

class HashEngine final : public engine::Engine {
 public:
  HashEngine(const HashEngineOptions& options, const engine::KvPool& pool, const Clock& clock);

  const engine::EngineInfo& info() const override { return info_; }
  void Submit(engine::Step step) override;
  void Poll(std::vector<engine::Event>& events) override;

  // When the next event is due; InfiniteFuture when no step runs.
  absl::Time NextEvent() const;
  uint64_t steps() const { return steps_; }

 private:
  absl::Time LayerTime(uint32_t layer) const;
  void RunLayer(uint32_t layer);
  std::vector<engine::Sampled> Sample() const;

  const HashEngineOptions options_;
  const engine::KvPool pool_;
  const Clock& clock_;
  engine::EngineInfo info_;
  std::optional<engine::Step> step_;
  std::vector<std::vector<uint64_t>> inputs_;  // (slice, token): what the next layer starts from
  absl::Time started_;
  absl::Duration duration_;
  uint32_t layers_done_ = 0;
  uint64_t steps_ = 0;
  uint64_t last_step_ = 0;
};

// The tokens that a HashEngine draws behind sequence.outputs until one of stop_ids (included),
// remaining_tokens or the context's end, by the same arithmetic but without any pool.
std::vector<OutputToken> Oracle(const Sequence& sequence, const HashEngineOptions& options,
                                const engine::KvLayout& layout);

}  // namespace baton::sim
