// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Where the KV bytes of a block are.  The pool is [layer][block][K,V][kv_head][token][head_dim]:
// all bytes of one (layer, block) are contiguous, and neighbouring blocks of a layer merge
// into one run.  This is also the wire format (docs/kv_transfer.md).
//
// K is stored after RoPE.  Rows of tokens not yet written hold arbitrary bytes.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace baton::engine {

enum class KvType : uint8_t { kF32 = 0, kF16 = 1, kBf16 = 2 };

constexpr uint32_t KvTypeBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

struct KvLayout {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t blocks = 0;  // in the pool
  KvType type = KvType::kF16;

  // Bytes of one (layer, block); SmolLM2-135M in f16: 2 * 3 * 16 * 64 * 2 = 12 KiB.
  uint64_t block_bytes() const {
    return uint64_t{2} * kv_heads * kBlockTokens * head_dim * KvTypeBytes(type);
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
