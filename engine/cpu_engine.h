// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The Engine over a Forward: runs steps on a thread of its own and draws the tokens.
//
// That thread is also the first of the Forward's compute threads.  A step runs to its end
// once submitted; destruction waits for it.
//
// A step that names tokens, positions or blocks that do not exist computes nothing and is
// answered by StepDone with InvalidArgument: ids come from other processes.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/bell.h"
#include "base/mutex.h"
#include "engine/engine.h"
#include "engine/forward.h"
#include "engine/kv_layout.h"
#include "engine/sampler.h"

namespace baton::engine {

class CpuEngine final : public Engine {
 public:
  // `pool` and `bell` (may be null) are borrowed and outlive the engine; `holes` are ids
  // that are never drawn (VocabularyHoles).
  // REQUIRES: the pool's layers, KV heads and head size are the model's.
  CpuEngine(std::unique_ptr<Forward> forward, const KvPool& pool, std::vector<TokenId> holes,
            Bell* bell);
  ~CpuEngine() override;
  CpuEngine(const CpuEngine&) = delete;
  CpuEngine& operator=(const CpuEngine&) = delete;

  const EngineInfo& info() const override { return info_; }
  void Submit(Step step) override;
  void Poll(std::vector<Event>& events) override;

 private:
  void Loop();
  void Run(const Step& step);
  absl::Status Check(const Step& step) const;
  absl::Status CheckSlice(const Slice& slice) const;
  void Push(Event event);

  const std::unique_ptr<Forward> forward_;
  const KvPool pool_;
  Bell* const bell_;
  EngineInfo info_;
  bool busy_ = false;  // the owner's: submitted and not yet polled

  // The engine thread's.
  Sampler sampler_;
  std::vector<ForwardSlice> slices_;
  std::vector<float> logits_;

  Mutex mutex_;
  CondVar work_;  // stopping_ or step_ was set
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Step> step_ ABSL_GUARDED_BY(mutex_);
  std::vector<Event> events_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton::engine
