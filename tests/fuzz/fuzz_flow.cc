// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as a flow of KV, cut anywhere: nothing lands outside the memory that was given for
// it, and what ends was whole.
// DEPS: kv_sockets
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ensure.h"
#include "kv_transfer/socket_flow.h"

namespace {

using namespace baton::kv;  // NOLINT: a fuzz target of one file

constexpr uint64_t kRoom = 1000;

class Memory final : public FlowReceiver::Target {
 public:
  absl::StatusOr<std::vector<absl::Span<uint8_t>>> Begin(const MessageHeader& header,
                                                         uint64_t payload_bytes) override {
    ENSURE(!landing_);
    if (header.total != payload_bytes) return absl::InvalidArgumentError("lengths differ");
    std::vector<absl::Span<uint8_t>> pieces;
    if (payload_bytes > kRoom || header.write % 4 == 0) return pieces;
    landing_ = true;
    // A vector of its own, so that a byte too many is seen.
    memory_.assign(payload_bytes, 0);
    memory_.shrink_to_fit();
    const uint64_t cut = std::min<uint64_t>(payload_bytes, header.write % 50);
    if (cut > 0) pieces.push_back(absl::MakeSpan(memory_).subspan(0, cut));
    if (cut < payload_bytes) pieces.push_back(absl::MakeSpan(memory_).subspan(cut));
    return pieces;
  }
  void End(const MessageHeader&, uint64_t payload_bytes) override {
    ENSURE(landing_ && payload_bytes == memory_.size());
    landing_ = false;
  }

 private:
  std::vector<uint8_t> memory_;
  bool landing_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t step = 1 + data[0];
  int ends[2];
  ENSURE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const Fd out(ends[0]);
  FlowReceiver receiver{Fd(ends[1])};
  Memory memory;
  for (size_t at = 1; at < size; at += step) {
    const size_t bytes = std::min(step, size - at);
    if (::send(out.get(), data + at, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) return 0;
    if (!receiver.Receive(kRoom, memory).ok()) return 0;
  }
  return 0;
}
