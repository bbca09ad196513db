// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "tests/sim/apart.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/ensure.h"
#include "sim/runner.h"
#include "sim/shrink.h"

namespace baton::sim {
namespace {

void RunAndTell(const Plan& plan, int out) {
  ENSURE(dup2(out, STDERR_FILENO) >= 0);
  signal(SIGABRT, SIG_DFL);
  signal(SIGSEGV, SIG_DFL);
  const RunResult result = Runner(plan).Run();
  if (!result.violations.empty()) {
    const std::string kind = KindOf(result.violations[0]) + "\n";
    ENSURE(write(out, kind.data(), kind.size()) == static_cast<ssize_t>(kind.size()));
  }
}

std::string ReadAll(int in) {
  std::string text;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(in, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace

ChildEnd RunApart(absl::FunctionRef<void(int out)> body) {
  int ends[2];
  ENSURE(pipe(ends) == 0);
  const pid_t child = fork();
  ENSURE(child >= 0);
  if (child == 0) {
    close(ends[0]);
    body(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  ChildEnd end;
  end.said = ReadAll(ends[0]);
  close(ends[0]);
  ENSURE(waitpid(child, &end.status, 0) == child);
  return end;
}

std::string FailureApart(const Plan& plan) {
  const ChildEnd end = RunApart([&](int out) { RunAndTell(plan, out); });
  const std::string first = end.said.substr(0, end.said.find('\n'));
  if (!first.empty() || WIFEXITED(end.status)) return first;
  return "signal " + std::to_string(WTERMSIG(end.status));
}

}  // namespace baton::sim
