// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Runs model steps on some device: submit a step, poll for what became of it.
//
// A step is a set of slices, each some consecutive tokens of one sequence; a decoding
// sequence contributes one token, a prompt a chunk.  The engine writes the slice's KV
// into the blocks of its table and reads all earlier positions from there.  It knows
// nothing of sequences' lives, block ownership or networks: the worker does.
//
// Results do not depend on what else is in the step, on the cut into chunks or on the
// number of threads (K8).
//
// Thread:     one owner thread makes every call; the engine computes on its own threads
//             and rings the owner's bell when there is something to poll.
// Ownership:  a Step is moved in; the KV pool is borrowed and outlives the engine.  Blocks
//             named by a step must not be freed or written by others until its StepDone.
// Cost:       Submit and Poll never block.
//
// Implementations: CpuEngine (this folder), sim::HashEngine (sim/).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "base/request.h"

namespace baton::engine {

// Draw the token that follows the slice's last position.
struct SampleSpec {
  SamplingParams params;
  uint32_t output_index = 0;     // of the token to draw, from 0 in the whole answer
  uint32_t prompt_tokens = 0;    // history[0, prompt_tokens) is prompt, the rest outputs
  std::vector<TokenId> history;  // all tokens so far; may be empty unless penalties need it
  std::vector<TokenId> banned;   // never drawn (stop ids before min_tokens)
};

struct Slice {
  uint64_t tag = 0;             // the owner's name for it; comes back in Sampled
  std::vector<TokenId> tokens;  // not empty
  uint32_t position = 0;        // of tokens[0] in its sequence
  std::vector<BlockIndex>
      block_table;  // block i holds positions [16 i, 16 i + 16); covers the slice's end
  std::optional<SampleSpec> sample;
};

struct Step {
  uint64_t id = 0;            // the owner's; strictly increasing
  std::vector<Slice> slices;  // not empty; no two slices write the same block
  bool layer_events = false;  // report LayerDone
};

// The KV of `layer` of every slice of the step is in the pool.  In layer order.
struct LayerDone {
  uint64_t step = 0;
  uint32_t layer = 0;
};
struct Sampled {
  uint64_t tag = 0;
  OutputToken token;
};
// The step is over; its blocks may be used freely.  `sampled` in slice order.
struct StepDone {
  uint64_t step = 0;
  absl::Status status;
  std::vector<Sampled> sampled;
};
using Event = std::variant<LayerDone, StepDone>;

struct EngineInfo {
  uint32_t layers = 0;
  uint32_t vocab_size = 0;
  uint32_t context_max = 0;  // positions the model was made for
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const EngineInfo& info() const = 0;

  // REQUIRES: the previous step's StepDone was polled.
  virtual void Submit(Step step) = 0;

  // Appends what happened since the last call, oldest first.  LayerDone{l} comes as soon
  // as layer l is computed, while later layers still run.
  virtual void Poll(std::vector<Event>& events) = 0;
};

}  // namespace baton::engine
