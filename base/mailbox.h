// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A bounded queue from many threads to one, which rings its reader's bell.
//
// Thread: Push from any thread, TakeAll from the owner.  Push never blocks: a full
// box refuses, and the caller tells its own peer (K5: every queue is bounded).
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/bell.h"
#include "base/mutex.h"

namespace baton {

template <typename T>
class Mailbox {
 public:
  // `bell` outlives the box.
  Mailbox(size_t items_max, Bell* bell) : items_max_(items_max), bell_(bell) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  [[nodiscard]] bool Push(T item) {
    {
      MutexLock lock(&mutex_);
      if (items_.size() >= items_max_) return false;
      items_.push_back(std::move(item));
    }
    if (bell_ != nullptr) bell_->Ring();
    return true;
  }

  // Everything that came since the last call, oldest first.
  std::vector<T> TakeAll() {
    MutexLock lock(&mutex_);
    return std::exchange(items_, {});
  }

 private:
  const size_t items_max_;
  Bell* const bell_;
  Mutex mutex_;
  std::vector<T> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton
