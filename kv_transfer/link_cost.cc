// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/link_cost.h"

#include <algorithm>
#include <cmath>

#include "base/ensure.h"

namespace baton::kv {
namespace {

constexpr double kWeightMin = 1.0 / 8, kWeightMax = 1.0 / 2;
// An estimate so old is worth half of what a sample says.
constexpr absl::Duration kOld = absl::Seconds(60);
// A span of which the bytes are this part at least tells of bandwidth; of latency, the others.
constexpr double kTellingPart = 0.5;
// What is left for the bytes once the fixed costs are taken off is at least this part of a span.
constexpr double kLeastPart = 0.1;
constexpr double kLeastSeconds = 1e-9;
constexpr uint32_t kSpansMax = 100;
constexpr absl::Duration kTimeMax = absl::Hours(1);

double Seconds(absl::Duration time) { return absl::FDivDuration(time, absl::Seconds(1)); }

double WeightOf(absl::Duration age) {
  return std::clamp(absl::FDivDuration(age, kOld) * kWeightMax, kWeightMin, kWeightMax);
}

uint64_t Nanoseconds(absl::Duration time) {
  return static_cast<uint64_t>(
      absl::ToInt64Nanoseconds(std::clamp(time, absl::ZeroDuration(), kTimeMax)));
}

absl::Duration GetTime(ByteReader& in) {
  const uint64_t nanoseconds = in.Get<uint64_t>();
  if (nanoseconds > Nanoseconds(kTimeMax)) {
    in.GetBytes(in.remaining() + 1);  // makes `in` not ok
    return absl::ZeroDuration();
  }
  return absl::Nanoseconds(static_cast<int64_t>(nanoseconds));
}

double GetRate(ByteReader& in) {
  const double rate = in.Get<double>();
  if (std::isfinite(rate) && rate >= 0) return rate;
  in.GetBytes(in.remaining() + 1);  // makes `in` not ok
  return 0;
}

}  // namespace

void LinkMeter::Begin(absl::Time now, uint32_t starts) {
  start_ = now;
  done_ = LinkWork{.starts = starts};
  writes_ = 0;
  failed_ = false;
}

void LinkMeter::Posted(absl::Time now) {
  if (out_++ == 0) Begin(now, 1);
}

std::optional<LinkSample> LinkMeter::Ended(const LinkWork& work, bool ok, absl::Time now) {
  ENSURE(out_ > 0);
  --out_;
  ++writes_;
  done_ += work;
  failed_ = failed_ || !ok;
  const bool cut = now - start_ >= kSpanMax && writes_ >= kSpanWritesMin;
  if (out_ > 0 && !cut) return std::nullopt;
  const LinkSample sample{done_, now - start_};
  const bool failed = failed_;
  Begin(now, 0);
  if (failed) return std::nullopt;
  return sample;
}

double Follower::Next(double value, double said, double weight) {
  ENSURE(value > 0 && said > 0);
  ENSURE(weight > 0 && weight <= 1);
  const double ratio = said / value;
  const bool far = ratio > kFar || ratio < 1 / kFar;
  if (!far) {
    far_count_ = 0;
    return value * std::pow(ratio, weight);
  }
  const bool same_side = far_count_ > 0 && (far_[far_count_ - 1] > value) == (said > value);
  if (!same_side) far_count_ = 0;
  far_[far_count_++] = said;
  if (far_count_ == kChange) {
    far_count_ = 0;
    std::sort(far_.begin(), far_.end());
    return far_[kChange / 2];
  }
  return value * std::pow(std::clamp(ratio, 1 / kFar, kFar), weight);
}

void LinkEstimate::Add(const LinkSample& sample, absl::Time now) {
  const LinkWork& work = sample.work;
  const double took = Seconds(sample.took);
  const bool mixed = work.summed_bytes > 0 && work.summed_bytes < work.bytes;
  if (work.bytes == 0 || took <= 0 || mixed) return;
  // The probe counts as much as one span, an estimate as much as those before it.
  const double weight = std::max(WeightOf(now - updated_), 1.0 / (spans_ + 2));
  spans_ = std::min(spans_ + 1, kSpansMax);
  const double fixed =
      Seconds(cost_.Predict({.operations = work.operations, .starts = work.starts}));
  const double predicted = Seconds(cost_.Predict(work));
  // A busy machine makes a probe's rounds longer, never shorter, and differences of them anything:
  // of operations that would outlast a span, only what it has room for is believed.
  const double operations = Seconds(cost_.per_operation) * static_cast<double>(work.operations);
  if (operations > kTellingPart * predicted && took < predicted) {
    const double room = std::max(took - (predicted - operations), kLeastPart * took);
    cost_.per_operation = absl::Seconds(room / static_cast<double>(work.operations));
    updated_ = now;
    return;
  }
  // What takes far too long for its few bytes is a slow link, not a long start.
  const bool few =
      predicted - fixed < kTellingPart * predicted && took < Follower::kFar * predicted;
  if (cost_.bandwidth > 0 && few) {
    if (work.starts == 0) return;
    const double rest = predicted - Seconds(cost_.latency) * work.starts;
    SayLatency(std::max(took - rest, kLeastPart * took) / work.starts, weight);
  } else {
    SayBytes(work, std::max(took - fixed, kLeastPart * took), weight);
  }
  updated_ = now;
}

void LinkEstimate::SayLatency(double seconds, double weight) {
  const double known = std::max(Seconds(cost_.latency), kLeastSeconds);
  cost_.latency = absl::Seconds(latency_.Next(known, std::max(seconds, kLeastSeconds), weight));
}

// The bytes of `work` took so long.
void LinkEstimate::SayBytes(const LinkWork& work, double seconds, double weight) {
  const auto bytes = static_cast<double>(work.bytes);
  if (cost_.bandwidth <= 0) {
    cost_.bandwidth = bytes / seconds;
    return;
  }
  if (work.summed_bytes == 0) {
    cost_.bandwidth = plain_.Next(cost_.bandwidth, bytes / seconds, weight);
    return;
  }
  const double moving = bytes / cost_.bandwidth;
  if (cost_.sums_bandwidth <= 0) {
    if (seconds > moving) cost_.sums_bandwidth = bytes / (seconds - moving);
    return;
  }
  // Both parts by the same factor: spans without sums tell which of them it was.
  const double known = moving + bytes / cost_.sums_bandwidth;
  const double factor = summed_.Next(known / bytes, seconds / bytes, weight) / (known / bytes);
  cost_.bandwidth /= factor;
  cost_.sums_bandwidth /= factor;
}

void Put(ByteWriter& out, const LinkCost& cost) {
  out.Put<double>(cost.bandwidth);
  out.Put<uint64_t>(Nanoseconds(cost.latency));
  out.Put<uint64_t>(Nanoseconds(cost.per_operation));
  out.Put<double>(cost.sums_bandwidth);
}

LinkCost GetLinkCost(ByteReader& in) {
  LinkCost cost;
  cost.bandwidth = GetRate(in);
  cost.latency = GetTime(in);
  cost.per_operation = GetTime(in);
  cost.sums_bandwidth = GetRate(in);
  return cost;
}

}  // namespace baton::kv
