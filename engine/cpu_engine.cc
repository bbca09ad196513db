// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu_engine.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/status_macros.h"
#include "base/this_thread.h"

namespace baton::engine {

CpuEngine::CpuEngine(std::unique_ptr<Forward> forward, const KvPool& pool,
                     std::vector<TokenId> holes, Bell* bell)
    : forward_(std::move(forward)),
      pool_(pool),
      bell_(bell),
      sampler_(forward_->spec().vocab, std::move(holes)) {
  const ModelSpec& spec = forward_->spec();
  ENSURE(pool.base != nullptr && pool.layout.layers == spec.layers &&
         pool.layout.kv_heads == spec.kv_heads && pool.layout.head_dim == spec.head_dim);
  info_.layers = spec.layers;
  info_.vocab_size = spec.vocab;
  info_.context_max = spec.context;
  thread_ = std::thread([this] {
    NameThisThread("engine");
    Loop();
  });
}

CpuEngine::~CpuEngine() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    work_.NotifyOne();
  }
  thread_.join();
}

void CpuEngine::Submit(Step step) {
  ENSURE(!busy_);
  ENSURE(!step.slices.empty());
  busy_ = true;
  MutexLock lock(&mutex_);
  step_ = std::move(step);
  work_.NotifyOne();
}

void CpuEngine::Poll(std::vector<Event>& events) {
  MutexLock lock(&mutex_);
  for (Event& event : events_) {
    if (std::holds_alternative<StepDone>(event)) busy_ = false;
    events.push_back(std::move(event));
  }
  events_.clear();
}

void CpuEngine::Push(Event event) {
  {
    MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
  }
  if (bell_ != nullptr) bell_->Ring();
}

void CpuEngine::Loop() {
  while (true) {
    Step step;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && !step_.has_value()) work_.Wait(&mutex_);
      if (stopping_) return;
      step = std::move(*step_);
      step_.reset();
    }
    Run(step);
  }
}

void CpuEngine::Run(const Step& step) {
  StepDone done;
  done.step = step.id;
  done.status = Check(step);
  if (!done.status.ok()) {
    Push(std::move(done));
    return;
  }
  slices_.clear();
  for (const Slice& slice : step.slices) {
    slices_.push_back(
        {slice.tokens, slice.position, slice.block_table,
         slice.sample.has_value() ? ForwardSlice::Logits::kLast : ForwardSlice::Logits::kNone});
  }
  std::function<void(uint32_t)> layer_done;
  if (step.layer_events) layer_done = [&](uint32_t layer) { Push(LayerDone{step.id, layer}); };
  forward_->Run(slices_, pool_, layer_done, logits_);

  const size_t vocab = info_.vocab_size;
  size_t row = 0;
  for (const Slice& slice : step.slices) {
    if (!slice.sample.has_value()) continue;
    const auto logits = absl::MakeConstSpan(logits_).subspan(row++ * vocab, vocab);
    done.sampled.push_back({slice.tag, sampler_.Draw(logits, *slice.sample)});
  }
  Push(std::move(done));
}

absl::Status CpuEngine::Check(const Step& step) const {
  for (const Slice& slice : step.slices) {
    if (const absl::Status status = CheckSlice(slice); !status.ok()) {
      return Annotate(status, absl::StrCat("step ", step.id, ", slice ", slice.tag));
    }
  }
  return absl::OkStatus();
}

absl::Status CpuEngine::CheckSlice(const Slice& slice) const {
  if (slice.tokens.empty()) return absl::InvalidArgumentError("no tokens");
  const uint64_t end = uint64_t{slice.position} + slice.tokens.size();
  if (end > info_.context_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("position ", end - 1, " in a context of ", info_.context_max));
  }
  for (const TokenId id : slice.tokens) {
    if (id < 0 || static_cast<uint32_t>(id) >= info_.vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", id, " in a vocabulary of ", info_.vocab_size));
    }
  }
  if (slice.block_table.size() < BlocksFor(end)) {
    return absl::InvalidArgumentError(
        absl::StrCat(slice.block_table.size(), " blocks for ", end, " positions"));
  }
  for (const BlockIndex block : slice.block_table) {
    if (block >= pool_.layout.blocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("block ", block, " in a pool of ", pool_.layout.blocks));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::engine
