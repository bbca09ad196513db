// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The forward pass of a model on this machine's CPU.
//
// A Forward holds the packed weights and the compute threads.  Run() computes one batch
// of slices through all layers, writing each layer's K and V into the pool before the
// attention of that layer reads them, and says so layer by layer.
//
// Row-invariant (K8): a row's result depends on its own tokens only, bit for bit, whatever
// else is in the batch, however the prompt is cut, with any number of threads.
//
// Thread:    one caller at a time; Run blocks it and uses it as one of the threads.
// Ownership: packs (copies) the weights: the mapped file may go after Create.
// Fails:     Create: InvalidArgument for shapes or types it cannot run, Unavailable for an
//            instruction set the machine lacks.  Run cannot fail.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "engine/kv_layout.h"
#include "engine/model_spec.h"

namespace baton::engine {

enum class Isa { kAuto, kScalar, kAvx2, kAvx512 };
enum class Activations { kInt8, kF32 };  // f32: the definition, for tests; slow

struct ForwardOptions {
  uint32_t threads = 1;  // including the caller
  Isa isa = Isa::kAuto;
  Activations activations = Activations::kInt8;
  std::function<void(double)> progress;  // [0, 1] while packing; may be empty
};

// What Create makes of the matrices, by type in the file: "Q4_1 as W4 (210), Q8_0 as W8 (1)".
std::string DescribeWeights(const ModelWeights& weights);

struct ForwardSlice {
  absl::Span<const TokenId> tokens;          // each < vocab
  uint32_t position = 0;                     // of tokens[0]
  absl::Span<const BlockIndex> block_table;  // covers position + tokens.size()
  // Rows whose logits are wanted: all, the last, or none.
  enum class Logits { kNone, kLast, kAll } logits = Logits::kNone;
};

class Forward {
 public:
  static absl::StatusOr<std::unique_ptr<Forward>> Create(const ModelWeights& weights,
                                                         const ForwardOptions& options);
  virtual ~Forward() = default;

  virtual const ModelSpec& spec() const = 0;
  virtual std::string isa_name() const = 0;   // "avx2", "avx512-vnni", "scalar"
  virtual uint64_t weight_bytes() const = 0;  // packed; read once per decode step

  // `logits`: (wanted rows, vocab), in slice order, resized.  `layer_done(l)` is called on
  // the caller's thread as soon as layer l's KV of every slice is in the pool; may be empty.
  virtual void Run(absl::Span<const ForwardSlice> slices, const KvPool& pool,
                   const std::function<void(uint32_t)>& layer_done, std::vector<float>& logits) = 0;
};

}  // namespace baton::engine
