// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace baton::server {
namespace {

// In the child, between fork and exec: only what is safe there.
[[noreturn]] void Become(char* const* arguments, int output, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execv("/proc/self/exe", arguments);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::UnavailableError(absl::StrCat("no pipe: ", std::strerror(errno)));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::vector<char*> arguments;
  std::string program = "baton";
  arguments.push_back(program.data());
  std::vector<std::string> copies = words;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(arguments.data(), ends[1], parent);
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return absl::UnavailableError(absl::StrCat("no process: ", std::strerror(errno)));
  }
  ChildProcess child;
  child.pid_ = pid;
  child.output_ = ends[0];
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(output_, other.output_);
  std::swap(ended_, other.ended_);
  std::swap(exit_code_, other.exit_code_);
  std::swap(partial_, other.partial_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (output_ >= 0) close(output_);
}

std::vector<std::string> ChildProcess::TakeLines() {
  std::vector<std::string> lines;
  char buffer[16384];
  ssize_t size = 0;
  while (output_ >= 0 && (size = read(output_, buffer, sizeof(buffer))) > 0) {
    partial_.append(buffer, static_cast<size_t>(size));
  }
  size_t begin = 0, end = 0;
  while ((end = partial_.find('\n', begin)) != std::string::npos) {
    lines.push_back(partial_.substr(begin, end - begin));
    begin = end + 1;
  }
  partial_.erase(0, begin);
  return lines;
}

bool ChildProcess::Reap() {
  if (!running()) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return true;
}

void ChildProcess::Signal(int number) const {
  if (running()) kill(pid_, number);
}

int HttpGet(const std::string& host, uint16_t port, const std::string& path, std::string* body) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const std::string service = std::to_string(port);
  if (getaddrinfo(host.c_str(), service.c_str(), &hints, &found) != 0) return 0;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval patience{0, 500000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  std::string answer;
  if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
    const std::string request =
        absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\nConnection: close\r\n\r\n");
    char buffer[4096];
    ssize_t size = send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    while (size > 0 && (size = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
      answer.append(buffer, static_cast<size_t>(size));
    }
  }
  close(fd);
  freeaddrinfo(found);
  int status = 0;
  if (answer.size() < 12 || !absl::SimpleAtoi(answer.substr(9, 3), &status)) return 0;
  const size_t end = answer.find("\r\n\r\n");
  if (body != nullptr && end != std::string::npos) *body = answer.substr(end + 4);
  return status;
}

}  // namespace baton::server
