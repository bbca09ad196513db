// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How a link's cost (base/link_cost.h) is kept true by the writes that go over it.
//
//   writes ─► LinkMeter: spans without a pause ─► LinkEstimate ─► LinkCost
//
// A span counts all that was outstanding in it, so what waited behind other writes of the link
// is no part of any cost.  The per-operation cost stays as probed unless it cannot be: blocks
// of one size cannot tell it from bandwidth.
//
// Thread:     the owner's.  Cost: a few operations per write.  Time: handed in.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/bytes.h"
#include "base/link_cost.h"

namespace baton::kv {

// A span in which a link was never idle, and what it moved.
struct LinkSample {
  LinkWork work;
  absl::Duration took;
};

// Cuts the writes of one link into spans.
class LinkMeter {
 public:
  // A span that lasts so long and has seen so many writes end is one, though it goes on.
  static constexpr absl::Duration kSpanMax = absl::Milliseconds(100);
  static constexpr uint32_t kSpanWritesMin = 8;

  void Posted(absl::Time now);
  // The span that it ends; none while one goes on, and of a span in which a write failed.
  std::optional<LinkSample> Ended(const LinkWork& work, bool ok, absl::Time now);

 private:
  void Begin(absl::Time now, uint32_t starts);

  uint32_t out_ = 0;
  absl::Time start_;
  LinkWork done_;
  uint32_t writes_ = 0;  // ended in the span
  bool failed_ = false;
};

// Follows a positive number through samples of it: by a part of what each says, in logarithms.
// One sample that is far off counts no more than one twice, or half, the value; several far off
// on the same side in a row are a change, and their median is the new value.
class Follower {
 public:
  static constexpr double kFar = 2;
  static constexpr size_t kChange = 3;

  // REQUIRES: both above 0, 0 < weight <= 1.
  double Next(double value, double said, double weight);

 private:
  std::array<double, kChange> far_{};
  size_t far_count_ = 0;
};

class LinkEstimate {
 public:
  LinkEstimate() = default;
  LinkEstimate(const LinkCost& probed, absl::Time now) : cost_(probed), updated_(now) {}

  void Add(const LinkSample& sample, absl::Time now);
  const LinkCost& cost() const { return cost_; }
  // The probe, or the last span that said something.
  absl::Time updated() const { return updated_; }

 private:
  void SayLatency(double seconds, double weight);
  void SayBytes(const LinkWork& work, double seconds, double weight);

  LinkCost cost_;
  absl::Time updated_ = absl::InfinitePast();
  uint32_t spans_ = 0;  // that said something, as far as that matters
  Follower latency_, plain_, summed_;
};

// On the wire.  What no link can have leaves `in` not ok().
void Put(ByteWriter& out, const LinkCost& cost);
LinkCost GetLinkCost(ByteReader& in);

}  // namespace baton::kv
