// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_process.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace baton::kv {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

uint64_t Inode(const char* path) {
  struct stat info = {};
  return ::stat(path, &info) == 0 ? info.st_ino : 0;
}

std::optional<uint64_t> StartTimeOf(uint32_t pid) {
  return ParseStartTime(ReadFile(absl::StrCat("/proc/", pid, "/stat")));
}

}  // namespace

std::optional<uint64_t> ParseStartTime(absl::string_view stat) {
  // "pid (comm) state ppid …": comm may hold blanks and brackets, so count from the last ')'.
  const size_t close = stat.rfind(')');
  if (close == absl::string_view::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(stat.substr(close + 1), ' ', absl::SkipWhitespace());
  constexpr size_t kStartTime = 22 - 3;  // the first one here is field 3
  uint64_t value = 0;
  if (fields.size() <= kStartTime || !absl::SimpleAtoi(fields[kStartTime], &value)) {
    return std::nullopt;
  }
  return value;
}

absl::StatusOr<SelfDescription> DescribeSelf() {
  SelfDescription self;
  self.process.boot_id =
      std::string(absl::StripAsciiWhitespace(ReadFile("/proc/sys/kernel/random/boot_id")));
  self.process.pid_namespace = Inode("/proc/self/ns/pid");
  self.process.pid = static_cast<uint32_t>(::getpid());
  const auto start = ParseStartTime(ReadFile("/proc/self/stat"));
  if (self.process.boot_id.empty() || !start.has_value()) {
    return absl::UnavailableError("cannot read this process's identity: is /proc mounted?");
  }
  self.process.start_time = *start;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  self.host = host;
  self.net_namespace = Inode("/proc/self/ns/net");
  self.ipc_namespace = Inode("/proc/self/ns/ipc");
  return self;
}

bool SharesPids(const ProcessId& mine, const ProcessId& theirs) {
  return mine.boot_id == theirs.boot_id && mine.pid_namespace == theirs.pid_namespace &&
         mine.pid_namespace != 0;
}

bool IsAlive(const ProcessId& process) {
  return StartTimeOf(process.pid) == std::optional<uint64_t>(process.start_time);
}

absl::StatusOr<Fd> WatchProcess(const ProcessId& mine, const ProcessId& theirs) {
  if (!SharesPids(mine, theirs)) {
    return absl::NotFoundError("the peer's process cannot be watched from here");
  }
  Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, theirs.pid, 0)));
  if (!fd.open()) {
    return absl::NotFoundError(
        absl::StrCat("cannot watch process ", theirs.pid, ": ", std::strerror(errno)));
  }
  // Only now: a pid that was reused before the descriptor was opened shows here.
  if (!IsAlive(theirs)) return absl::NotFoundError("the peer's process is gone");
  return fd;
}

}  // namespace baton::kv
