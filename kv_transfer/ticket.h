// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The right to write some blocks of another process's pool, and the message that ends it.
//
// Both travel as bytes: a Ticket from decode through the front end to prefill, a Commit from
// prefill to decode.  Decode* is given foreign bytes: any input, a typed error, no more memory
// than the input justifies (docs/kv_transfer.md has the formats).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "base/request.h"

namespace baton::kv {

// What K4 compares: names one grant for ever.
struct GrantKey {
  Incarnation owner;      // the decode process that owns the blocks
  Generation generation;  // of that incarnation
  auto operator<=>(const GrantKey&) const = default;
};

struct Ticket {
  GrantKey key;
  Incarnation writer;  // the only process that may write
  AttemptId attempt;
  uint32_t first_position = 0;     // of blocks[0]'s first token; multiple of the block size
  uint32_t tokens = 0;             // of the sequence; positions [first_position, tokens) are pushed
  std::vector<BlockIndex> blocks;  // the owner's; not empty
  bool operator==(const Ticket&) const = default;
};

struct Commit {
  GrantKey key;
  Incarnation writer;
  AttemptId attempt;
  uint32_t blocks = 0;  // what was written: blocks × layers pieces of block_bytes
  uint32_t layers = 0;
  uint64_t bytes = 0;
  bool summed = false;  // every piece came with its sum; the transport says so, not its caller
  std::vector<OutputToken> first_tokens;  // one per choice
  uint32_t first_index = 0;               // output index of the first tokens
  // What PromptStats reports.
  uint32_t cached_tokens = 0;
  uint32_t computed_tokens = 0;
  absl::Duration queued, compute, transfer, exposed, predicted;
  bool operator==(const Commit&) const = default;
};

std::vector<uint8_t> Encode(const Ticket& ticket);
std::vector<uint8_t> Encode(const Commit& commit);
absl::StatusOr<Ticket> DecodeTicket(absl::Span<const uint8_t> bytes);
absl::StatusOr<Commit> DecodeCommit(absl::Span<const uint8_t> bytes);

}  // namespace baton::kv
