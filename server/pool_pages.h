// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Pages of a KV pool: touched a little ahead of use, and huge once they are full.
//
// A pool starts untouched.  The first write to a page makes the system find and clear memory,
// in the time of whoever writes: a step, or a peer's push.  So the pages of the blocks that
// will be taken next are touched beforehand, kAheadBytes of them.  Blocks are taken from the
// low end of an unused pool, so a count of blocks says which.
//
// Huge pages save a walk of page tables per 4 KiB that attention reads, but as first pages
// they would take 2 MiB and more per layer for one block.  So what is full becomes huge
// afterwards, while no request runs: a step that reads the page would wait meanwhile.
// MADV_COLLAPSE does it also for shared memory, unless shmem_enabled is "deny".
//
// Neither changes a byte.  Failing costs speed only: nothing here fails for the caller.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "base/bell.h"
#include "engine/block_pool.h"
#include "engine/kv_layout.h"

namespace baton::server {

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

// The huge pages, by their place in the pool, that lie wholly in the first `to` blocks of the
// layers, and do not in the first `from`.  `address`: of the pool, it decides on the boundaries.
std::vector<uint64_t> FilledHugePages(uint64_t address, const engine::KvLayout& layout,
                                      uint32_t from, uint32_t to);

// The work, in pieces: a few hundred microseconds to touch, a millisecond to make huge, more
// where a hypervisor has to find the memory.  Thread: one at a time.
class PoolPages {
 public:
  // `pool` is borrowed and outlives it; others may read and write it meanwhile.
  explicit PoolPages(const engine::KvPool& pool) : pool_(pool) {}

  // Goes on touching the first `blocks` blocks of each layer; false: they are touched.
  bool Touch(uint32_t blocks);
  // Makes one page huge that is full; false: there is none.
  bool Collapse();

  uint32_t touched_blocks() const { return touched_; }

 private:
  void NextLayer();

  const engine::KvPool pool_;
  uint32_t touched_ = 0;  // blocks of all layers
  uint32_t target_ = 0;   // being touched: up to here, in layers below layer_
  uint32_t layer_ = 0;
  uint64_t done_bytes_ = 0;  // of layer_
  std::deque<uint64_t> full_;
};

// Does it in the background.  Thread: Note is the role loop's.
class PoolPagesThread {
 public:
  explicit PoolPagesThread(const engine::KvPool& pool);
  ~PoolPagesThread();
  PoolPagesThread(const PoolPagesThread&) = delete;
  PoolPagesThread& operator=(const PoolPagesThread&) = delete;

  // The pool's state now.
  void Note(const engine::BlockCounts& counts);

 private:
  void Run();

  PoolPages pages_;  // the thread's
  const uint32_t ahead_blocks_;
  std::atomic<uint32_t> wanted_{0};
  std::atomic<bool> busy_{false};
  std::atomic<bool> stopping_{false};
  Bell bell_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton::server
