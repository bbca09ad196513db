// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One bell per loop: whoever has news for a loop's owner rings it.
//
// Thread: Ring from any thread, Wait from one.  A ring before Wait is not lost.
#pragma once

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace baton {

class Bell {
 public:
  void Ring() {
    absl::MutexLock lock(&mutex_);
    rung_ = true;
  }
  // Until rung, at most `timeout`; true if rung.  Resets the bell.
  bool Wait(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&rung_), timeout);
    const bool rung = rung_;
    rung_ = false;
    return rung;
  }

 private:
  absl::Mutex mutex_;
  bool rung_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace baton
