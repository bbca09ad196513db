// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Little-endian reader and writer with bounds, for wire formats and files.
//
// A ByteReader never reads past its end: a short read returns zeros and makes ok()
// false, for good; decoders read everything and ask ok() once.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"

namespace baton {

class ByteWriter {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T>);
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  void PutBytes(absl::Span<const uint8_t> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  // u32 length, then the bytes.
  void PutString(const std::string& text) {
    Put<uint32_t>(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  std::vector<uint8_t> Take() && { return std::move(bytes_); }
  size_t size() const { return bytes_.size(); }

 private:
  std::vector<uint8_t> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  template <typename T>
  T Get() {
    static_assert(std::is_arithmetic_v<T>);
    T value{};
    if (!Has(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  absl::Span<const uint8_t> GetBytes(size_t count) {
    if (!Has(count)) return {};
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  std::string GetString(uint32_t size_max) {
    const uint32_t size = Get<uint32_t>();
    if (size > size_max) ok_ = false;
    const auto bytes = ok_ ? GetBytes(size) : absl::Span<const uint8_t>();
    return std::string(bytes.begin(), bytes.end());
  }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && at_ == bytes_.size(); }
  size_t remaining() const { return ok_ ? bytes_.size() - at_ : 0; }

 private:
  bool Has(size_t count) {
    if (!ok_ || bytes_.size() - at_ < count) ok_ = false;
    return ok_;
  }
  absl::Span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace baton
