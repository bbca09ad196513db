// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How a path of checked messages (B) is verified and measured at connection, from the writer's
// side, each step by round trips but the last:
//
//   Start ─► pattern, checked by the owner
//         ─► 8 bytes: latency
//         ─► ever larger messages: how large one may be here, and what bursts pass is used up
//         ─► the same bytes as one run and as many, by turns: the cost of one more run
//         ─► a stream for 20 ms: bandwidth
//
// The owner answers each probe by a PathMessage (ucx_wire.h).  Bytes come from and land in a
// region larger than a cache, as those of pools do.
//
// Thread:     the reactor's.  Ownership: `send` may be called by Start, OnMessage and Step, and
//             may call Fail.  `region` has memory from Start to the result; what was sent may be
//             read even later.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kv_transfer/ucx_path.h"
#include "kv_transfer/ucx_wire.h"

namespace baton::kv {

class MessageProbe {
 public:
  static constexpr uint64_t kPatternBytes = 64u << 10;

  using Pieces = absl::Span<const absl::Span<const uint8_t>>;
  using Send = std::function<void(const MessageHeader& header, Pieces payload)>;
  // What came up, asked for once it is measured.
  using TransportName = std::function<std::string()>;
  // Messages of `message_bytes` at most measure the bandwidth.
  // REQUIRES: message_bytes is a multiple of 4 KiB, 128 KiB or more; a region of two at least.
  MessageProbe(uint64_t message_bytes, absl::Span<uint8_t> region, Send send,
               TransportName transport);

  void Start(uint64_t token);
  void OnMessage(const PathMessage& message, absl::Time now);
  // True if something was sent.
  bool Step();
  // Also after a good measure: the path broke.  The first failure stays.
  void Fail(const absl::Status& why);
  bool under_way() const { return phase_ != Phase::kIdle && phase_ != Phase::kDone; }
  // That of the path (ucx_path.h).
  const std::optional<absl::StatusOr<PathMeasure>>& result() const { return result_; }

 private:
  enum class Phase : uint8_t { kIdle, kPattern, kLatency, kGrow, kRuns, kStream, kDone };

  // `run`: of the bytes that land apart from one another; 0: all in one.
  void SendProbe(uint64_t bytes, uint64_t seed, uint64_t run);
  void Enter(Phase phase, absl::Time now);
  void NextRound();
  void OnEcho(uint64_t number);
  void RoundOver(absl::Time now);
  void LatencyRound(absl::Duration took, absl::Time now);
  void GrowRound(absl::Duration took, absl::Time now);
  void RunsRound(absl::Duration took, absl::Time now);
  void StreamEcho(absl::Time now);

  const uint64_t message_bytes_;
  const absl::Span<uint8_t> region_;
  const Send send_;
  const TransportName transport_;
  uint64_t token_ = 0;
  Phase phase_ = Phase::kIdle;
  uint64_t at_ = 0;     // next bytes of the region
  uint64_t bytes_ = 0;  // of a message, as far as it has grown
  uint64_t window_ = 1;
  uint64_t sent_ = 0, echoed_ = 0, phase_first_ = 0;
  uint32_t rounds_ = 0;  // of the phase
  absl::Time phase_start_, round_start_;
  BestTime latency_, whole_, apart_;
  RateMeter meter_;
  PathMeasure measure_;
  std::optional<absl::StatusOr<PathMeasure>> result_;
};

}  // namespace baton::kv
