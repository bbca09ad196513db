// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What two UCX reactors say to each other beside the protocol: how memory is reached, the
// steps by which a data path comes up, and the header of a path-B message.
//
// All of it is foreign bytes to the reader: pure decoders, typed errors, bounded memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kv_transfer/frame.h"

namespace baton::kv {

// In an owner's Hello, path 'A' (one host) and 'R' (RDMA): one mapping holds a header, the probe
// region and the pool.
struct MemoryOffer {
  std::vector<uint8_t> worker_address;  // A: of UCX; R: RdmaAddress
  std::vector<uint8_t> key;
  uint64_t base = 0;   // in the owner's address space
  uint64_t bytes = 0;  // of the mapping
  uint64_t nonce = 0;  // first word of the mapping: proves that the key reached this memory
  uint64_t probe_offset = 0;
  uint64_t probe_bytes = 0;
  uint64_t pool_offset = 0;
  uint64_t pool_bytes = 0;
  bool operator==(const MemoryOffer&) const = default;
};
std::vector<uint8_t> Encode(const MemoryOffer& offer);
// Every region lies inside the mapping.
absl::StatusOr<MemoryOffer> DecodeMemoryOffer(absl::Span<const uint8_t> bytes);

// Of path 'R': the port of RDMA connections, at the host that the control link goes to.
std::vector<uint8_t> RdmaAddress(uint16_t port);
absl::StatusOr<uint16_t> RdmaPort(const MemoryOffer& offer);

// Path 'B': the blob is the UCX worker's address.  Path 'S': no blob; flows (flow_wire.h) come to
// the port of the control links.

// Inside DataPathMessage frames.  The writer leads, the owner answers.
enum class PathStep : uint8_t {
  kPropose = 1,   // writer: path; R: number is what its connection will say of itself
  kAnswer = 2,    // owner: path, ok or text; number: the token of this link's messages
  kCheck = 3,     // writer, A and R: bytes of the pattern of seed are in the probe region
  kChecked = 4,   // owner: ok or text
  kEcho = 5,      // owner, path B: probe message `number` arrived
  kMeasured = 6,  // writer: text is the transport; cost.  Not ok: no path came up, text is why;
                  // number 1: another link may have more luck
};
struct PathMessage {
  PathStep step = PathStep::kPropose;
  char path = '?';
  bool ok = false;
  uint64_t number = 0;
  uint64_t seed = 0;
  uint64_t bytes = 0;
  LinkCost cost;
  std::string text;
  bool operator==(const PathMessage&) const = default;
};
std::vector<uint8_t> Encode(const PathMessage& message);
absl::StatusOr<PathMessage> DecodePathMessage(absl::Span<const uint8_t> bytes);

// Before the payload of each path-B message.  A write larger than one message comes in
// several, in order; the first carries the DataHeader, and nothing lands before it was checked.
// A probe's runs are kProbeRunMin or more, and a pattern is one run.
inline constexpr uint64_t kProbeRunMin = 1024;
struct MessageHeader {
  enum class Kind : uint8_t { kData = 1, kProbe = 2 } kind = Kind::kData;
  uint64_t token = 0;                // the owner's name for the link
  uint64_t write = 0;                // kProbe: its number
  uint64_t offset = 0;               // of this payload in the write's bytes; kProbe: the bytes of
                                     // each run that lands apart from the others, 0: all in one
  uint64_t total = 0;                // of all payloads; kProbe: the pattern's seed, 0: none
  std::vector<uint8_t> data_header;  // at offset 0 of kData
  bool operator==(const MessageHeader&) const = default;
};
std::vector<uint8_t> Encode(const MessageHeader& header);
absl::StatusOr<MessageHeader> DecodeMessageHeader(absl::Span<const uint8_t> bytes);

// The known pattern: every word depends on the seed and its place.
void FillPattern(uint64_t seed, absl::Span<uint8_t> bytes);
bool HasPattern(uint64_t seed, absl::Span<const uint8_t> bytes);

}  // namespace baton::kv
