// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A process's own clock in virtual time: it started elsewhere and runs a little fast or slow.
//
// Thread: values.  Cost: an addition.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "base/random.h"

namespace baton::sim {

struct SkewedClock {
  absl::Duration offset;
  int64_t drift_ppm = 0;

  absl::Time Local(absl::Time global) const {
    return global + offset + (global - absl::UnixEpoch()) * drift_ppm / 1000000;
  }
  // A moment at which the clock shows `local`, or hardly more.
  absl::Time Global(absl::Time local) const {
    const absl::Duration elapsed = local - offset - absl::UnixEpoch();
    return absl::UnixEpoch() + elapsed - elapsed * drift_ppm / (1000000 + drift_ppm) +
           absl::Nanoseconds(1);
  }
};

struct ClockOptions {
  absl::Duration offset_max;
  uint32_t drift_ppm_max = 0;  // fast or slow

  SkewedClock Draw(Random& random) const {
    SkewedClock clock;
    clock.offset = absl::Microseconds(random.Between(0, absl::ToInt64Microseconds(offset_max)));
    clock.drift_ppm = static_cast<int64_t>(random.Between(0, 2 * uint64_t{drift_ppm_max})) -
                      static_cast<int64_t>(drift_ppm_max);
    return clock;
  }
};

}  // namespace baton::sim
