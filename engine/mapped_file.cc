// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace baton::engine {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  absl::Cleanup close = [file] { ::close(file); };
  struct stat info = {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  if (info.st_size == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, ": at byte 0: empty"));
  const auto size = static_cast<size_t>(info.st_size);
  void* base = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (base == MAP_FAILED) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": mmap: ", std::strerror(errno)));
  }
  MappedFile mapped;
  mapped.bytes_ = {static_cast<const uint8_t*>(base), size};
  return mapped;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

}  // namespace baton::engine
