// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Reads GGUF's quantised tensor rows into one common form: 32 small integers with a scale
// and a minimum.
//
// Every GGUF type that Baton runs is exact in this form; the packer rearranges it for the
// kernels.  Pure functions; a malformed row cannot be told from a good one (all bit
// patterns mean something), so nothing here fails.
#pragma once

#include <cstdint>

#include "engine/model_spec.h"

namespace baton::engine::cpu {

inline constexpr uint32_t kBlockColumns = 32;

// weight[i] = scale[i / 16] * quant[i] + minimum.
struct QuantBlock {
  int8_t quant[kBlockColumns];
  float scale[2];
  float minimum;
};

// Whether the type is one of GGUF's quantised types known here.
bool IsQuantized(TensorType type);

// Columns come in multiples of this (32, 256 or 1), which take this many bytes.
uint32_t SourceBlockColumns(TensorType type);
uint32_t SourceBlockBytes(TensorType type);

// REQUIRES: IsQuantized(type); `columns` is a multiple of SourceBlockColumns(type).
void ReadQuantRow(TensorType type, const uint8_t* row, uint32_t columns, QuantBlock* blocks);

// A row of kF32, kF16 or kBf16.
void ReadFloatRow(TensorType type, const uint8_t* row, uint32_t columns, float* values);

}  // namespace baton::engine::cpu
