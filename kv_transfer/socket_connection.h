// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One non-blocking TCP connection that carries frames.
//
// Bounds: at most kFrameBytesMax of an unfinished frame are held (FrameCutter), one read
// takes at most 256 KiB, and at most kSendBytesMax wait for a slow reader: more is an error,
// never growth (K5).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kv_transfer/frame.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/socket_fd.h"

namespace baton::kv {

class SocketConnection {
 public:
  static constexpr uint64_t kSendBytesMax = 4u << 20;

  explicit SocketConnection(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  // RESOURCE_EXHAUSTED: the peer does not read; give the connection up.
  absl::Status Send(std::vector<uint8_t> frame);
  // Writes what takes no waiting.
  absl::Status Flush();
  bool wants_write() const { return !waiting_.empty(); }
  // Appends whole frames.  UNAVAILABLE: the peer closed or broke the connection;
  // INVALID_ARGUMENT: what it sent are no frames.
  absl::Status Receive(std::vector<std::vector<uint8_t>>& frames);
  // As if the bytes had just been received.
  absl::Status Feed(absl::Span<const uint8_t> bytes, std::vector<std::vector<uint8_t>>& frames) {
    return cutter_.Feed(bytes, frames);
  }

 private:
  Fd fd_;
  FrameCutter cutter_;
  std::deque<std::vector<uint8_t>> waiting_;
  uint64_t waiting_bytes_ = 0;
  size_t sent_of_first_ = 0;
};

// Starts connecting; writable when done, then ConnectResult.
absl::StatusOr<Fd> StartConnect(const SocketAddress& to);
absl::Status ConnectResult(int fd);
// Port 0: any.  The address in use is an UNAVAILABLE that says so.
absl::StatusOr<Fd> Listen(const SocketAddress& address);
absl::StatusOr<SocketAddress> LocalAddress(int fd);
absl::StatusOr<SocketAddress> PeerAddress(int fd);
// Appends what takes no waiting until `bytes` has `size_max`.  UNAVAILABLE: closed or broken.
absl::Status ReadUpTo(int fd, size_t size_max, std::vector<uint8_t>& bytes);
// None: nobody is waiting.
absl::StatusOr<Fd> Accept(int listener);

}  // namespace baton::kv
