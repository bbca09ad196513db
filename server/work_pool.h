// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A few threads for work that must not run on a network thread: parsing, templates,
// tokenizing.
//
// Thread:  Post from any.  Bounded: a full queue refuses, and the caller tells its client.
// The destructor finishes what was accepted.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "base/this_thread.h"

namespace baton::server {

class WorkPool {
 public:
  WorkPool(int threads, size_t waiting_max) : waiting_max_(waiting_max) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        NameThisThread("work-pool");
        Run();
      });
    }
  }
  ~WorkPool() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      news_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  [[nodiscard]] bool Post(std::function<void()> work) {
    MutexLock lock(&mutex_);
    if (work_.size() >= waiting_max_) return false;
    work_.push_back(std::move(work));
    news_.NotifyOne();
    return true;
  }

 private:
  void Run() {
    while (true) {
      std::function<void()> work;
      {
        MutexLock lock(&mutex_);
        while (!stopping_ && work_.empty()) news_.Wait(&mutex_);
        if (work_.empty()) return;
        work = std::move(work_.front());
        work_.pop_front();
      }
      work();
    }
  }

  const size_t waiting_max_;
  Mutex mutex_;
  CondVar news_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton::server
