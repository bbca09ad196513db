// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Where a writer converts blocks before they are sent: equal pieces of memory behind its pool.
//
// A piece holds at least one block of any layout that the pool's can be converted into.  It is
// taken when a write is posted and given back when the driver has read it for the last time.  A
// link has per_link pieces at most, so that a peer that has stopped holds up no other.
//
// Thread:     the core's.  Ownership: the memory is borrowed.  Cost: constant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "base/ensure.h"
#include "base/ids.h"
#include "kv_transfer/layout.h"

namespace baton::kv {

struct StagingOptions {
  uint64_t piece_bytes = 512u << 10;  // what was just converted is sent out of a near cache
  uint32_t per_link = 4;              // pieces: some are filled while others are sent
};

class StagingArea {
 public:
  using Piece = StrongId<struct StagingPieceTag, uint32_t>;

  // Behind the pool, on a page's boundary.
  static uint64_t Offset(const Layout& pool) { return (pool.pool_bytes() + 4095) / 4096 * 4096; }
  static uint64_t PieceBytes(const StagingOptions& options, const Layout& pool) {
    // f32 is the widest type, but int8 with its scale is where rows are short.
    const uint64_t row = std::max<uint64_t>(uint64_t{pool.head_dim} * 4, pool.head_dim + 4);
    return std::max(options.piece_bytes, pool.block_rows() * row);
  }

  // `memory` begins at the pool.
  StagingArea(const StagingOptions& options, const Layout& pool, absl::Span<uint8_t> memory)
      : memory_(memory), begin_(Offset(pool)), piece_bytes_(PieceBytes(options, pool)) {
    ENSURE(options.per_link > 0);
    const uint64_t bytes = memory.size() < begin_ ? 0 : memory.size() - begin_;
    count_ = static_cast<uint32_t>(bytes / piece_bytes_);
    for (uint32_t i = count_; i > 0; --i) free_.push_back(Piece(i - 1));
  }

  uint64_t piece_bytes() const { return piece_bytes_; }
  uint32_t count() const { return count_; }
  uint32_t taken() const { return count_ - static_cast<uint32_t>(free_.size()); }

  // None: all are in use.
  std::optional<Piece> Take() {
    if (free_.empty()) return std::nullopt;
    const Piece piece = free_.back();
    free_.pop_back();
    return piece;
  }
  void GiveBack(Piece piece) {
    ENSURE(free_.size() < count_ && piece.value() < count_);
    free_.push_back(piece);
  }
  // Counted from the pool's beginning, as a write's source.
  uint64_t offset(Piece piece) const { return begin_ + piece.value() * piece_bytes_; }
  absl::Span<uint8_t> bytes(Piece piece) const {
    return memory_.subspan(offset(piece), piece_bytes_);
  }

 private:
  const absl::Span<uint8_t> memory_;
  const uint64_t begin_, piece_bytes_;
  uint32_t count_ = 0;
  std::vector<Piece> free_;
};

}  // namespace baton::kv
