// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One bell per loop: whoever has news for a loop's owner rings it.
//
// Thread: Ring from any thread, Wait from one.  A ring before Wait is not lost.
#pragma once

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace baton {

class Bell {
 public:
  void Ring() {
    MutexLock lock(&mutex_);
    rung_ = true;
    condition_.NotifyOne();
  }
  // Until rung, at most `timeout` (an hour if longer); true if rung.  Resets the bell.
  bool Wait(absl::Duration timeout) {
    const auto end = std::chrono::steady_clock::now() +
                     absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(1)));
    MutexLock lock(&mutex_);
    while (!rung_) {
      const auto left = end - std::chrono::steady_clock::now();
      if (left <= left.zero()) break;
      condition_.WaitFor(&mutex_, absl::FromChrono(left));
    }
    const bool rung = rung_;
    rung_ = false;
    return rung;
  }

 private:
  Mutex mutex_;
  CondVar condition_;
  bool rung_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
