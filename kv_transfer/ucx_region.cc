// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_region.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/status_macros.h"

namespace baton::kv {
namespace {

constexpr uint64_t kHeaderBytes = 4096;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = 2u << 20;
constexpr uint64_t kPoolOffset =
    (kHeaderBytes + UcxRegion::kProbeBytes + kHugePage - 1) & ~(kHugePage - 1);

absl::Status NoMemory(uint64_t pool_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("allocating ", pool_bytes, " bytes for the KV pool: ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<UcxRegion> UcxRegion::Shared(UcxWorker& worker, uint64_t pool_bytes,
                                            uint64_t nonce) {
  UcxRegion region;
  const uint64_t bytes = (kPoolOffset + pool_bytes + kHugePage - 1) / kHugePage * kHugePage;
  ASSIGN_OR_RETURN(region.shared_, UcxMemory::Allocate(worker, bytes, kHugePage));
  region.Divide(region.shared_.base(), pool_bytes, nonce);
  return region;
}

absl::StatusOr<UcxRegion> UcxRegion::Unshared(uint64_t pool_bytes, uint64_t nonce) {
  const uint64_t bytes = kPoolOffset + pool_bytes;
  ASSIGN_OR_RETURN(UcxRegion region, Private(bytes, bytes));
  region.Divide(region.pool_, pool_bytes, nonce);
  return region;
}

void UcxRegion::Divide(uint8_t* base, uint64_t pool_bytes, uint64_t nonce) {
  std::memcpy(base, &nonce, sizeof nonce);
  divided_ = base;
  probe_ = base + kHeaderBytes;
  pool_ = base + kPoolOffset;
  pool_bytes_ = memory_bytes_ = pool_bytes;
  nonce_ = nonce;
}

absl::Status UcxRegion::Register(UcxWorker& rdma) {
  uint8_t* const base = divided_ == nullptr ? pool_ : divided_;
  const auto bytes = static_cast<uint64_t>(pool_ - base) + memory_bytes_;
  ASSIGN_OR_RETURN(rdma_, UcxMemory::Register(rdma, base, bytes));
  return absl::OkStatus();
}

// The pool begins at a huge page's boundary, and what surrounds it faults: whoever leaves it is
// caught, and its pages stay apart from others in the system's accounts.  The probe region lies
// before it, in front of what faults.
absl::StatusOr<UcxRegion> UcxRegion::Private(uint64_t pool_bytes, uint64_t memory_bytes) {
  ENSURE(memory_bytes >= pool_bytes);
  UcxRegion region;
  const uint64_t around = kProbeBytes + memory_bytes + 3 * kHugePage;
  void* mapped = ::mmap(nullptr, around, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return NoMemory(memory_bytes);
  region.mapped_ = static_cast<uint8_t*>(mapped);
  region.mapped_bytes_ = around;
  const uint64_t skip = kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage;
  region.probe_ = region.mapped_ + skip;
  region.pool_ = region.probe_ + kProbeBytes + kHugePage;
  region.pool_bytes_ = pool_bytes;
  region.memory_bytes_ = memory_bytes;
  for (const auto& [part, bytes] :
       {std::pair(region.probe_, kProbeBytes), std::pair(region.pool_, memory_bytes)}) {
    if (::mprotect(part, bytes, PROT_READ | PROT_WRITE) != 0) return NoMemory(memory_bytes);
  }
  return region;
}

UcxRegion& UcxRegion::operator=(UcxRegion&& other) noexcept {
  std::swap(shared_, other.shared_);
  std::swap(rdma_, other.rdma_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(divided_, other.divided_);
  std::swap(probe_, other.probe_);
  std::swap(pool_, other.pool_);
  std::swap(pool_bytes_, other.pool_bytes_);
  std::swap(memory_bytes_, other.memory_bytes_);
  std::swap(nonce_, other.nonce_);
  return *this;
}

UcxRegion::~UcxRegion() {
  rdma_ = UcxMemory();
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

void UcxRegion::TouchProbe() {
  if (probe_ == nullptr) return;
  for (uint64_t at = 0; at < kProbeBytes; at += kPage) probe_[at] = 1;
}

void UcxRegion::ForgetProbe() {
  // Peers write pinned pages, wherever the mapping leads to by then.
  if (probe_ == nullptr || rdma_.base() != nullptr) return;
  (void)::madvise(probe_, kProbeBytes, shared() ? MADV_REMOVE : MADV_DONTNEED);
}

absl::StatusOr<MemoryOffer> UcxRegion::Offer(const UcxWorker& worker) const {
  ASSIGN_OR_RETURN(MemoryOffer offer, OfferOf(shared_));
  offer.worker_address = worker.address();
  return offer;
}

absl::StatusOr<MemoryOffer> UcxRegion::RdmaOffer(uint16_t port) const {
  ASSIGN_OR_RETURN(MemoryOffer offer, OfferOf(rdma_));
  offer.worker_address = RdmaAddress(port);
  return offer;
}

absl::StatusOr<MemoryOffer> UcxRegion::OfferOf(const UcxMemory& memory) const {
  ENSURE(memory.base() != nullptr);
  MemoryOffer offer;
  ASSIGN_OR_RETURN(offer.key, memory.PackKey());
  offer.base = reinterpret_cast<uint64_t>(memory.base());
  offer.bytes = memory.bytes();
  offer.nonce = nonce_;
  offer.probe_offset = kHeaderBytes;
  offer.probe_bytes = kProbeBytes;
  offer.pool_offset = kPoolOffset;
  offer.pool_bytes = pool_bytes_;
  return offer;
}

}  // namespace baton::kv
