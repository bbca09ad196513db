// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The arithmetic of the forward pass for one instruction set, as a table of functions.
//
// Every table computes the same bits: sums run in a fixed order, written down once for all
// (*_inl.h) over vectors of 8 or 16 lanes (simd_*.h) and, for integers, exactly.  So a row's result
// depends neither on the rows beside it nor on the instruction set; the scalar table is the
// definition.
//
// Thread: all functions are pure but for what they write; any thread.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "engine/cpu/packed.h"
#include "engine/kv_layout.h"

namespace baton::engine::cpu {

// output[row][i] (+)= matrix row i . inputs row, for rows [row_begin, row_end) of the inputs
// and groups [group_begin, group_end) of the matrix.
struct MatMul {
  MatrixView matrix;
  Inputs inputs;
  uint32_t row_begin = 0;  // a multiple of token_tile
  uint32_t row_end = 0;    // likewise, or the last
  uint32_t group_begin = 0;
  uint32_t group_end = 0;
  float* output = nullptr;  // of the first row of both
  uint64_t output_stride = 0;
  bool add = false;
};

// Attention of the query heads that share one KV head, over the keys of KV tiles
// [tile_begin, tile_end) of kTileTokens positions.  A tile gives a partial softmax
// (maximum, sum, weighted values); partials are merged in tile order.
inline constexpr uint32_t kTileTokens = 64;
inline constexpr uint32_t kAttentionRowsMax = 64;
inline constexpr uint32_t kHeadDimMax = 256;

struct AttentionState {  // of one query row, before division by `sum`
  float* maximum = nullptr;
  float* sum = nullptr;
  float* values = nullptr;  // (rows, head_dim)
};

struct Attention {
  const float* queries = nullptr;  // scaled; row (token t, head h): t * query_stride + h * head_dim
  uint64_t query_stride = 0;
  uint32_t tokens = 0;
  uint32_t group = 0;     // query heads per KV head; tokens * group <= kAttentionRowsMax
  uint32_t head_dim = 0;  // a multiple of 8
  uint32_t position = 0;  // of token 0; token t sees keys [0, position + t]
  const KvPool* pool = nullptr;
  const BlockIndex* block_table = nullptr;
  uint32_t layer = 0;
  uint32_t kv_head = 0;
  uint32_t tile_begin = 0;
  uint32_t tile_end = 0;
  bool heads_follow = false;  // the next call is for the same tiles of the next head
  float* scratch = nullptr;   // AttentionScratchFloats(head_dim)
  AttentionState state;       // rows = tokens * group, token-major
};

constexpr uint32_t AttentionScratchFloats(uint32_t head_dim) {
  return kTileTokens * head_dim + kAttentionRowsMax * kTileTokens;
}

// For measuring what the machine gives at most (engine/peaks.h).  The first two return the
// multiply-adds of so many rounds; null where a table has none.
struct Probes {
  uint64_t (*int8_macs)(uint64_t rounds) = nullptr;
  uint64_t (*float_macs)(uint64_t rounds) = nullptr;
  void (*read)(const uint8_t* memory, uint64_t bytes) = nullptr;  // 4 KiB past it may be asked for
};

struct Kernels {
  const char* name;
  uint32_t lanes;
  uint32_t token_tile;  // most rows of activations at a time

  void (*matmul_int8)(const MatMul&);                 // REQUIRES: an integer matrix, quants
  void (*matmul_f32)(const MatMul&, float* scratch);  // any matrix, values; MatMulScratchFloats()

  // Writes columns [column, column + count) of a row of `inputs`: as quants if it has them,
  // as floats if it has those.  REQUIRES: column and count are multiples of 32.
  void (*store_inputs)(const float* values, uint32_t row, uint32_t column, uint32_t count,
                       const Inputs& inputs);

  // REQUIRES: count is a multiple of 8.  `output` may be `values`.
  void (*rms_norm)(const float* values, const float* weight, uint32_t count, float epsilon,
                   float* output);
  // gate = silu(gate) * up.  REQUIRES: count is a multiple of 16.
  void (*swiglu)(float* gate, const float* up, uint32_t count);
  // Rotates pairs (i, i + half) of one head and multiplies all by `scale`.
  void (*rope)(float* head, const float* cosine, const float* sine, uint32_t half,
               uint32_t head_dim, float scale);
  // One row.  Finite values: what does not fit the type becomes its largest.  `scale`: only
  // written for kInt8.
  void (*store_kv)(const float* values, uint32_t count, KvType type, uint8_t* target, float* scale);

  void (*attend)(const Attention&);
  // state (+)= partial, in place; merging in tile order gives the bits of one long attend.
  void (*merge)(const AttentionState& state, const AttentionState& partial, uint32_t rows,
                uint32_t head_dim);
  // output row r = values / sum.
  void (*finish)(const AttentionState& state, uint32_t rows, uint32_t head_dim, float* output);

  Probes probes;
};

inline constexpr uint32_t kDequantColumns = 256;
constexpr uint32_t MatMulScratchFloats() { return kDequantColumns * 16; }

const Kernels& ScalarKernels();
const Kernels& Avx2Kernels();    // REQUIRES: the machine has AVX2, FMA and F16C
const Kernels& Avx512Kernels();  // REQUIRES: AVX-512 F, BW, VL, DQ and VNNI besides

}  // namespace baton::engine::cpu
