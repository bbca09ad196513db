// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How KV bytes lie in a pool, as peers compare it (K6).  Nothing outside this file and the
// engine's own kv_layout.h assumes that there are K and V heads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace baton::kv {

enum class LayoutKind : uint8_t { kGqa = 1 };  // [layer][block][K,V][kv_head][token][head_dim]

struct Layout {
  LayoutKind kind = LayoutKind::kGqa;
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 0;
  uint8_t element_type = 0;  // engine::KvType's number
  uint32_t element_bytes = 0;
  uint32_t scale_bytes = 0;  // per token and head, behind the elements of a head's 16 tokens
  uint32_t blocks = 0;       // in the pool; peers may differ in this one

  // Bytes of one (layer, block), contiguous in the pool and on the wire.
  uint64_t block_bytes() const {
    return uint64_t{2} * kv_heads * block_tokens *
           (uint64_t{head_dim} * element_bytes + scale_bytes);
  }
  uint64_t pool_bytes() const { return block_bytes() * layers * blocks; }
  uint64_t offset(uint32_t layer, uint32_t block) const {
    return (uint64_t{layer} * blocks + block) * block_bytes();
  }
  bool operator==(const Layout&) const = default;
};

// One contiguous piece of a write: the same bytes at an offset of either pool.
struct Copy {
  uint64_t source_offset = 0;
  uint64_t target_offset = 0;
  uint64_t size_bytes = 0;
  bool operator==(const Copy&) const = default;
};

// Appends a copy, or lengthens the last one where both sides go on without a gap.
inline void AppendCopy(std::vector<Copy>& copies, const Copy& next) {
  if (!copies.empty()) {
    Copy& last = copies.back();
    if (last.source_offset + last.size_bytes == next.source_offset &&
        last.target_offset + last.size_bytes == next.target_offset) {
      last.size_bytes += next.size_bytes;
      return;
    }
  }
  copies.push_back(next);
}

}  // namespace baton::kv
