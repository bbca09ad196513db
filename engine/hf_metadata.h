// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Writes metadata as the bytes of a GGUF file without tensors.
//
// REQUIRES: each key once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/bytes.h"
#include "engine/gguf.h"

namespace baton::engine {

class MetadataWriter {
 public:
  void Unsigned(absl::string_view key, uint64_t value) { Put(key, GgufType::kUint64, value); }
  void Number(absl::string_view key, double value) { Put(key, GgufType::kFloat64, value); }
  void Bool(absl::string_view key, bool value) {
    Put(key, GgufType::kBool, static_cast<uint8_t>(value ? 1 : 0));
  }
  void String(absl::string_view key, absl::string_view value) {
    Key(key, GgufType::kString);
    Text(value);
  }
  void Strings(absl::string_view key, absl::Span<const std::string> list) {
    Array(key, GgufType::kString, list.size());
    for (const std::string& text : list) Text(text);
  }
  void Integers(absl::string_view key, absl::Span<const int32_t> list) {
    Array(key, GgufType::kInt32, list.size());
    for (const int32_t value : list) values_.Put<int32_t>(value);
  }

  std::vector<uint8_t> Take() && {
    ByteWriter out;
    out.PutBytes({'G', 'G', 'U', 'F'});
    out.Put<uint32_t>(3);
    out.Put<uint64_t>(0);  // tensors
    out.Put<uint64_t>(count_);
    out.PutBytes(std::move(values_).Take());
    return std::move(out).Take();
  }

 private:
  void Text(absl::string_view text) {
    values_.Put<uint64_t>(text.size());
    values_.PutBytes({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  void Key(absl::string_view key, GgufType type) {
    ++count_;
    Text(key);
    values_.Put<uint32_t>(static_cast<uint32_t>(type));
  }
  void Array(absl::string_view key, GgufType element, uint64_t count) {
    Key(key, GgufType::kArray);
    values_.Put<uint32_t>(static_cast<uint32_t>(element));
    values_.Put<uint64_t>(count);
  }
  template <typename T>
  void Put(absl::string_view key, GgufType type, T value) {
    Key(key, type);
    values_.Put<T>(value);
  }

  ByteWriter values_;
  uint64_t count_ = 0;
};

}  // namespace baton::engine
