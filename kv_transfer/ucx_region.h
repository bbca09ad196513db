// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The pool's memory, and around it what peers need to verify their way to it.
//
//   [ header, 4 KiB: nonce, whose it is ][ probe region ][ pool, 2 MiB aligned in the mapping ]
//
// An owner's region is allocated by UCX, so that writers on this host map it; a writer's, and an
// owner's that only takes messages, is private memory, a writer's with its staging area behind the
// pool.  The probe region takes no memory but while a peer is measured (by one at a time), a
// staging area none before something is converted.
//
// Thread:     made anywhere; the pool belongs to the role loop, the rest to the reactor.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kv_transfer/ucx_wire.h"
#include "kv_transfer/ucx_worker.h"

namespace baton::kv {

class UcxRegion {
 public:
  // Larger than most last-level caches, so that a measurement is not one of the cache.
  static constexpr uint64_t kProbeBytes = 32ull << 20;

  // Writable by peers through `worker`, which outlives the region.
  static absl::StatusOr<UcxRegion> Shared(UcxWorker& worker, uint64_t pool_bytes, uint64_t nonce);
  // `memory_bytes`: of the pool and what the writer has behind it.
  static absl::StatusOr<UcxRegion> Private(uint64_t pool_bytes, uint64_t memory_bytes);

  UcxRegion() = default;
  UcxRegion(UcxRegion&& other) noexcept { *this = std::move(other); }
  UcxRegion& operator=(UcxRegion&& other) noexcept;
  ~UcxRegion();

  uint8_t* pool() const { return pool_; }
  uint64_t pool_bytes() const { return pool_bytes_; }
  absl::Span<uint8_t> memory() const { return {pool_, memory_bytes_}; }  // begins with the pool
  // Whether peers reach it themselves.
  bool shared() const { return shared_.base() != nullptr; }
  absl::Span<uint8_t> probe() const { return {probe_, probe_ == nullptr ? 0 : kProbeBytes}; }
  // Takes memory for the probe region, so that a measurement does not wait for it.
  void TouchProbe();
  // Gives the probe region's pages back to the system.
  void ForgetProbe();
  // How peers reach it.  REQUIRES: Shared.
  absl::StatusOr<MemoryOffer> Offer(const UcxWorker& worker) const;

 private:
  UcxMemory shared_;
  uint8_t* mapped_ = nullptr;  // private
  uint64_t mapped_bytes_ = 0;
  uint8_t* probe_ = nullptr;
  uint8_t* pool_ = nullptr;
  uint64_t pool_bytes_ = 0;
  uint64_t memory_bytes_ = 0;
  uint64_t nonce_ = 0;
};

}  // namespace baton::kv
