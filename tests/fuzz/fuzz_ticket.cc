// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Tickets and Commits come from other processes.  What decodes must encode to the same bytes.
// DEPS: kv_core
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ensure.h"
#include "kv_transfer/ticket.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const uint8_t> bytes(data, size);
  if (const auto ticket = baton::kv::DecodeTicket(bytes); ticket.ok()) {
    ENSURE(baton::kv::Encode(*ticket) == std::vector<uint8_t>(data, data + size));
  }
  if (const auto commit = baton::kv::DecodeCommit(bytes); commit.ok()) {
    ENSURE(baton::kv::Encode(*commit).size() == size);
  }
  return 0;
}
