// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What two processes say on a link's control connection, and the header of a path-B message.
//
// On the wire a frame is u32 length, u8 type, body; the length counts type and body
// (docs/kv_transfer.md has the tables).  Decoders are given foreign bytes: any input, a typed
// error, no more memory than the input justifies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_transfer/hello.h"
#include "kv_transfer/link_cost.h"
#include "kv_transfer/ticket.h"

namespace baton::kv {

inline constexpr uint32_t kFrameBytesMax = 1u << 20;  // length field included

// ── both ways ───────────────────────────────────────────────────────────────────────
// First in each direction is Hello; the answer is HelloRefused (and the end), or nothing.
struct HelloRefused {
  std::string field;
  std::string message;
  bool operator==(const HelloRefused&) const = default;
};
// The sender's data path is up, verified and measured.  Both sides' make the link up.
struct Ready {
  std::string transport;
  char data_path = '?';
  LinkCost cost;
  bool operator==(const Ready&) const = default;
};
// What a writer finds of a link as it uses it.
struct LinkReport {
  LinkCost cost;       // a bandwidth of 0: nothing to say
  absl::Duration age;  // of the cost
  uint64_t in_flight_bytes = 0;
  bool operator==(const LinkReport&) const = default;
};
// Every 200 ms.
struct Heartbeat {
  uint64_t ticks = 0;      // of the role loop: alive but wedged is seen
  Generation lowest_open;  // from the owner, as in RevokeFrame; 0 from a writer
  LinkReport link;         // from a writer
  bool operator==(const Heartbeat&) const = default;
};
// You were declared dead under this incarnation: drain, say Quiet, come back as another.
struct DeclaredDead {
  Incarnation incarnation;
  bool operator==(const DeclaredDead&) const = default;
};
// Between the two reactors, while they prepare, verify and measure; the cores ignore it.
struct DataPathMessage {
  std::vector<uint8_t> bytes;
  bool operator==(const DataPathMessage&) const = default;
};

// ── owner → writer ──────────────────────────────────────────────────────────────────
// Stop writing under the generation, for ever.  The answer is QuietFrame.  Every generation
// below `lowest_open` is closed as well (K11's record stays bounded by it).
struct RevokeFrame {
  Generation generation;
  Generation lowest_open;
  bool operator==(const RevokeFrame&) const = default;
};
// Path B: what became of the message `write`.  0: landed, visible.  1: refused, nothing landed.
struct WriteResult {
  uint64_t write = 0;
  bool landed = false;
  bool operator==(const WriteResult&) const = default;
};

// One layer of some blocks of one grant.  Path B: goes before the bytes of the message, which are
// the blocks' in the order of `targets`, block_bytes each.  Path A: in WrittenFrame.
struct DataHeader {
  GrantKey key;
  Incarnation writer;
  AttemptId attempt;
  uint64_t write = 0;  // the writer's number; comes back in WriteResult
  uint32_t layer = 0;
  std::vector<uint32_t> targets;  // indices into the ticket's blocks; strictly rising
  std::vector<uint32_t> sums;     // CRC32C of each one's bytes; empty: none was made
  bool operator==(const DataHeader&) const = default;
};
inline constexpr uint32_t kDataTargetsMax = 4096;

// ── writer → owner ──────────────────────────────────────────────────────────────────
// Nothing will land any more under the generation; none: under any of this incarnation.
struct QuietFrame {
  std::optional<Generation> generation;
  bool operator==(const QuietFrame&) const = default;
};
struct WriterFailedFrame {
  Generation generation;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string message;
  bool operator==(const WriterFailedFrame&) const = default;
};
// Path A: the bytes that the header names are visible, and these are their sums.
struct WrittenFrame {
  DataHeader header;  // with sums
  bool operator==(const WrittenFrame&) const = default;
};
// and Commit (ticket.h)

using Frame =
    std::variant<Hello, HelloRefused, Ready, Heartbeat, DeclaredDead, DataPathMessage, RevokeFrame,
                 WriteResult, QuietFrame, WriterFailedFrame, Commit, WrittenFrame>;

// Length, type and body.
std::vector<uint8_t> EncodeFrame(const Frame& frame);
// `bytes` is one whole frame as EncodeFrame made it.
absl::StatusOr<Frame> DecodeFrame(absl::Span<const uint8_t> bytes);

// Cuts a byte stream into whole frames.  Holds at most kFrameBytesMax.
class FrameCutter {
 public:
  // Appends the frames that `bytes` completes.  An error (a length above the bound or below 1)
  // is for ever: close the connection.
  absl::Status Feed(absl::Span<const uint8_t> bytes, std::vector<std::vector<uint8_t>>& frames);

 private:
  std::vector<uint8_t> pending_;
};

std::vector<uint8_t> Encode(const DataHeader& header);
absl::StatusOr<DataHeader> DecodeDataHeader(absl::Span<const uint8_t> bytes);

}  // namespace baton::kv
