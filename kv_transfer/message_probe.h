// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How a path of checked messages (B) is verified and measured at connection, from the writer's
// side: a known pattern, then round trips of 8 bytes, then a window of large messages for 20 ms.
//
//   Start ─► pattern ─► owner: checked ─► round trips ─► stream ─► measure
//
// The owner answers each probe by a PathMessage (ucx_wire.h).
//
// Thread:     the reactor's.  Ownership: `send` may be called by Start, OnMessage and Step, and
//             may call Fail.  The bytes it is given live as long as the probe.
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
  using Send = std::function<void(const MessageHeader& header, absl::Span<const uint8_t> payload)>;
  // What came up, asked for once it is measured.
  using TransportName = std::function<std::string()>;
  // Messages of `message_bytes` measure the bandwidth.
  MessageProbe(uint64_t message_bytes, Send send, TransportName transport);

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
  enum class Phase : uint8_t { kIdle, kPattern, kLatency, kStream, kDone };

  void SendProbe(uint64_t bytes, uint64_t seed);
  void OnEcho(uint64_t number, absl::Time now);
  void FinishStream(absl::Time now);

  const uint64_t message_bytes_;
  const Send send_;
  const TransportName transport_;
  uint64_t token_ = 0;
  Phase phase_ = Phase::kIdle;
  std::vector<uint8_t> scratch_;
  uint64_t sent_ = 0, echoed_ = 0, phase_first_ = 0;
  absl::Time round_start_;
  RateMeter meter_;
  PathMeasure measure_;
  std::optional<absl::StatusOr<PathMeasure>> result_;
};

}  // namespace baton::kv
