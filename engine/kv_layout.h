// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Where the KV bytes of a block are.  The pool is [layer][block][K,V][kv_head][token][head_dim]:
// all bytes of one (layer, block) are contiguous, and neighbouring blocks of a layer merge
// into one run.  This is also the wire format (docs/kv_transfer.md).
//
// K is stored after RoPE.  kInt8 has a scale per row (token and head): x = scale * byte; the
// 16 scales of a head's K or V, as floats, follow its 16 rows.  Rows of tokens not yet
// written hold arbitrary bytes, and so do their scales.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/ids.h"

namespace baton::engine {

// The numbers travel (kv::Layout::element_type).
enum class KvType : uint8_t { kF32 = 0, kF16 = 1, kBf16 = 2, kInt8 = 3 };
inline constexpr KvType kKvTypes[] = {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8};
inline constexpr KvType kDefaultKvType = KvType::kBf16;

// The name in configurations, flags and metrics.
constexpr const char* KvTypeName(KvType type) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "int8"};
  return kNames[static_cast<uint8_t>(type)];
}
constexpr std::optional<KvType> ParseKvType(std::string_view name) {
  for (const KvType type : kKvTypes) {
    if (name == KvTypeName(type)) return type;
  }
  return std::nullopt;
}

// Of one element, and of the scale of one row.
constexpr uint32_t KvTypeBytes(KvType type) {
  if (type == KvType::kInt8) return 1;
  return type == KvType::kF32 ? 4 : 2;
}
constexpr uint32_t KvScaleBytes(KvType type) { return type == KvType::kInt8 ? 4 : 0; }

struct KvLayout {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t blocks = 0;  // in the pool
  KvType type = kDefaultKvType;

  uint64_t row_bytes() const { return uint64_t{head_dim} * KvTypeBytes(type); }
  // K or V of one head in a block, with its scales.
  uint64_t head_bytes() const { return kBlockTokens * (row_bytes() + KvScaleBytes(type)); }
  // Bytes of one (layer, block); SmolLM2-135M in bf16: 2 * 3 * 16 * 64 * 2 = 12 KiB.
  uint64_t block_bytes() const { return uint64_t{2} * kv_heads * head_bytes(); }
  // Within a block: the rows of K (which = 0) or V (1) of a head, and their scales.
  uint64_t rows_offset(uint32_t which, uint32_t head) const {
    return (uint64_t{which} * kv_heads + head) * head_bytes();
  }
  uint64_t scales_offset(uint32_t which, uint32_t head) const {
    return rows_offset(which, head) + kBlockTokens * row_bytes();
  }
  uint64_t pool_bytes() const { return block_bytes() * layers * blocks; }
  uint64_t offset(uint32_t layer, BlockIndex block) const {
    return (uint64_t{layer} * blocks + block) * block_bytes();
  }
  bool operator==(const KvLayout&) const = default;
};

// The pool as the engine sees it; borrowed from whoever allocated it (the transport).
struct KvPool {
  uint8_t* base = nullptr;
  KvLayout layout;
  uint8_t* at(uint32_t layer, BlockIndex block) const { return base + layout.offset(layer, block); }
};

}  // namespace baton::engine
