// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/socket_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::kv {
namespace {

constexpr size_t kReceiveBytes = 64u << 10;
constexpr int kReadsMax = 4;
constexpr int kBacklog = 64;

absl::Status SystemError(absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

// Control frames are small and wait for nobody.
void SetNoDelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

absl::StatusOr<SocketAddress> Ask(int (*name)(int, sockaddr*, socklen_t*), int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (name(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return SystemError("asking a socket for an address");
  }
  return address;
}

}  // namespace

absl::Status SocketConnection::Send(std::vector<uint8_t> frame) {
  if (waiting_bytes_ + frame.size() > kSendBytesMax) {
    return absl::ResourceExhaustedError("the peer reads too slowly");
  }
  waiting_bytes_ += frame.size();
  waiting_.push_back(std::move(frame));
  return Flush();
}

absl::Status SocketConnection::Flush() {
  while (!waiting_.empty()) {
    const std::vector<uint8_t>& frame = waiting_.front();
    const ssize_t sent = ::send(fd_.get(), frame.data() + sent_of_first_,
                                frame.size() - sent_of_first_, MSG_NOSIGNAL);
    if (sent < 0) return WouldBlock() ? absl::OkStatus() : SystemError("sending to the peer");
    sent_of_first_ += static_cast<size_t>(sent);
    if (sent_of_first_ < frame.size()) return absl::OkStatus();
    waiting_bytes_ -= frame.size();
    sent_of_first_ = 0;
    waiting_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status SocketConnection::Receive(std::vector<std::vector<uint8_t>>& frames) {
  std::array<uint8_t, kReceiveBytes> buffer;
  for (int i = 0; i < kReadsMax; ++i) {
    const ssize_t got = ::recv(fd_.get(), buffer.data(), buffer.size(), 0);
    if (got == 0) return absl::UnavailableError("the peer closed the link");
    if (got < 0) return WouldBlock() ? absl::OkStatus() : SystemError("reading from the peer");
    RETURN_IF_ERROR(cutter_.Feed({buffer.data(), static_cast<size_t>(got)}, frames));
    if (static_cast<size_t>(got) < buffer.size()) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<Fd> StartConnect(const SocketAddress& to) {
  Fd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) return SystemError("opening a socket");
  SetNoDelay(fd.get());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0 &&
      errno != EINPROGRESS) {
    return SystemError(absl::StrCat("connecting to ", to.ToString()));
  }
  return fd;
}

absl::Status ConnectResult(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  return absl::UnavailableError(std::strerror(error));
}

absl::StatusOr<Fd> Listen(const SocketAddress& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) return SystemError("opening a socket");
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    return SystemError(absl::StrCat("listening on ", address.ToString()));
  }
  return fd;
}

absl::StatusOr<SocketAddress> LocalAddress(int fd) { return Ask(::getsockname, fd); }
absl::StatusOr<SocketAddress> PeerAddress(int fd) { return Ask(::getpeername, fd); }

absl::Status ReadUpTo(int fd, size_t size_max, std::vector<uint8_t>& bytes) {
  const size_t before = bytes.size();
  bytes.resize(size_max);
  const ssize_t got = ::recv(fd, bytes.data() + before, size_max - before, 0);
  bytes.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (got == 0) return absl::UnavailableError("the peer closed the connection");
  return got > 0 || WouldBlock() ? absl::OkStatus() : SystemError("reading from the peer");
}

absl::StatusOr<Fd> Accept(int listener) {
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.open()) return WouldBlock() ? absl::NotFoundError("nobody waits") : SystemError("accept");
  SetNoDelay(fd.get());
  return fd;
}

}  // namespace baton::kv
