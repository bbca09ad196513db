// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/failpoint.h"

#ifdef BATON_FAILPOINTS

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
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

}  // namespace

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
