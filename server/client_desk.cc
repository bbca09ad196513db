// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/client_desk.h"

#include <variant>

#include "base/this_thread.h"

namespace baton::server {
namespace {

using router::ClientInput;
using router::ClientKey;
using router::ClientOutput;

constexpr size_t kSubmitsMax = 16384;

}  // namespace

ClientDesk::ClientDesk(Bell* bell, const Clock* clock)
    : clock_(clock), loop_bell_(bell), submits_(kSubmitsMax, bell) {
  thread_ = std::thread([this] {
    NameThisThread("delivery");
    DeliverUntilStopped();
  });
}

ClientDesk::~ClientDesk() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  delivery_bell_.Ring();
  thread_.join();
}

ClientKey ClientDesk::Open(std::shared_ptr<AnswerSink> sink) {
  MutexLock lock(&mutex_);
  const ClientKey key(next_key_++);
  sinks_[key] = std::move(sink);
  return key;
}

void ClientDesk::Submit(router::Submit submit) {
  router::Over over;
  over.client = submit.client;
  over.outcome = router::Outcome::kRejected;
  over.retry_after = absl::Seconds(1);
  {
    MutexLock lock(&mutex_);
    over.status = aborted_;
  }
  if (over.status.ok()) {
    if (submits_.Push(std::move(submit))) return;
    over.status = absl::ResourceExhaustedError("the front end's queue is full");
  }
  Deliver({std::move(over)});
}

void ClientDesk::Abort(const absl::Status& why) {
  std::vector<ClientOutput> ends;
  {
    MutexLock lock(&mutex_);
    aborted_ = why;
    for (const auto& [client, sink] : sinks_) {
      router::Over over;
      over.client = client;
      over.outcome = router::Outcome::kError;
      over.status = why;
      over.retry_after = absl::Seconds(1);
      ends.push_back(std::move(over));
    }
  }
  Deliver(std::move(ends));
}

void ClientDesk::Cancel(ClientKey client) { Later(router::Cancel{client}); }
void ClientDesk::Complete(ClientKey client) { Later(router::Complete{client}); }

void ClientDesk::Later(ClientInput input) {
  {
    MutexLock lock(&mutex_);
    later_.push_back(std::move(input));
  }
  loop_bell_->Ring();
}

std::vector<ClientInput> ClientDesk::TakeInputs() {
  std::vector<ClientInput> later;
  {
    // Before the box: a Cancel never overtakes its Submit.
    MutexLock lock(&mutex_);
    later.swap(later_);
  }
  std::vector<ClientInput> inputs = submits_.TakeAll();
  for (ClientInput& input : later) inputs.push_back(std::move(input));
  return inputs;
}

void ClientDesk::Deliver(std::vector<ClientOutput> outputs) {
  if (outputs.empty()) return;
  {
    MutexLock lock(&mutex_);
    for (ClientOutput& output : outputs) deliveries_.push_back(std::move(output));
  }
  delivery_bell_.Ring();
}

size_t ClientDesk::open() const {
  MutexLock lock(&mutex_);
  return sinks_.size();
}

void ClientDesk::DeliverUntilStopped() {
  absl::Time next_second = clock_->Now() + absl::Seconds(1);
  while (true) {
    delivery_bell_.Wait(absl::Seconds(1));
    std::vector<ClientOutput> outputs;
    std::vector<std::shared_ptr<AnswerSink>> open;
    const absl::Time now = clock_->Now();
    {
      MutexLock lock(&mutex_);
      if (stopping_) return;
      outputs.swap(deliveries_);
      if (now >= next_second) {
        for (const auto& [key, sink] : sinks_) open.push_back(sink);
      }
    }
    for (ClientOutput& output : outputs) DeliverOne(std::move(output));
    if (now < next_second) continue;
    for (const auto& sink : open) sink->OnSecond(now);
    next_second = now + absl::Seconds(1);
  }
}

void ClientDesk::DeliverOne(ClientOutput output) {
  if (const auto* placed = std::get_if<router::Placed>(&output)) {
    if (const auto sink = Find(placed->client)) sink->OnPlaced(*placed);
  } else if (auto* delivered = std::get_if<router::Delivered>(&output)) {
    if (const auto sink = Find(delivered->client)) sink->OnDelivered(std::move(*delivered));
  } else {
    auto& over = std::get<router::Over>(output);
    const auto sink = Find(over.client);
    if (sink == nullptr) return;
    {
      MutexLock lock(&mutex_);
      sinks_.erase(over.client);
    }
    sink->OnOver(std::move(over));
  }
}

std::shared_ptr<AnswerSink> ClientDesk::Find(ClientKey client) const {
  MutexLock lock(&mutex_);
  const auto found = sinks_.find(client);
  return found == sinks_.end() ? nullptr : found->second;
}

}  // namespace baton::server
