// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as a safetensors file: decoded, every tensor's ends read.
// DEPS: model_file
#include <cstdint>

#include "engine/hf_safetensors.h"

namespace {
volatile uint64_t sink;
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::engine::TensorTable tensors;
  if (!baton::engine::DecodeSafetensors({data, size}, "fuzz", tensors).ok()) return 0;
  uint64_t sum = 0;
  for (const auto& [name, tensor] : tensors) {
    sum += tensor.view.data[0] + tensor.view.data[tensor.view.size_bytes - 1];
  }
  sink = sum;
  return 0;
}
