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
  ASSIGN_OR_RETURN(UcxRegion region, Private(kPoolOffset + pool_bytes));
  region.Divide(region.pool_, pool_bytes, nonce);
  return region;
}

void UcxRegion::Divide(uint8_t* base, uint64_t pool_bytes, uint64_t nonce) {
  std::memcpy(base, &nonce, sizeof nonce);
  probe_ = base + kHeaderBytes;
  pool_ = base + kPoolOffset;
  pool_bytes_ = pool_bytes;
  nonce_ = nonce;
}

absl::Status UcxRegion::Register(UcxWorker& rdma) {
  uint8_t* const base = probe_ == nullptr ? pool_ : probe_ - kHeaderBytes;
  const auto bytes = static_cast<uint64_t>(pool_ - base) + pool_bytes_;
  ASSIGN_OR_RETURN(rdma_, UcxMemory::Register(rdma, base, bytes));
  return absl::OkStatus();
}

// The pool begins at a huge page's boundary, and what surrounds it faults: whoever leaves it is
// caught, and its pages stay apart from others in the system's accounts.
absl::StatusOr<UcxRegion> UcxRegion::Private(uint64_t pool_bytes) {
  UcxRegion region;
  const uint64_t around = pool_bytes + 2 * kHugePage;
  void* mapped = ::mmap(nullptr, around, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return NoMemory(pool_bytes);
  region.mapped_ = static_cast<uint8_t*>(mapped);
  region.mapped_bytes_ = around;
  const uint64_t skip = kHugePage - reinterpret_cast<uintptr_t>(mapped) % kHugePage;
  region.pool_ = region.mapped_ + skip;
  region.pool_bytes_ = pool_bytes;
  if (::mprotect(region.pool_, pool_bytes, PROT_READ | PROT_WRITE) != 0) {
    return NoMemory(pool_bytes);
  }
  return region;
}

UcxRegion& UcxRegion::operator=(UcxRegion&& other) noexcept {
  std::swap(shared_, other.shared_);
  std::swap(rdma_, other.rdma_);
  std::swap(mapped_, other.mapped_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(probe_, other.probe_);
  std::swap(pool_, other.pool_);
  std::swap(pool_bytes_, other.pool_bytes_);
  std::swap(nonce_, other.nonce_);
  return *this;
}

UcxRegion::~UcxRegion() {
  rdma_ = UcxMemory();
  if (mapped_ != nullptr) ::munmap(mapped_, mapped_bytes_);
}

void UcxRegion::ForgetProbe() {
  // Peers write pinned pages, wherever the mapping leads to by then.
  if (rdma_.base() != nullptr) return;
  if (probe_ != nullptr) (void)::madvise(probe_, kProbeBytes, MADV_REMOVE);
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
