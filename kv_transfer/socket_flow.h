// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The two ends of a flow (flow_wire.h) on a non-blocking TCP connection.  Bytes go from the
// sender's pool to the kernel and from the kernel to the owner's pool, with no copy between.
//
// Thread:     the reactor's.
// Cost:       one system call per 64 pieces of memory or budget's end.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kv_transfer/flow_wire.h"
#include "kv_transfer/socket_fd.h"
#include "kv_transfer/ucx_wire.h"

namespace baton::kv {

class FlowSender {
 public:
  explicit FlowSender(Fd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  void QueuePreamble(uint64_t token);
  // `payload` stays as it is until `tag` was sent.
  void Queue(const MessageHeader& header, absl::Span<const absl::Span<const uint8_t>> payload,
             uint64_t tag);
  // Writes what takes no waiting, about `budget` bytes at most.  Appends the tags of messages
  // that the kernel has taken whole.  UNAVAILABLE: the connection broke.
  absl::Status Flush(uint64_t budget, std::vector<uint64_t>& sent);
  uint64_t queued_bytes() const { return queued_bytes_; }

 private:
  struct Message {
    std::vector<uint8_t> head;
    std::vector<absl::Span<const uint8_t>> pieces;  // not yet taken; the head is the first
    size_t next = 0;                                // of them
    uint64_t tag = 0;
    bool tagged = false;
  };
  void Push(Message message);
  void Taken(uint64_t bytes, std::vector<uint64_t>& sent);

  Fd fd_;
  std::deque<Message> queue_;
  uint64_t queued_bytes_ = 0;
};

class FlowReceiver {
 public:
  // What a message means, and where its payload goes.
  class Target {
   public:
    virtual ~Target() = default;
    // Memory for the payload, in order, payload_bytes in all; it stays until End, or until the
    // receiver is destroyed.  Empty: the payload is read and dropped, and no End follows.
    // An error ends the flow.
    virtual absl::StatusOr<std::vector<absl::Span<uint8_t>>> Begin(const MessageHeader& header,
                                                                   uint64_t payload_bytes) = 0;
    // The payload is whole.
    virtual void End(const MessageHeader& header, uint64_t payload_bytes) = 0;
  };

  explicit FlowReceiver(Fd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }
  // Reads what is there, about `budget` bytes at most.  UNAVAILABLE: the peer closed or broke
  // the connection; INVALID_ARGUMENT: what it sent is no flow.
  absl::Status Receive(uint64_t budget, Target& target);
  // What was read ends in the middle of a message.
  bool in_message() const { return landing_ || drop_ > 0 || !ahead_.empty(); }

 private:
  static constexpr size_t kAheadBytes = 4096;

  // Takes what lies in `ahead_` as far as it goes.
  absl::Status Parse(Target& target);
  void Landed(uint64_t bytes);
  void EndIfWhole(Target& target);

  Fd fd_;
  std::vector<uint8_t> ahead_;  // read, not yet understood: less than a prefix and a header
  MessageHeader header_;        // of the payload being read
  uint64_t payload_bytes_ = 0;
  std::vector<absl::Span<uint8_t>> pieces_;  // still to be filled
  size_t next_ = 0;                          // of them
  uint64_t drop_ = 0;                        // bytes to read and forget
  bool landing_ = false;
};

}  // namespace baton::kv
