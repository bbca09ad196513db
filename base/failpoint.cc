// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/failpoint.h"

#ifdef BATON_FAILPOINTS

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/ensure.h"

namespace baton {
namespace {

struct Armed {
  std::string name;
  uint64_t at = 0;  // 0: not armed
  std::string file;
  std::atomic<uint64_t> passed{0};

  Armed() {
    const char* text = std::getenv("BATON_FAILPOINT");
    if (text == nullptr) return;
    const std::vector<std::string> parts = absl::StrSplit(text, '@');
    ENSURE(parts.size() == 3 && absl::SimpleAtoi(parts[1], &at) && at > 0);
    name = absl::StrCat("baton-failpoint:", parts[0]);
    file = parts[2];
  }
};

constexpr int kHoldMaxMs = 1000;  // where the file says nothing else

// Empty: no moment can be armed.
std::string HoldFile(const char* name) {
  static const char* const folder = std::getenv("BATON_HOLDPOINTS");
  return folder == nullptr ? "" : absl::StrCat(folder, "/", getpid(), ".", name);
}

std::string ReadSmallFile(const std::string& path) {
  char text[256];
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  const ssize_t size = read(file, text, sizeof(text));
  close(file);
  return std::string(text, size > 0 ? static_cast<size_t>(size) : 0);
}

}  // namespace

bool HoldpointArmed(const char* name) {
  const std::string file = HoldFile(name);
  return !file.empty() && access(file.c_str(), F_OK) == 0;
}

void PassHoldpoint(const char* name, const std::string& about) {
  const std::string file = HoldFile(name);
  const std::string held = absl::StrCat(file, ".held");
  const std::vector<std::string> lines = absl::StrSplit(ReadSmallFile(file), '\n');
  if (about.find(lines[0]) == std::string::npos) return;
  int hold_ms = kHoldMaxMs;
  if (lines.size() > 1) ENSURE(absl::SimpleAtoi(lines[1], &hold_ms));
  if (std::rename(file.c_str(), held.c_str()) != 0) return;  // disarmed meanwhile
  while (hold_ms-- > 0 && access(held.c_str(), F_OK) == 0) poll(nullptr, 0, /*timeout=*/1);
}

void PassFailpoint(const char* name) {
  static Armed armed;
  if (armed.at == 0 || armed.name != name) return;
  if (++armed.passed != armed.at) return;
  const int file = open(armed.file.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file < 0) return;
  close(file);
  kill(getpid(), SIGKILL);
}

}  // namespace baton

#endif
