// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a front end asks of its workers: K10's other half, K9's, and the bounds of K5 on its side.
//
// It stands between the dispatcher and its WorkerClient and knows what the clients were told.
//   K10  a new attempt opens only when the earlier one's decode stream is over; it starts from
//        exactly the outputs that were delivered, with the same prompt, sampling and stop ids;
//        what is delivered was heard from a decode stream that is open; a Prefill brings the
//        ticket of the attempt that is current.
//   K9   when a request is over, none of its streams is open.
//   K5   at most reserving_max unanswered Reserves per decode, attempts_max fair tries per
//        request, queue_requests in the queue, and no refusal while there is room;
//   fairness  first attempts open in order of arrival, among requests that any decode can hold.
// Cost: one look-up per message.  Thread: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/time/time.h"
#include "router/client.h"
#include "router/dispatcher.h"
#include "router/worker_client.h"
#include "sim/event_log.h"

namespace baton::sim {

// One life of a front end.
class AttemptsChecker {
 public:
  AttemptsChecker(std::string name, Incarnation self, const router::Dispatcher::Options& options,
                  EventLog& log)
      : name_(std::move(name)), self_(self), options_(options), log_(log) {}

  // ── what clients ask, and are told ────────────────────────────────────────────────
  void Submitted(const router::Submit& submit);
  // The client cancels, or has its stop string: the next tick ends the request.
  void Ending(router::ClientKey client) { ending_.insert(client); }
  void Told(const router::ClientOutput& output);

  // ── what the dispatcher asks of workers, and hears ────────────────────────────────
  void Opened(router::WorkerIndex worker, StreamId stream, const ToWorker& first);
  void Sent(StreamId stream, const ToWorker& message);
  void Closed(StreamId stream);
  void Heard(const router::ClientEvent& event);
  // Around a tick of the dispatcher; `Ticked` when its outputs were told.
  void Ticking(absl::Time now);
  void Ticked();

  // ── the account, for metrics and fairness ─────────────────────────────────────────
  size_t requests() const { return by_client_.size(); }
  size_t open_attempts() const { return decode_streams_; }
  uint64_t attempts() const { return attempts_; }
  uint64_t resumes() const { return resumes_; }
  uint64_t waiting_tokens() const;  // of requests that hold no reservation
  uint64_t running() const;         // requests whose current attempt has said a token
  uint64_t writer_faults() const { return writer_faults_; }  // attempts that failed by their writer

 private:
  struct Stream {
    uint64_t request = 0;
    router::WorkerIndex worker;
    bool decode = false;
    bool reserving = false;  // Reserve not answered yet
  };
  struct Request {
    router::ClientKey client;
    Sequence asked;  // as the first attempt's; prompt and all that must not change
    absl::Time deadline;
    uint32_t delivered = 0;
    std::vector<TokenId> outputs;
    uint32_t attempt = 0;   // the last one opened
    uint32_t failures = 0;  // fair tries that failed
    bool begun = false;     // an attempt opened
    bool drawn_seed = false;
    bool reserved = false;     // the current attempt's Reserve was granted
    uint64_t ended_in = 0;     // tick
    uint64_t reserved_in = 0;  // tick
    bool free_of_blame = false;
    bool spoke = false;  // the current attempt said a token
    // The current attempt's push will not end by itself since then, or decode was asked then.
    absl::Time sign_of_life = absl::InfiniteFuture(), revoked_at = absl::InfiniteFuture();
    bool writer_failed = false, settled = false;
    bool writer_excused = false;  // it handed the attempt back, or the request was to blame
    bool writer_blamed = false;   // the attempt counts among writer_faults()
    absl::btree_set<Incarnation> failed_writers;
    std::vector<uint8_t> ticket;      // of the current attempt
    std::optional<WorkerRef> writer;  // that its Reserve named
    StreamId decode, prefill;         // open ones
    bool revoked = false;
    bool again = false;  // an attempt failed: it waits without having been admitted anew
    std::vector<std::pair<uint32_t, TokenId>> heard;  // in this tick, not yet delivered
  };

  Request* Find(uint64_t number);
  Request* FindFirst(const Sequence& sequence);
  bool Continues(Request& request, const Sequence& sequence);
  // Every decode heard of could hold the request to its end.
  bool FitsAll(const Request& request) const;
  static bool Holds(const Request& request) {  // a reservation
    return request.decode != StreamId() && request.reserved;
  }
  void OpenedReserve(router::WorkerIndex worker, StreamId stream, const Reserve& reserve);
  void OpenedPrefill(router::WorkerIndex worker, StreamId stream, const Prefill& prefill);
  void HeardOn(const router::StreamSaid& said);
  Request* OfPrefill(StreamId stream);
  void WriterFailed(Request& request);
  void Blame(Request& request);
  void CountWriterFault(Request& request);
  void CheckWriter(router::WorkerIndex decode, const Request& request, const Reserve& reserve);
  void Over(const router::Over& over);
  void CheckRejected(const router::Over& over);
  // The decode stream is over: whether that was a fair try.
  void EndAttempt(Request& request);
  void Forget(StreamId stream);
  template <typename... Parts>
  void Wrong(const char* name, const Parts&... parts) {
    log_.Violation(name, ": ", name_, " ", parts...);
  }

  const std::string name_;
  const Incarnation self_;
  const router::Dispatcher::Options options_;
  EventLog& log_;
  uint64_t tick_ = 0;
  absl::Time now_ = absl::InfinitePast();                   // of the tick, on the front end's clock
  absl::btree_map<router::ClientKey, Request> by_client_;   // not over
  absl::btree_map<uint64_t, router::ClientKey> by_number_;  // those with an attempt
  absl::btree_map<StreamId, Stream> streams_;               // open
  absl::btree_map<router::WorkerIndex, uint32_t> reserving_;
  // As last heard of, decodes and prefills.
  struct Worker {
    WorkerStatus status;
    absl::Time answered, ticked;
    absl::Time refused = absl::InfinitePast();  // a Reserve, for want of room
    uint64_t holds = 0;                         // tokens, of a decode
  };
  void CheckWorkers();
  void CheckTimeouts(const Request& request);
  absl::btree_map<router::WorkerIndex, Worker> workers_;
  absl::btree_set<router::ClientKey> ending_;
  absl::btree_map<router::ClientKey, router::ClientKey> passed_;  // in this tick, by whom
  absl::Time looked_;
  absl::btree_set<router::ClientKey> spoken_;  // who was heard of in this tick
  size_t decode_streams_ = 0;
  uint64_t attempts_ = 0, resumes_ = 0, writer_faults_ = 0;
};

// The seam itself, watched.
class CheckedWorkerClient final : public router::WorkerClient {
 public:
  CheckedWorkerClient(router::WorkerClient& real, AttemptsChecker& checker)
      : real_(real), checker_(checker) {}
  StreamId Open(router::WorkerIndex worker, ToWorker first) override;
  void Send(StreamId stream, ToWorker message) override;
  void Close(StreamId stream) override;
  void Poll(std::vector<router::ClientEvent>& events) override;

 private:
  router::WorkerClient& real_;
  AttemptsChecker& checker_;
};

}  // namespace baton::sim
