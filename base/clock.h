// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The one door to time.  Logic never reads a clock: its Tick() is given the moment.
//
// Moments are absl::Time; on the real clock they are monotonic (steady clock since
// an arbitrary epoch), so they are comparable within a process and never travel.
#pragma once

#include <chrono>

#include "absl/time/time.h"

namespace baton {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class RealClock final : public Clock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() +
           absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace baton
