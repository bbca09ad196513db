// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A writer's UcxTransport in a process of its own, which a test can stop, wake and kill.
//
// The test process holds the proxy; the child does what the proxy asks and sends back what
// its transport says.  Sources live in shared memory, from which the child fills its own pool
// before each Write.  Fork it before any thread exists.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "kv_transfer/socket_fd.h"
#include "kv_transfer/ucx_transport.h"

namespace baton::kv {

class ForkedWriter final : public WriterTransport {
 public:
  // The child waits for Start, which says where the owner is.
  explicit ForkedWriter(const UcxTransportOptions& options);
  ~ForkedWriter() override;

  void Start(uint16_t port);
  void Signal(int signal);
  void Kill();  // and waits for its end
  pid_t pid() const { return child_; }
  uint8_t* pool() const { return mirror_; }

  void Accept(const Ticket& ticket) override;
  void Write(WriteId id, GrantKey key, uint32_t layer,
             absl::Span<const WritePiece> pieces) override;
  void SendCommit(const Commit& commit) override;
  void Abandon(GrantKey key, const absl::Status& why) override;
  void Poll(std::vector<TransportEvent>& events) override;

 private:
  void Request(std::vector<uint8_t> request);

  const Layout layout_;
  uint8_t* mirror_ = nullptr;
  Fd channel_;
  pid_t child_ = -1;
  std::vector<uint8_t> received_;
};

}  // namespace baton::kv
