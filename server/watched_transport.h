// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A transport that is looked at as it is polled: links are logged as they come and go, damaged
// bytes as they are found, and what must end the process is kept for the main thread.
//
// Thread:  the owner's, except verdict(), links() and the counters (any).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "base/log.h"
#include "base/mutex.h"
#include "kv_transfer/transport.h"

namespace baton::server {

class TransportWatch {
 public:
  // `required`: the configuration demands a class or speed of link.  A process that has had no
  // link yet and gets one that is less ends (exit 69); later, one bad peer is its own misfortune.
  explicit TransportWatch(bool required) : required_(required) {}

  void See(const std::vector<kv::TransportEvent>& events, size_t from) {
    for (size_t i = from; i < events.size(); ++i) {
      if (const auto* up = std::get_if<kv::PeerUp>(&events[i])) Up(*up);
      if (const auto* down = std::get_if<kv::PeerDown>(&events[i])) Down(*down);
      if (const auto* measured = std::get_if<kv::PeerMeasured>(&events[i])) Measured(*measured);
      if (const auto* reborn = std::get_if<kv::Reborn>(&events[i])) {
        LogWarn("an owner had declared this process dead; it goes on under a new incarnation",
                {{"incarnation", ToString(reborn->incarnation)}});
      }
      const auto* failed = std::get_if<kv::WriterFailed>(&events[i]);
      if (failed != nullptr && absl::IsDataLoss(failed->why)) {
        LogWarn("pushed KV arrived damaged; the attempt fails",
                {{"why", std::string(failed->why.message())}});
      }
      if (const auto* must = std::get_if<kv::MustExit>(&events[i])) SetVerdict(must->why);
    }
  }

  // Not OK: the process must end, and why.
  absl::Status verdict() const {
    MutexLock lock(&mutex_);
    return verdict_;
  }
  std::vector<kv::PeerUp> links() const {
    MutexLock lock(&mutex_);
    std::vector<kv::PeerUp> links;
    for (const auto& [peer, up] : links_) links.push_back(up);
    return links;
  }

 private:
  void Up(const kv::PeerUp& up) {
    LogInfo("link up",
            {{"peer", up.peer.worker},
             {"peer_incarnation", ToString(up.peer.incarnation)},
             {"transport", up.link.transport},
             {"data_path", std::string(1, up.link.data_path)},
             {"bandwidth_bytes_per_second", up.link.cost.bandwidth},
             {"latency_us", absl::ToDoubleMicroseconds(up.link.cost.latency)},
             {"per_operation_us", absl::ToDoubleMicroseconds(up.link.cost.per_operation)},
             {"conversion", up.link.conversion},
             {"tried_before", up.link.tried}});
    if (!up.link.expected.empty() && up.link.expected != up.link.link_class) {
      LogWarn("the link is of another class than it should be; `baton doctor` may say more",
              {{"peer", up.peer.worker},
               {"expected", up.link.expected},
               {"came_up", up.link.link_class},
               {"tried_before", up.link.tried}});
    }
    if (up.link.mixed_numerics) {
      LogWarn(up.link.conversion.empty()
                  ? "the peer's arithmetic differs: answers depend on the path"
                  : "pushed KV is converted: answers depend on the path",
              {{"peer", up.peer.worker}, {"conversion", up.link.conversion}});
    }
    MutexLock lock(&mutex_);
    links_[up.peer] = up;
    ever_up_ = true;
  }
  void Measured(const kv::PeerMeasured& measured) {
    MutexLock lock(&mutex_);
    const auto link = links_.find(measured.peer);
    if (link != links_.end()) link->second.link = measured.link;
  }
  void Down(const kv::PeerDown& down) {
    bool was_up = false;
    {
      MutexLock lock(&mutex_);
      was_up = links_.erase(down.peer) > 0;
      if (required_ && !ever_up_ && down.agreed && absl::IsFailedPrecondition(down.why)) {
        verdict_ = down.why;
      }
    }
    LogWarn(was_up ? "link down" : "link refused", {{"peer", down.peer.worker},
                                                    {"why", down.why.ToString()},
                                                    {"declared_dead", down.declared_dead}});
  }
  void SetVerdict(const absl::Status& why) {
    MutexLock lock(&mutex_);
    verdict_ = why;
  }

  const bool required_;
  mutable Mutex mutex_;
  absl::Status verdict_ ABSL_GUARDED_BY(mutex_);
  bool ever_up_ ABSL_GUARDED_BY(mutex_) = false;
  absl::btree_map<WorkerRef, kv::PeerUp> links_ ABSL_GUARDED_BY(mutex_);
};

class WatchedOwner final : public kv::OwnerTransport {
 public:
  WatchedOwner(kv::OwnerTransport* transport, TransportWatch* watch)
      : transport_(transport), watch_(watch) {}
  void Grant(const kv::Ticket& ticket) override { transport_->Grant(ticket); }
  void Revoke(Generation generation) override { transport_->Revoke(generation); }
  void Poll(std::vector<kv::TransportEvent>& events) override {
    const size_t before = events.size();
    transport_->Poll(events);
    watch_->See(events, before);
  }

 private:
  kv::OwnerTransport* const transport_;
  TransportWatch* const watch_;
};

class WatchedWriter final : public kv::WriterTransport {
 public:
  WatchedWriter(kv::WriterTransport* transport, TransportWatch* watch)
      : transport_(transport), watch_(watch) {}
  void Accept(const kv::Ticket& ticket) override { transport_->Accept(ticket); }
  void Write(kv::WriteId id, kv::GrantKey key, uint32_t layer,
             absl::Span<const kv::WritePiece> pieces) override {
    transport_->Write(id, key, layer, pieces);
  }
  void SendCommit(const kv::Commit& commit) override { transport_->SendCommit(commit); }
  void Abandon(kv::GrantKey key, const absl::Status& why) override {
    transport_->Abandon(key, why);
  }
  void Poll(std::vector<kv::TransportEvent>& events) override {
    const size_t before = events.size();
    transport_->Poll(events);
    watch_->See(events, before);
  }

 private:
  kv::WriterTransport* const transport_;
  TransportWatch* const watch_;
};

}  // namespace baton::server
