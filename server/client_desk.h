// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Where the front end's edge (HTTP, gRPC) meets the dispatcher: inputs go to the role loop's
// box, outputs go to the sink of their request, on one delivery thread.
//
// One thread for all sinks makes each of them single-threaded and keeps the role loop free of
// text.  What waits for delivery is bounded by what was admitted: every open request has a
// bounded number of tokens.
//
// Threads:  Open, Submit, Cancel, Complete from any; TakeInputs and Deliver are the role
//           loop's; sinks run on the delivery thread.
// Failure:  a full box rejects the Submit: its sink gets Over like any other (K9).
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/mailbox.h"
#include "base/mutex.h"
#include "router/client.h"

namespace baton::server {

// What becomes of one Submit; ends with exactly one OnOver.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void OnPlaced(const router::Placed& placed) = 0;
  virtual void OnDelivered(router::Delivered delivered) = 0;
  virtual void OnOver(router::Over over) = 0;
  virtual void OnSecond(absl::Time now) = 0;  // about once a second while it is open
};

class ClientDesk {
 public:
  // `bell` is the role loop's and outlives the desk, as does `clock`.
  ClientDesk(Bell* bell, const Clock* clock);
  ~ClientDesk();  // sinks that are still open are dropped

  router::ClientKey Open(std::shared_ptr<AnswerSink> sink);
  void Submit(router::Submit submit);  // its client: from Open
  void Cancel(router::ClientKey client);
  void Complete(router::ClientKey client);

  std::vector<router::ClientInput> TakeInputs();
  void Deliver(std::vector<router::ClientOutput> outputs);
  size_t open() const;
  // Ends everything that is open, and all that is submitted from now on, with `why`.  Call when
  // the role loop has stopped.
  void Abort(const absl::Status& why);

 private:
  void DeliverUntilStopped();
  void DeliverOne(router::ClientOutput output);
  std::shared_ptr<AnswerSink> Find(router::ClientKey client) const;
  void Later(router::ClientInput input);

  const Clock* const clock_;
  Bell* const loop_bell_;
  Bell delivery_bell_;
  Mailbox<router::ClientInput> submits_;
  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);  // OK: it was not
  uint64_t next_key_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<router::ClientKey, std::shared_ptr<AnswerSink>> sinks_
      ABSL_GUARDED_BY(mutex_);
  // Cancel and Complete are never refused; at most two per open request.
  std::vector<router::ClientInput> later_ ABSL_GUARDED_BY(mutex_);
  std::vector<router::ClientOutput> deliveries_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace baton::server
