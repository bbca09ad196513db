// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A file's bytes in memory, read-only, by mmap.
//
// Ownership: unmaps in its destructor.  A file that is truncated by others while it is mapped
// kills the process (SIGBUS), as with every mapped file.
// Fails:     NotFound if the file cannot be opened, else InvalidArgument, naming it; an empty
//            file is an error.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace baton::engine {

class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  absl::Span<const uint8_t> bytes() const { return bytes_; }

 private:
  absl::Span<const uint8_t> bytes_;
};

}  // namespace baton::engine
