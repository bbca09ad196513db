// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The pool's memory, and around it what peers need to verify their way to it.
//
//   [ header, 4 KiB: nonce, whose it is ][ probe region ][ pool, 2 MiB aligned in the mapping ]
//
// An owner's region is allocated by UCX, so that writers on this host map it, or its own if only
// RDMA may write it; a writer's, and an owner's that only takes messages, is private memory, a
// writer's with its staging area behind the pool.  The probe region takes no memory but while a
// peer is measured (by one at a time), or for ever where RDMA has pinned it; a staging area none
// before something is converted, or pinned.
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
  // An owner's that no peer on this host can map.
  static absl::StatusOr<UcxRegion> Unshared(uint64_t pool_bytes, uint64_t nonce);
  // `memory_bytes`: of the pool and what the writer has behind it.
  static absl::StatusOr<UcxRegion> Private(uint64_t pool_bytes, uint64_t memory_bytes);
  // For RDMA through `rdma`, which outlives the region: an owner's may be written, a writer's is
  // read.  Pins all of it, but for a writer's probe region.
  absl::Status Register(UcxWorker& rdma);

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
  // Gives the probe region's pages back to the system, where they are not pinned.
  void ForgetProbe();
  // How peers on this host reach it.  REQUIRES: Shared.
  absl::StatusOr<MemoryOffer> Offer(const UcxWorker& worker) const;
  // How others do, by connections to `port`.  REQUIRES: an owner's, registered.
  absl::StatusOr<MemoryOffer> RdmaOffer(uint16_t port) const;

 private:
  void Divide(uint8_t* base, uint64_t pool_bytes, uint64_t nonce);
  absl::StatusOr<MemoryOffer> OfferOf(const UcxMemory& memory) const;

  UcxMemory shared_;
  UcxMemory rdma_;             // the same memory
  uint8_t* mapped_ = nullptr;  // private or unshared
  uint64_t mapped_bytes_ = 0;
  uint8_t* divided_ = nullptr;  // where an owner's header is
  uint8_t* probe_ = nullptr;
  uint8_t* pool_ = nullptr;
  uint64_t pool_bytes_ = 0;
  uint64_t memory_bytes_ = 0;
  uint64_t nonce_ = 0;
};

}  // namespace baton::kv
