// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Reads GGUF (versions 2 and 3, little-endian): typed metadata and a table of tensors.
//
// The file is foreign: every count, length, offset and shape in it is checked before use,
// and what Decode returned can be used without further checks.  Values and tensors are
// views of the bytes; nothing is copied but the tables.
//
// Thread:    immutable after Decode; any thread may read.
// Ownership: Open maps the file and owns the mapping (mapped_file.h); Decode borrows the
//            caller's bytes.  Views live as long as the Gguf.
// Cost:      Decode reads the header only (some MB, for the vocabulary).
// Fails:     NotFound if the file cannot be opened, else InvalidArgument
//            "FILE: at byte N: WHAT".  Getters: "FILE: metadata KEY: WHAT", NotFound if absent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/mapped_file.h"
#include "engine/model_spec.h"

namespace baton::engine {

// The numbers are the file's.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// One metadata value, checked.  `bytes` are the file's: a string's characters, a number's
// bytes, or an array's elements (each string with its 8-byte length in front).
struct GgufValue {
  GgufType type = GgufType::kUint8;
  GgufType element = GgufType::kUint8;  // of an array; never kArray
  uint64_t count = 1;                   // elements of an array
  absl::Span<const uint8_t> bytes;
};

struct GgufTensor {
  // Dimensions as the file has them, contiguous one first; 1 to 4 of them.
  std::vector<uint64_t> dimensions;
  TensorView view;  // columns = dimensions[0], rows = the product of the others
};

// A model whose metadata and tensors come from other files, in GGUF's terms.
struct ModelParts {
  std::vector<uint8_t> header;  // a GGUF file without tensors
  absl::btree_map<std::string, GgufTensor, std::less<>> tensors;
  // What the tensors' views point into.
  std::vector<MappedFile> files;
  std::vector<std::vector<uint8_t>> memory;
};

class Gguf {
 public:
  static absl::StatusOr<Gguf> Open(const std::string& path);
  // `name` stands for the file in errors.
  static absl::StatusOr<Gguf> Decode(absl::Span<const uint8_t> bytes, absl::string_view name);

  // REQUIRES: views inside the parts' memory.  Fails as Decode does, for the header.
  static absl::StatusOr<Gguf> Assemble(ModelParts parts, absl::string_view name);

  Gguf(Gguf&& other) noexcept = default;
  Gguf& operator=(Gguf&& other) noexcept = default;

  const std::string& name() const { return name_; }
  absl::Span<const uint8_t> bytes() const { return bytes_; }  // without an assembled one's tensors
  uint64_t data_offset() const { return data_offset_; }       // header and tables end here

  bool Has(absl::string_view key) const { return values_.contains(key); }
  const GgufValue* Find(absl::string_view key) const;  // null if absent

  // Any integer type that holds a value in [0, max].
  absl::StatusOr<uint64_t> Unsigned(absl::string_view key, uint64_t max = UINT64_MAX) const;
  absl::StatusOr<double> Number(absl::string_view key) const;  // integer or float, finite
  absl::StatusOr<bool> Bool(absl::string_view key) const;
  absl::StatusOr<absl::string_view> String(absl::string_view key) const;
  // Arrays.  Integers takes any integer type whose values fit.
  absl::StatusOr<std::vector<absl::string_view>> Strings(absl::string_view key) const;
  absl::StatusOr<std::vector<float>> Floats(absl::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> Integers(absl::string_view key) const;

  const absl::btree_map<std::string, GgufValue, std::less<>>& values() const { return values_; }
  const absl::btree_map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }

 private:
  Gguf() = default;

  absl::Status Error(absl::string_view key, absl::string_view what) const;
  absl::StatusOr<const GgufValue*> Array(absl::string_view key, absl::string_view what) const;

  std::string name_;
  absl::Span<const uint8_t> bytes_;
  uint64_t data_offset_ = 0;
  absl::btree_map<std::string, GgufValue, std::less<>> values_;
  absl::btree_map<std::string, GgufTensor, std::less<>> tensors_;
  std::vector<MappedFile> files_;
  std::vector<std::vector<uint8_t>> memory_;
};

// Bytes of `elements` values of a type and how many share a block; {0, 0} for a type that
// Baton does not run.
struct TensorTypeInfo {
  uint32_t block_elements = 0;
  uint32_t block_bytes = 0;
};
TensorTypeInfo InfoOf(TensorType type);
// "Q4_1"; a type code that Baton does not run is named too if it is known at all.
std::string TensorTypeName(TensorType type);

}  // namespace baton::engine
