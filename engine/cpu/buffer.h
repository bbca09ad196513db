// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Memory for weights and scratch: aligned to cache lines, in huge pages where the system
// has them.
//
// Reserve keeps what is there when it is large enough, so that a step of a size seen before
// allocates nothing.  Contents are lost when it grows.  Fails: memory exhaustion aborts.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <utility>

#include "base/ensure.h"

namespace baton::engine::cpu {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(uint64_t size_bytes) { Reserve(size_bytes); }
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Buffer() { Release(); }

  // New memory is zero.
  void Reserve(uint64_t size_bytes) {
    if (size_bytes <= size_) return;
    Release();
    const uint64_t alignment = size_bytes >= kHugePage ? kHugePage : 0;
    mapped_size_ = size_bytes + alignment;
    mapped_ =
        mmap(nullptr, mapped_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ENSURE(mapped_ != MAP_FAILED);
    madvise(mapped_, mapped_size_, MADV_HUGEPAGE);  // a wish; small pages work as well
    auto address = reinterpret_cast<uintptr_t>(mapped_);
    if (alignment > 0) address = (address + kHugePage - 1) & ~uintptr_t{kHugePage - 1};
    data_ = reinterpret_cast<uint8_t*>(address);
    size_ = size_bytes;
  }
  uint8_t* data() const { return data_; }
  uint64_t size() const { return size_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  static constexpr uint64_t kHugePage = uint64_t{2} << 20;

  void Swap(Buffer& other) {
    std::swap(mapped_, other.mapped_);
    std::swap(mapped_size_, other.mapped_size_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  void Release() {
    if (mapped_ != nullptr) munmap(mapped_, mapped_size_);
    mapped_ = nullptr;
    data_ = nullptr;
    mapped_size_ = size_ = 0;
  }
  void* mapped_ = nullptr;
  uint64_t mapped_size_ = 0;
  uint8_t* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace baton::engine::cpu
