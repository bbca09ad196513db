// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Splits short regions of work over a few threads.
//
// Each thread has a share of a region's chunks and claims them one at a time; one that has
// none left claims those of others.  So threads that all run touch only memory of their own,
// and the caller, who is one of them, never waits for one that has not begun: a thread that
// the system has put aside costs nothing until it holds a chunk.  Between regions, idle
// threads spin for some tens of microseconds (the gap between two regions of a step), then
// sleep until called.
//
// Thread: one caller at a time.  With one thread, Run is a plain loop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace baton::engine::cpu {

class ThreadPool {
 public:
  // work(chunk, thread): thread < threads(), 0 is the caller.
  using Work = absl::FunctionRef<void(uint32_t chunk, uint32_t thread)>;

  explicit ThreadPool(uint32_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  uint32_t threads() const { return static_cast<uint32_t>(threads_.size()) + 1; }

  // Calls work for each chunk in [0, chunks) once, and returns when all calls have returned.
  // What the caller wrote before is seen by all, and what they wrote, by the caller after.
  void Run(uint32_t chunks, Work work);

 private:
  static constexpr uint32_t kChunkBits = 24;
  static constexpr uint64_t kChunkMask = (uint64_t{1} << kChunkBits) - 1;

  // A thread's share of the current region, on a cache line of its own.
  struct alignas(64) Share {
    // Region number above, chunks left to claim below kChunkBits.  A compare and swap claims
    // one: it can succeed only while the region has an unclaimed chunk, so until then `work`
    // and `end` are the region's own.
    std::atomic<uint64_t> ticket{0};
    std::atomic<const Work*> work{nullptr};
    std::atomic<uint32_t> end{0};  // the share's last chunk, plus 1
  };

  void Loop(uint32_t thread);
  // Claims and runs chunks of region `region` until none is left.
  void Help(uint64_t region, uint32_t thread);
  // The same for those of one share; returns how many it ran.
  uint32_t RunShare(Share& share, uint64_t region, uint32_t thread);
  void WaitUntilDone(uint32_t chunks);
  // The region that is current once it is not `last`; 0: the pool is ending.
  uint64_t WaitForRegion(uint64_t last, const Share& own);

  std::vector<Share> shares_;  // by thread
  alignas(64) std::atomic<uint32_t> done_{0};
  uint64_t region_ = 0;  // the caller's

  alignas(64) std::atomic<uint32_t> sleepers_{0};  // threads in, or about to be in, wake_.wait
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;  // only for sleeping
  std::condition_variable wake_;
  std::condition_variable caller_wake_;
  std::vector<std::thread> threads_;
};

}  // namespace baton::engine::cpu
