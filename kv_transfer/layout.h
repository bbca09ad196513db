// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How KV bytes lie in a pool: the descriptor that peers compare (K6) and convert by.  Nothing
// outside layout.* and conversion.*, and the engine's own kv_layout.h, assumes that there are K
// and V heads.
//
// A pool is [layer][block]; a block of the kind `gqa` is rows of head_dim elements on three axes:
// K or V, head, token.  Behind the rows of the innermost axis lie their scales, if any.
//
//              head-major                    token-major
//   kOuter     [K,V][head][token]            [K,V][token][head]
//   kInner     [head][token][K,V]            [token][head][K,V]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace baton::kv {

inline constexpr uint8_t kLayoutVersion = 1;

// Only gqa can be described; a peer that has another is refused by its name.
enum class LayoutKind : uint8_t { kGqa = 1, kMla = 2, kState = 3 };
enum class ElementType : uint8_t { kF32 = 0, kF16 = 1, kBf16 = 2, kInt8 = 3 };  // as engine::KvType
enum class Scales : uint8_t { kNone = 0, kPerRow = 1 };  // x = scale * element; a scale is an f32
enum class KvOrder : uint8_t { kOuter = 0, kInner = 1 };
enum class RowOrder : uint8_t { kHeadMajor = 0, kTokenMajor = 1 };

constexpr uint32_t ElementBytes(ElementType type) {
  if (type == ElementType::kInt8) return 1;
  return type == ElementType::kF32 ? 4 : 2;
}
// What every layout of this version has: quantised rows, and only they, are scaled.
constexpr Scales ScalesOf(ElementType type) {
  return type == ElementType::kInt8 ? Scales::kPerRow : Scales::kNone;
}

struct Layout {
  uint8_t version = kLayoutVersion;
  LayoutKind kind = LayoutKind::kGqa;
  // What this pool holds, and how many of the model's come before and after it in others (PP, TP).
  uint32_t layers = 0, layers_before = 0, layers_after = 0;
  uint32_t kv_heads = 0, heads_before = 0, heads_after = 0;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 0;
  ElementType element_type = ElementType::kBf16;
  Scales scales = Scales::kNone;
  KvOrder kv_order = KvOrder::kOuter;
  RowOrder row_order = RowOrder::kHeadMajor;
  uint32_t blocks = 0;  // in the pool; peers may differ in this one

  uint64_t row_bytes() const { return uint64_t{head_dim} * ElementBytes(element_type); }
  uint32_t scale_bytes() const { return scales == Scales::kPerRow ? 4 : 0; }
  uint64_t block_rows() const { return uint64_t{2} * kv_heads * block_tokens; }
  // Bytes of one (layer, block), contiguous in the pool and on the wire.
  uint64_t block_bytes() const { return block_rows() * (row_bytes() + scale_bytes()); }
  uint64_t pool_bytes() const { return block_bytes() * layers * blocks; }
  uint64_t offset(uint32_t layer, uint32_t block) const {
    return (uint64_t{layer} * blocks + block) * block_bytes();
  }
  bool operator==(const Layout&) const = default;
};

// Why two layouts, or two processes, do not go together.
struct Refusal {
  std::string field;    // "protocol", "role", "model", "layout.kv_heads", "numeric class", …
  std::string message;  // both values
};

// What no layout may have: zeros, unknown numbers, sizes beyond all reason.  None: it is sound,
// and no size computed of it overflows.
std::optional<Refusal> CheckLayout(const Layout& layout);
// The first field that differs, the number of blocks aside.
std::optional<Refusal> CompareLayouts(const Layout& mine, const Layout& theirs);

const char* NameOf(ElementType type);

void Put(ByteWriter& out, const Layout& layout);
// Of another version or kind only those two fields are read.  Leaves `in` not ok() if the bytes
// are no descriptor; what they say is CheckLayout's to judge.
Layout GetLayout(ByteReader& in);

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
