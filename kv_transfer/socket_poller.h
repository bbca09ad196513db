// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// epoll with keys: which of some descriptors are ready.  Level-triggered.
//
// Thread:     the reactor's; Wake from any.
// Ownership:  descriptors are borrowed; Remove before closing one.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kv_transfer/socket_fd.h"

namespace baton::kv {

struct ReadyFd {
  uint64_t key = 0;
  bool readable = false;  // or closed, or failed: reading says which
  bool writable = false;
};

class SocketPoller {
 public:
  static absl::StatusOr<SocketPoller> Create();

  void Add(int fd, uint64_t key, bool read, bool write);
  void Change(int fd, uint64_t key, bool read, bool write);
  void Remove(int fd);

  // Blocks up to `timeout` (zero: not at all); the wake-up itself is not reported.
  void Wait(absl::Duration timeout, std::vector<ReadyFd>& ready);
  // Ends the Wait under way or the next one.  Costs a system call only if one is under way.
  void Wake();
  // Announces that the owner is about to wait: whoever queues work after this will Wake.
  void PrepareToWait() { waiting_->store(true); }
  void DoNotWait() { waiting_->store(false); }

 private:
  SocketPoller() = default;
  Fd epoll_;
  Fd wake_;
  std::unique_ptr<std::atomic<bool>> waiting_;
};

}  // namespace baton::kv
