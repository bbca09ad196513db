// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/cpu/thread_pool.h"

#include <chrono>

#include "base/ensure.h"

namespace baton::engine::cpu {
namespace {

// Long enough for the caller's serial work between two regions, too short to be seen in
// the load of an idle machine.
constexpr std::chrono::microseconds kSpin{40};
constexpr uint32_t kPausesPerLook = 64;  // between two readings of the clock

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spins until `ready` or for kSpin; whether it became ready.
template <typename Ready>
bool SpinUntil(Ready ready) {
  for (uint32_t i = 0; i < kPausesPerLook; ++i) {
    if (ready()) return true;
    Pause();
  }
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (uint32_t i = 0; i < kPausesPerLook; ++i) {
      if (ready()) return true;
      Pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(uint32_t threads) : shares_(threads) {
  ENSURE(threads >= 1);
  for (uint32_t i = 1; i < threads; ++i) threads_.emplace_back([this, i] { Loop(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(uint32_t chunks, Work work) {
  if (threads_.empty() || chunks <= 1) {
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) work(chunk, 0);
    return;
  }
  ENSURE(chunks <= kChunkMask);
  ++region_;
  done_.store(0, std::memory_order_relaxed);
  const auto count = static_cast<uint32_t>(shares_.size());
  uint32_t begin = 0;
  for (uint32_t i = 0; i < count; ++i) {
    Share& share = shares_[i];
    const auto end = static_cast<uint32_t>(uint64_t{chunks} * (i + 1) / count);
    share.work.store(&work, std::memory_order_relaxed);
    share.end.store(end, std::memory_order_relaxed);
    // In one order with sleepers_.
    share.ticket.store(region_ << kChunkBits | (end - begin));
    begin = end;
  }
  if (sleepers_.load() > 0) {
    std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  Help(region_, 0);
  WaitUntilDone(chunks);
}

void ThreadPool::Help(uint64_t region, uint32_t thread) {
  const auto count = static_cast<uint32_t>(shares_.size());
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t ran = RunShare(shares_[(thread + i) % count], region, thread);
    if (ran == 0) continue;
    done_.fetch_add(ran);
    if (thread != 0 && caller_sleeps_.load()) {
      std::lock_guard lock(mutex_);
      caller_wake_.notify_one();
    }
  }
}

uint32_t ThreadPool::RunShare(Share& share, uint64_t region, uint32_t thread) {
  uint32_t ran = 0;
  uint64_t ticket = share.ticket.load(std::memory_order_acquire);
  while (ticket >> kChunkBits == region) {
    const Work* work = share.work.load(std::memory_order_relaxed);
    const uint32_t end = share.end.load(std::memory_order_relaxed);
    const auto left = static_cast<uint32_t>(ticket & kChunkMask);
    if (left == 0) break;
    if (!share.ticket.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
      continue;
    }
    (*work)(end - left, thread);
    ++ran;
    ticket = share.ticket.load(std::memory_order_acquire);
  }
  return ran;
}

void ThreadPool::WaitUntilDone(uint32_t chunks) {
  const auto done = [&] { return done_.load(std::memory_order_acquire) == chunks; };
  if (SpinUntil(done)) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_.store(true);
  caller_wake_.wait(lock, [&] { return done_.load() == chunks; });
  caller_sleeps_.store(false);
}

uint64_t ThreadPool::WaitForRegion(uint64_t last, const Share& own) {
  const auto moved = [&] {
    return own.ticket.load(std::memory_order_acquire) >> kChunkBits != last || ending_.load();
  };
  if (!SpinUntil(moved)) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, [&] { return own.ticket.load() >> kChunkBits != last || ending_.load(); });
    sleepers_.fetch_sub(1);
  }
  return ending_.load() ? 0 : own.ticket.load(std::memory_order_acquire) >> kChunkBits;
}

void ThreadPool::Loop(uint32_t thread) {
  Share& own = shares_[thread];
  uint64_t region = 0;
  while ((region = WaitForRegion(region, own)) != 0) Help(region, thread);
}

}  // namespace baton::engine::cpu
