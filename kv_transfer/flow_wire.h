// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The bytes of a flow: a TCP connection that carries KV one way, from a writer to an owner.
//
//   preamble   "BKVF", u32 version, u64 token      once; the owner named the link by the token
//   message    u32 header bytes, u64 payload bytes, header (MessageHeader), payload
//
// A flow comes to the port of the control links; its first four bytes are no length of a frame,
// which tells the two apart.  A write is one message, its offset 0.  Little-endian.
//
// All of it is foreign bytes to the reader: pure decoders, typed errors, bounded memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kv_transfer/frame.h"

namespace baton::kv {

inline constexpr uint32_t kFlowMagic = 0x4656'4b42;  // "BKVF"
inline constexpr size_t kFlowPreambleBytes = 16;
inline constexpr size_t kFlowPrefixBytes = 12;
// Above the header of a write of kDataTargetsMax blocks.
inline constexpr uint32_t kFlowHeaderBytesMax = 64u << 10;
static_assert(kFlowMagic > kFrameBytesMax);

std::vector<uint8_t> EncodeFlowPreamble(uint64_t token);
// Whether `bytes`, the first of a connection, can begin a flow; none: too few to tell.
std::optional<bool> BeginsFlow(absl::Span<const uint8_t> bytes);
// The token.  REQUIRES: kFlowPreambleBytes bytes that begin a flow.
absl::StatusOr<uint64_t> DecodeFlowPreamble(absl::Span<const uint8_t> bytes);

struct FlowPrefix {
  uint32_t header_bytes = 0;
  uint64_t payload_bytes = 0;
};
// The prefix and the header behind it.
std::vector<uint8_t> EncodeFlowMessage(absl::Span<const uint8_t> header, uint64_t payload_bytes);
// REQUIRES: kFlowPrefixBytes bytes.
absl::StatusOr<FlowPrefix> DecodeFlowPrefix(absl::Span<const uint8_t> bytes);

}  // namespace baton::kv
