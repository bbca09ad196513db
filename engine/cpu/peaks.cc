// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/peaks.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/status_macros.h"
#include "engine/cpu/buffer.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/thread_pool.h"

namespace baton::engine {
namespace {

constexpr uint64_t kReadBytes = uint64_t{128} << 20;  // of each thread: far more than caches
constexpr uint64_t kReadMargin = 4096;
constexpr uint64_t kRounds = 400'000;
constexpr int kPasses = 8;

// Units per second of the fastest pass; `work` does `units` per thread.
double Best(cpu::ThreadPool& pool, double units, absl::FunctionRef<void(uint32_t)> work) {
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.Run(pool.threads(), [&](uint32_t chunk, uint32_t) { work(chunk); });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, units * pool.threads() / seconds.count());
  }
  return best;
}

}  // namespace

absl::StatusOr<Peaks> MeasurePeaks(Isa isa, uint32_t threads) {
  ASSIGN_OR_RETURN(const cpu::Kernels* kernels, cpu::ChooseKernels(isa));
  const cpu::Probes& probes = kernels->probes;
  if (probes.read == nullptr) return Peaks{};
  cpu::ThreadPool pool(threads);
  cpu::Buffer memory(threads * kReadBytes + kReadMargin);
  std::fill_n(memory.data(), memory.size(), uint8_t{1});  // or all pages are the same zeros
  Peaks peaks;
  peaks.read_bytes = Best(pool, static_cast<double>(kReadBytes), [&](uint32_t thread) {
    probes.read(memory.data() + thread * kReadBytes, kReadBytes);
  });
  const auto ops = [&](uint64_t (*macs)(uint64_t)) {
    return Best(pool, 2.0 * static_cast<double>(macs(1) * kRounds),
                [&](uint32_t) { macs(kRounds); });
  };
  peaks.int8_ops = ops(probes.int8_macs);
  peaks.float_ops = ops(probes.float_macs);
  return peaks;
}

}  // namespace baton::engine
