// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/message_probe.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/ensure.h"

namespace baton::kv {
namespace {

constexpr uint64_t kPatternBytes = 64u << 10;
constexpr uint64_t kPatternSeed = 0x6261746f6e;
constexpr uint64_t kRoundBytes = 8;
constexpr uint64_t kLatencyRounds = 16;
constexpr uint64_t kWindow = 8;
constexpr absl::Duration kStreamMax = absl::Milliseconds(20);
constexpr uint64_t kStreamBytesMax = 64u << 20;

}  // namespace

MessageProbe::MessageProbe(uint64_t message_bytes, Send send, TransportName transport)
    : message_bytes_(message_bytes), send_(std::move(send)), transport_(std::move(transport)) {
  ENSURE(message_bytes_ >= kPatternBytes);
}

void MessageProbe::Start(uint64_t token) {
  token_ = token;
  scratch_.resize(message_bytes_);
  FillPattern(kPatternSeed, absl::MakeSpan(scratch_));
  phase_ = Phase::kPattern;
  SendProbe(kPatternBytes, kPatternSeed);
}

void MessageProbe::Fail(const absl::Status& why) {
  phase_ = Phase::kDone;
  if (!result_.has_value() || result_->ok()) result_ = why;
}

void MessageProbe::SendProbe(uint64_t bytes, uint64_t seed) {
  MessageHeader header{.kind = MessageHeader::Kind::kProbe, .token = token_};
  header.write = ++sent_;
  header.total = seed;
  send_(header, absl::MakeConstSpan(scratch_).subspan(0, bytes));
}

void MessageProbe::OnMessage(const PathMessage& message, absl::Time now) {
  if (message.step == PathStep::kChecked && phase_ == Phase::kPattern) {
    if (!message.ok) return Fail(absl::UnavailableError(message.text));
    echoed_ = sent_;
    phase_first_ = sent_;
    phase_ = Phase::kLatency;
    round_start_ = now;
    SendProbe(kRoundBytes, 0);
  } else if (message.step == PathStep::kEcho) {
    OnEcho(message.number, now);
  }
}

void MessageProbe::OnEcho(uint64_t number, absl::Time now) {
  // In any order: probes may travel on several connections.
  if (number <= phase_first_ || number > sent_ || echoed_ == sent_) return;
  ++echoed_;
  if (phase_ == Phase::kLatency) {
    const absl::Duration took = (RealClock().Now() - round_start_) / 2;
    const bool first = echoed_ == phase_first_ + 1;
    measure_.info.latency = first ? took : std::min(measure_.info.latency, took);
    if (echoed_ - phase_first_ < kLatencyRounds) {
      round_start_ = RealClock().Now();
      return SendProbe(kRoundBytes, 0);
    }
    phase_ = Phase::kStream;
    phase_first_ = sent_;
    meter_.Start(now);
  } else if (phase_ == Phase::kStream) {
    FinishStream(RealClock().Now());
  }
}

void MessageProbe::FinishStream(absl::Time now) {
  const uint64_t bytes = (echoed_ - phase_first_) * message_bytes_;
  meter_.Note(bytes, now);
  if (meter_.elapsed(now) < kStreamMax && bytes < kStreamBytesMax) return;
  measure_.info.bandwidth_bytes_per_second = meter_.best(bytes, now);
  measure_.info.data_path = 'B';
  measure_.info.transport = transport_();
  measure_.per_operation = measure_.info.latency;
  phase_ = Phase::kDone;
  result_ = measure_;
}

bool MessageProbe::Step() {
  bool any = false;
  while (phase_ == Phase::kStream && sent_ - echoed_ < kWindow) {
    SendProbe(message_bytes_, 0);
    any = true;
  }
  return any;
}

}  // namespace baton::kv
