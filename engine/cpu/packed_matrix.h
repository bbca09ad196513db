// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Turns the file's tensors into the packed form of packed.h, and back one row at a time.
//
// Packing keeps every weight's value: quants and scales are moved, never rounded.  Two
// exceptions: F32 matrices become bf16, and a Q4_0 scale above 8190, which no quantizer
// makes, has a minimum that does not fit a half.
#pragma once

#include <cstdint>
#include <string>

#include "engine/cpu/packed.h"
#include "engine/model_spec.h"

namespace baton::engine::cpu {

// Which source row a packed row is.  GGUF's "llama" q and k hold rotated pairs side by side;
// kernels want the pair's members rope_dims / 2 apart.
struct RowOrder {
  uint32_t head_dim = 0;  // 0: as they are
  uint32_t rope_dims = 0;
  uint32_t Source(uint32_t row) const;
};

// What a tensor of this type becomes: "W4", "W8 with minima", "W16 (bf16, rounded)".
std::string PackedName(TensorType type);

// The packed form of a tensor, without memory (data = nullptr).
// REQUIRES: columns are a multiple of 32 and of SourceBlockColumns(type).
MatrixView PlanMatrix(const TensorView& tensor, uint32_t lanes);

// Fills one group; `target` is the matrix's memory.  Groups may be packed in parallel.
void PackGroup(const TensorView& tensor, const MatrixView& matrix, const RowOrder& order,
               uint32_t group, uint8_t* target);

// The row as floats: the values that kernels multiply with.
void DequantizeRow(const MatrixView& matrix, uint32_t row, float* values);

}  // namespace baton::engine::cpu
