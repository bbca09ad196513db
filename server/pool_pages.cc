// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/pool_pages.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/this_thread.h"

namespace baton::server {
namespace {

// Linux 5.14 and 6.1; headers may be older than the system.  An older system refuses.
constexpr int kPopulateWrite = 23;
constexpr int kCollapse = 25;

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPieceBytes = uint64_t{512} << 10;  // touched at once
constexpr uint64_t kAheadBytes = uint64_t{16} << 20;
constexpr absl::Duration kQuiet = absl::Seconds(1);

}  // namespace

std::vector<uint64_t> FilledHugePages(uint64_t address, const engine::KvLayout& layout,
                                      uint32_t from, uint32_t to) {
  const uint64_t layer_bytes = layout.block_bytes() * layout.blocks;
  // Whether the bytes of a huge page are among the first `blocks` blocks of their layers.
  const auto full = [&](uint64_t begin, uint32_t blocks) {
    const uint64_t end = begin + kHugePageBytes;
    for (uint64_t layer = begin / layer_bytes; layer * layer_bytes < end; ++layer) {
      const uint64_t last = std::min(end, (layer + 1) * layer_bytes);
      if (last > layer * layer_bytes + layout.block_bytes() * blocks) return false;
    }
    return true;
  };
  std::vector<uint64_t> pages;
  const uint64_t first = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
  for (uint64_t at = first; at + kHugePageBytes <= layout.pool_bytes(); at += kHugePageBytes) {
    if (full(at, to) && !full(at, from)) pages.push_back(at);
  }
  return pages;
}

bool PoolPages::Touch(uint32_t blocks) {
  if (touched_ == target_) {
    target_ = std::max(touched_, std::min(blocks, pool_.layout.blocks));
    if (touched_ == target_) return false;
  }
  const uint64_t wanted = (target_ - touched_) * pool_.layout.block_bytes();
  const uint64_t piece = std::min(kPieceBytes, wanted - done_bytes_);
  const auto begin = reinterpret_cast<uintptr_t>(pool_.at(layer_, touched_)) + done_bytes_;
  const uintptr_t page = begin / kPageBytes * kPageBytes;
  (void)madvise(reinterpret_cast<void*>(page), begin + piece - page, kPopulateWrite);
  done_bytes_ += piece;
  if (done_bytes_ == wanted) NextLayer();
  return true;
}

void PoolPages::NextLayer() {
  done_bytes_ = 0;
  if (++layer_ < pool_.layout.layers) return;
  layer_ = 0;
  const auto address = reinterpret_cast<uintptr_t>(pool_.base);
  for (const uint64_t at : FilledHugePages(address, pool_.layout, touched_, target_)) {
    full_.push_back(at);
  }
  touched_ = target_;
}

bool PoolPages::Collapse() {
  if (full_.empty()) return false;
  uint8_t* page = pool_.base + full_.front();
  full_.pop_front();
  // Where it is refused, the system may still do it when it has the time.
  if (madvise(page, kHugePageBytes, kCollapse) != 0) {
    (void)madvise(page, kHugePageBytes, MADV_HUGEPAGE);
  }
  return true;
}

PoolPagesThread::PoolPagesThread(const engine::KvPool& pool)
    : pages_(pool),
      ahead_blocks_(static_cast<uint32_t>(
          kAheadBytes / (pool.layout.block_bytes() * pool.layout.layers) + 1)),
      thread_([this] {
        NameThisThread("pool-pages");
        Run();
      }) {}

PoolPagesThread::~PoolPagesThread() {
  stopping_ = true;
  bell_.Ring();
  thread_.join();
}

void PoolPagesThread::Note(const engine::BlockCounts& counts) {
  const uint32_t held = counts.total() - counts.free;
  const bool busy = counts.used + counts.reserved > 0;
  const bool idle_now = busy_.exchange(busy) && !busy;
  const uint32_t wanted = held == 0 ? 0 : held + ahead_blocks_;
  const bool more = wanted > wanted_;
  if (more) wanted_ = wanted;
  if (more || idle_now) bell_.Ring();
}

void PoolPagesThread::Run() {
  while (!stopping_) {
    if (pages_.Touch(wanted_)) continue;
    if (!busy_ && pages_.Collapse()) continue;
    bell_.Wait(kQuiet);
  }
}

}  // namespace baton::server
