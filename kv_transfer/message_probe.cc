// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/message_probe.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/ensure.h"

namespace baton::kv {
namespace {

constexpr uint64_t kPatternSeed = 0x6261746f6e;
constexpr uint64_t kLatencyBytes = 8;
constexpr uint64_t kRunBytes = 4u << 10;
constexpr uint64_t kRuns = 32;  // of a message that is compared with one of one run
static_assert(kRuns * kRunBytes >= MessageProbe::kPatternBytes && kRunBytes >= kProbeRunMin);
constexpr uint32_t kLatencyRounds = 32;
constexpr uint32_t kRunRounds = 32;  // half of them as one run
constexpr uint64_t kWindowMax = 8;
// Of each phase; all of them together stay below a tenth of a second.
constexpr absl::Duration kRoundsMax = absl::Milliseconds(10);
constexpr absl::Duration kStreamMax = absl::Milliseconds(20);
constexpr absl::Duration kGrownMax = absl::Milliseconds(4);  // a message that takes so long is one
constexpr uint64_t kStreamBytesMax = 64u << 20;

// Messages at once in the stream.  Of slow ones no more than keep the link busy while echoes are on
// their way: one that has arrived in part would be counted wholly or not at all.
uint64_t WindowOf(absl::Duration moving, absl::Duration latency) {
  if (moving < kGrownMax / 2) return kWindowMax;
  const double more = absl::FDivDuration(latency, moving);
  return more < 0.1 ? 1 : std::min(2 + static_cast<uint64_t>(more), kWindowMax);
}

}  // namespace

MessageProbe::MessageProbe(uint64_t message_bytes, absl::Span<uint8_t> region, Send send,
                           TransportName transport)
    : message_bytes_(message_bytes),
      region_(region),
      send_(std::move(send)),
      transport_(std::move(transport)) {
  ENSURE(message_bytes_ >= kRuns * kRunBytes && message_bytes_ % kRunBytes == 0);
  ENSURE(region_.size() >= 2 * message_bytes_);
}

void MessageProbe::Start(uint64_t token) {
  token_ = token;
  FillPattern(kPatternSeed, region_.first(kPatternBytes));
  phase_ = Phase::kPattern;
  SendProbe(kPatternBytes, kPatternSeed, 0);
}

void MessageProbe::Fail(const absl::Status& why) {
  phase_ = Phase::kDone;
  if (!result_.has_value() || result_->ok()) result_ = why;
}

void MessageProbe::SendProbe(uint64_t bytes, uint64_t seed, uint64_t run) {
  MessageHeader header{.kind = MessageHeader::Kind::kProbe, .token = token_};
  header.write = ++sent_;
  header.total = seed;
  header.offset = run;
  // A pattern is sent from where it is.
  const bool wraps = seed != 0 || at_ + bytes > region_.size();
  const absl::Span<const uint8_t> from = region_.subspan(wraps ? 0 : at_, bytes);
  at_ = (wraps ? 0 : at_) + bytes;
  std::vector<absl::Span<const uint8_t>> payload;
  const uint64_t runs = run == 0 ? 1 : bytes / run;
  for (uint64_t i = 0; i < runs; ++i) {
    payload.push_back(run == 0 ? from : from.subspan(Scattered(i, runs) * run, run));
  }
  send_(header, payload);
}

void MessageProbe::OnMessage(const PathMessage& message, absl::Time now) {
  if (message.step == PathStep::kChecked && phase_ == Phase::kPattern) {
    if (!message.ok) return Fail(absl::UnavailableError(message.text));
    echoed_ = sent_;
    Enter(Phase::kLatency, now);
    NextRound();
  } else if (message.step == PathStep::kEcho) {
    OnEcho(message.number);
  }
}

void MessageProbe::Enter(Phase phase, absl::Time now) {
  phase_ = phase;
  phase_first_ = sent_;
  rounds_ = 0;
  phase_start_ = now;
}

void MessageProbe::NextRound() {
  round_start_ = RealClock().Now();
  switch (phase_) {
    case Phase::kLatency:
      return SendProbe(kLatencyBytes, 0, 0);
    case Phase::kGrow:
      return SendProbe(bytes_, 0, 0);
    case Phase::kRuns:
      return SendProbe(kRuns * kRunBytes, 0, rounds_ % 2 == 0 ? 0 : kRunBytes);
    default:
      return;  // Step streams
  }
}

void MessageProbe::OnEcho(uint64_t number) {
  // In any order: probes may travel on several connections.
  if (number <= phase_first_ || number > sent_ || echoed_ == sent_) return;
  ++echoed_;
  const absl::Time now = RealClock().Now();
  if (phase_ == Phase::kStream) return StreamEcho(now);
  const absl::Duration took = now - round_start_;
  ++rounds_;
  if (phase_ == Phase::kLatency) {
    LatencyRound(took, now);
  } else if (phase_ == Phase::kGrow) {
    GrowRound(took, now);
  } else if (phase_ == Phase::kRuns) {
    RunsRound(took, now);
  }
  NextRound();
}

void MessageProbe::LatencyRound(absl::Duration took, absl::Time now) {
  latency_.Note(took);
  if (rounds_ < kLatencyRounds && (rounds_ < 2 || now - phase_start_ < kRoundsMax)) return;
  Enter(Phase::kGrow, now);
  bytes_ = kPatternBytes;
}

// On a slow link a large message would outlast the measurement.
void MessageProbe::GrowRound(absl::Duration took, absl::Time now) {
  const absl::Duration moving = std::max(took - latency_.best(), took / 4);
  if (took < kGrownMax + latency_.best() && bytes_ < message_bytes_) {
    bytes_ = std::min(2 * bytes_, message_bytes_);
    return;
  }
  window_ = WindowOf(moving, latency_.best());
  Enter(Phase::kRuns, now);
}

void MessageProbe::RunsRound(absl::Duration took, absl::Time now) {
  (rounds_ % 2 == 1 ? whole_ : apart_).Note(took);
  if (rounds_ < kRunRounds && (rounds_ < 2 || now - phase_start_ < kRoundsMax)) return;
  Enter(Phase::kStream, now);
  meter_.Start(now);
}

void MessageProbe::StreamEcho(absl::Time now) {
  const uint64_t bytes = (echoed_ - phase_first_) * bytes_;
  meter_.Note(bytes, now);
  if (meter_.elapsed(now) < kStreamMax && bytes < kStreamBytesMax) return;
  measure_.info.data_path = 'B';
  measure_.info.transport = transport_();
  measure_.info.cost.latency = latency_.best();
  measure_.info.cost.per_operation = PerOperation(apart_.best(), whole_.best(), kRuns);
  measure_.info.cost.bandwidth = meter_.best(bytes, now);
  phase_ = Phase::kDone;
  result_ = measure_;
}

bool MessageProbe::Step() {
  bool any = false;
  while (phase_ == Phase::kStream && sent_ - echoed_ < window_) {
    SendProbe(bytes_, 0, 0);
    any = true;
  }
  return any;
}

}  // namespace baton::kv
