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

ThreadPool::ThreadPool(uint32_t threads) {
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
  ENSURE(chunks < (1u << kChunkBits));
  const uint64_t region = (ticket_.load(std::memory_order_relaxed) >> kChunkBits) + 1;
  work_.store(&work, std::memory_order_relaxed);
  chunks_.store(chunks, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  ticket_.store(region << kChunkBits | chunks);  // in one order with sleepers_
  if (sleepers_.load() > 0) {
    std::lock_guard lock(mutex_);
    wake_.notify_all();
  }
  Help(region, 0);
  WaitUntilDone(chunks);
}

void ThreadPool::Help(uint64_t region, uint32_t thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (ticket >> kChunkBits == region) {
    const Work* work = work_.load(std::memory_order_relaxed);
    const uint32_t chunks = chunks_.load(std::memory_order_relaxed);
    const auto left = static_cast<uint32_t>(ticket & ((uint64_t{1} << kChunkBits) - 1));
    if (left == 0) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    (*work)(chunks - left, thread);
    if (done_.fetch_add(1) + 1 == chunks && thread != 0 && caller_sleeps_.load()) {
      std::lock_guard lock(mutex_);
      caller_wake_.notify_one();
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::WaitUntilDone(uint32_t chunks) {
  const auto done = [&] { return done_.load(std::memory_order_acquire) == chunks; };
  if (SpinUntil(done)) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_.store(true);
  caller_wake_.wait(lock, [&] { return done_.load() == chunks; });
  caller_sleeps_.store(false);
}

uint64_t ThreadPool::WaitForRegion(uint64_t last) {
  const auto moved = [&] {
    return ticket_.load(std::memory_order_acquire) >> kChunkBits != last || ending_.load();
  };
  if (!SpinUntil(moved)) {
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, [&] { return ticket_.load() >> kChunkBits != last || ending_.load(); });
    sleepers_.fetch_sub(1);
  }
  return ending_.load() ? 0 : ticket_.load(std::memory_order_acquire) >> kChunkBits;
}

void ThreadPool::Loop(uint32_t thread) {
  uint64_t region = 0;
  while ((region = WaitForRegion(region)) != 0) Help(region, thread);
}

}  // namespace baton::engine::cpu
