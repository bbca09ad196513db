// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/attempts_checker.h"

#include <algorithm>

namespace baton::sim {

using router::ClientKey;
using router::WorkerIndex;

// ── clients ─────────────────────────────────────────────────────────────────────────

void AttemptsChecker::Submitted(const router::Submit& submit) {
  Request& request = by_client_[submit.client];
  request.client = submit.client;
  request.asked = submit.sequence;
  request.deadline = submit.received + submit.deadline;
  request.drawn_seed = submit.draw_seed;
}

void AttemptsChecker::Told(const router::ClientOutput& output) {
  if (const auto* over = std::get_if<router::Over>(&output)) return Over(*over);
  const auto* delivered = std::get_if<router::Delivered>(&output);
  if (delivered == nullptr) return;
  const auto it = by_client_.find(delivered->client);
  if (it == by_client_.end()) return Wrong("K9", "tells a request that is over");
  Request& request = it->second;
  // What comes behind the end of its stream is dropped; what is delivered was heard.
  auto& heard = request.heard;
  const std::pair wanted(delivered->index, delivered->token.id);
  const auto found = std::find(heard.begin(), heard.end(), wanted);
  if (found == heard.end()) {
    Wrong("K10", "delivers index ", delivered->index, " to client ", request.client.value(),
          ", which no attempt said");
  } else {
    heard.erase(heard.begin(), found + 1);
  }
  ++request.delivered;
  request.outputs.push_back(delivered->token.id);
}

void AttemptsChecker::Over(const router::Over& over) {
  const auto it = by_client_.find(over.client);
  if (it == by_client_.end()) return Wrong("K9", "ends a request twice");
  for (const auto& [stream, facts] : streams_) {
    if (facts.request != over.request.number) continue;
    Wrong("K9", "ends request ", over.request.number, ", but its stream #", stream.value(),
          " to worker ", facts.worker.value(), " is open");
  }
  if (over.outcome == router::Outcome::kRejected) {
    CheckRejected(over);
    passed_.erase(over.client);  // it never waited
  }
  by_number_.erase(over.request.number);
  by_client_.erase(it);
}

// A refusal for want of room, though there is room even by the largest count: whoever was not
// over before this tick and held no reservation then.
void AttemptsChecker::CheckRejected(const router::Over& over) {
  if (over.status.code() != absl::StatusCode::kResourceExhausted) return;
  uint64_t waiting = 0, tokens = 0;
  for (const auto& [client, request] : by_client_) {
    if (client == over.client || (Holds(request) && request.reserved_in < tick_)) continue;
    ++waiting;
    tokens += request.asked.prompt.size();
  }
  const auto it = by_client_.find(over.client);
  if (waiting >= options_.queue_requests ||
      tokens + it->second.asked.prompt.size() > options_.queue_tokens) {
    return;
  }
  Wrong("K5", "refuses client ", over.client.value(), " with ", waiting, " of ",
        options_.queue_requests, " requests open");
}

// ── the dispatcher's calls ──────────────────────────────────────────────────────────

AttemptsChecker::Request* AttemptsChecker::Find(uint64_t number) {
  const auto it = by_number_.find(number);
  if (it == by_number_.end()) return nullptr;
  const auto request = by_client_.find(it->second);
  return request == by_client_.end() ? nullptr : &request->second;
}

void AttemptsChecker::Opened(WorkerIndex worker, StreamId stream, const ToWorker& first) {
  if (const auto* reserve = std::get_if<Reserve>(&first)) {
    OpenedReserve(worker, stream, *reserve);
  } else if (const auto* prefill = std::get_if<Prefill>(&first)) {
    OpenedPrefill(worker, stream, *prefill);
  }
}

// The first attempt of a request that had none yet.
AttemptsChecker::Request* AttemptsChecker::FindFirst(const Sequence& sequence) {
  std::vector<ClientKey> earlier;
  for (auto& [client, request] : by_client_) {
    SamplingParams asked = request.asked.sampling;
    if (request.drawn_seed) asked.seed = sequence.sampling.seed;
    if (request.begun) continue;
    if (asked != sequence.sampling || request.asked.prompt != sequence.prompt) {
      const bool ends = ending_.contains(client) || request.deadline <= now_;
      if (!ends && FitsAll(request)) earlier.push_back(client);
      continue;
    }
    if (FitsAll(request)) {
      for (const ClientKey passed : earlier) passed_.emplace(passed, client);
    }
    if (sequence.remaining_tokens > request.asked.remaining_tokens) {
      Wrong("K10", "asks for more tokens than client ", client.value());
    }
    request.asked.sampling = asked;
    request.asked.remaining_tokens = sequence.remaining_tokens;  // as the context allows
    return &request;
  }
  return nullptr;
}

bool AttemptsChecker::FitsAll(const Request& request) const {
  const uint64_t end = request.asked.prompt.size() + request.asked.remaining_tokens;
  return std::all_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second.status.role != Role::kDecode || end <= entry.second.holds;
  });
}

// A front end that stood still heard nobody: the gap is nobody's silence.
void AttemptsChecker::Ticking(absl::Time now) {
  const absl::Duration gap = now - now_;
  if (now_ != absl::InfinitePast() && gap > options_.health.dead_after / 2) {
    for (auto& [index, worker] : workers_) {
      worker.answered += gap;
      worker.ticked += gap;
    }
    for (auto& [client, request] : by_client_) {
      request.sign_of_life += gap;
      request.revoked_at += gap;
    }
  }
  now_ = now;
  ++tick_;
}

// Nothing is left open on a worker that was found dead: silent, or alive and wedged.
void AttemptsChecker::CheckWorkers() {
  constexpr absl::Duration kSlack = absl::Milliseconds(100);
  for (const auto& [id, stream] : streams_) {
    const auto it = workers_.find(stream.worker);
    if (it == workers_.end()) continue;
    const Worker& worker = it->second;
    const bool silent = now_ - worker.answered >= options_.health.dead_after + kSlack;
    const bool wedged = now_ - worker.ticked >= options_.health.wedged_after + kSlack;
    if (!silent && !wedged) continue;
    Wrong("K9", "has stream #", id.value(), " open to worker ", stream.worker.value(),
          ", which is ", silent ? "silent" : "wedged");
  }
}

void AttemptsChecker::CheckTimeouts(const Request& request) {
  constexpr absl::Duration kSlack = absl::Milliseconds(100);
  if (request.decode == StreamId() || request.spoke) return;
  if (now_ - request.revoked_at >= options_.settle_timeout + kSlack) {
    Wrong("K9", "still waits for decode to settle client ", request.client.value());
  }
  if (!request.revoked && now_ - request.sign_of_life >= options_.progress_timeout + kSlack) {
    Wrong("K9", "still waits for the push of client ", request.client.value());
  }
}

// The sequence is what was asked behind what the client has, and will have by this tick's end.
bool AttemptsChecker::Continues(Request& request, const Sequence& sequence) {
  Sequence expected = request.asked;
  expected.outputs = request.outputs;
  const size_t more =
      sequence.outputs.size() - std::min(sequence.outputs.size(), request.outputs.size());
  if (more > request.heard.size()) return false;
  request.heard.resize(more);
  for (const auto& [index, id] : request.heard) expected.outputs.push_back(id);
  if (expected.outputs.size() > expected.remaining_tokens) return false;
  expected.remaining_tokens -= static_cast<uint32_t>(expected.outputs.size());
  return sequence == expected;
}

void AttemptsChecker::OpenedReserve(WorkerIndex worker, StreamId stream, const Reserve& reserve) {
  const uint64_t number = reserve.attempt.request.number;
  Request* request = Find(number);
  if (request == nullptr) request = FindFirst(reserve.sequence);
  if (request == nullptr) return Wrong("K9", "opens an attempt for a request that is over");
  by_number_[number] = request->client;
  if (reserve.attempt.request.frontend != self_) Wrong("K7", "opens under another incarnation");
  if (request->decode != StreamId()) {
    Wrong("K10", "opens attempt ", reserve.attempt.attempt, " of request ", number,
          " before the earlier one is settled");
    EndAttempt(*request);
  }
  if (reserve.attempt.attempt <= request->attempt) Wrong("K10", "uses an attempt twice");
  if (!Continues(*request, reserve.sequence)) {
    Wrong("K10", "opens attempt ", reserve.attempt.attempt, " of request ", number, " with ",
          reserve.sequence.outputs.size(), "+", reserve.sequence.remaining_tokens,
          " outputs; the client has ", request->delivered, " of ", request->asked.remaining_tokens);
  }
  if (reserve.sequence.remaining_tokens == 0) Wrong("K10", "opens an attempt with no token left");
  if (reserve.remaining > request->deadline - now_)
    Wrong("K9", "gives a worker too long a deadline");
  if (request->failures >= options_.attempts_max) {
    Wrong("K5", "tries request ", number, " again after ", request->failures, " failures");
  }
  request->attempt = reserve.attempt.attempt;
  request->begun = true;
  request->reserved = request->free_of_blame = request->revoked = request->spoke = false;
  request->writer_failed = request->settled = false;
  request->writer_excused = request->writer_blamed = false;
  request->sign_of_life = request->revoked_at = absl::InfiniteFuture();
  CheckWriter(worker, *request, reserve);
  if (now_ - workers_[worker].refused < options_.full_backoff) {
    Wrong("K5", "asks worker ", worker.value(), " again, which has just refused");
  }
  request->ticket.clear();
  request->writer = reserve.writer;
  request->decode = stream;
  streams_[stream] = {number, worker, true, true};
  ++decode_streams_;
  ++attempts_;
  if (++reserving_[worker] > options_.reserving_max) {
    Wrong("K5", "has ", reserving_[worker], " unanswered Reserves at worker ", worker.value());
  }
}

// The writer is one that decode says it has a link to, and that did not fail this request.
void AttemptsChecker::CheckWriter(WorkerIndex decode, const Request& request,
                                  const Reserve& reserve) {
  if (!reserve.writer) return;
  const auto& links = workers_[decode].status.links;
  const bool linked = std::any_of(links.begin(), links.end(), [&](const LinkStatus& link) {
    return link.peer == *reserve.writer;
  });
  if (!linked) {
    Wrong("refused", "pairs worker ", decode.value(), " with ", reserve.writer->worker,
          ", to which it has no link");
  }
  if (request.failed_writers.contains(reserve.writer->incarnation)) {
    Wrong("K5", "asks ", reserve.writer->worker, " again, which failed request ",
          reserve.attempt.request.number);
  }
}

void AttemptsChecker::OpenedPrefill(WorkerIndex worker, StreamId stream, const Prefill& prefill) {
  const uint64_t number = prefill.attempt.request.number;
  Request* request = Find(number);
  if (request == nullptr) return Wrong("K9", "opens a Prefill for a request that is over");
  // Heard in one go, Reserved is acted upon before the end of its stream.
  const bool current = request->decode != StreamId() || request->ended_in == tick_;
  if (prefill.attempt.attempt != request->attempt || !current || prefill.ticket.empty() ||
      prefill.ticket != request->ticket || request->revoked) {
    Wrong("K10", "sends a Prefill of request ", number, " with a ticket that is not current");
  }
  if (request->prefill != StreamId()) Wrong("K10", "sends a second Prefill of one attempt");
  if (prefill.sequence.outputs != request->outputs) {
    Wrong("K10", "sends a Prefill with other outputs than the client has");
  }
  request->prefill = stream;
  request->sign_of_life = now_;
  streams_[stream] = {number, worker, false, false};
}

void AttemptsChecker::Sent(StreamId stream, const ToWorker& message) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  Request* request = Find(it->second.request);
  if (request == nullptr || !std::holds_alternative<Revoke>(message)) return;
  if (request->revoked) Wrong("K4", "revokes an attempt twice");
  request->revoked = true;
  request->revoked_at = now_;
}

void AttemptsChecker::EndAttempt(Request& request) {
  if (!request.free_of_blame) ++request.failures;
  request.again = true;
  request.ended_in = tick_;
  request.decode = StreamId();
}

void AttemptsChecker::Forget(StreamId stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return;
  const Stream facts = it->second;
  streams_.erase(it);
  if (facts.reserving) --reserving_[facts.worker];
  if (facts.decode) --decode_streams_;
  Request* request = Find(facts.request);
  if (request == nullptr) return;
  if (stream == request->decode) EndAttempt(*request);
  if (stream == request->prefill) request->prefill = StreamId();
}

void AttemptsChecker::Closed(StreamId stream) { Forget(stream); }

// What was heard and is not delivered by now never is.
void AttemptsChecker::Ticked() {
  for (const ClientKey client : std::exchange(ending_, {})) {
    if (!by_client_.contains(client)) continue;
    Wrong("K9", "goes on with client ", client.value(), ", which is gone or has its answer");
  }
  for (const auto& [earlier, later] : std::exchange(passed_, {})) {
    Wrong("fairness", "opens client ", later.value(), " before the earlier client ",
          earlier.value());
  }
  if (now_ - looked_ >= absl::Milliseconds(20)) {
    looked_ = now_;
    CheckWorkers();
    size_t fresh = 0;
    for (const auto& [client, request] : by_client_) {
      fresh += !request.again && !request.reserved;
      CheckTimeouts(request);
    }
    if (fresh > options_.queue_requests) {
      Wrong("K5", "has ", fresh, " requests waiting; its queue holds ", options_.queue_requests);
    }
  }
  for (const ClientKey client : spoken_) {
    const auto it = by_client_.find(client);
    if (it == by_client_.end()) continue;
    Request& request = it->second;
    if (request.settled && request.decode != StreamId()) {
      Wrong("K10", "listens to an attempt of client ", client.value(), " that is settled");
    }
    if (request.writer_failed && request.decode != StreamId() && !request.spoke &&
        !request.revoked) {
      Wrong("K9", "does not settle client ", client.value(), ", whose writer failed");
    }
    if (!request.heard.empty() && request.decode != StreamId() && request.reserved) {
      Wrong("K10", "keeps index ", request.heard.front().first, " from client ", client.value());
    }
    request.heard.clear();
  }
  spoken_.clear();
}

// ── what the dispatcher hears ───────────────────────────────────────────────────────

void AttemptsChecker::Heard(const router::ClientEvent& event) {
  if (const auto* lost = std::get_if<router::StreamLost>(&event)) {
    if (Request* request = OfPrefill(lost->stream)) WriterFailed(*request);
    Forget(lost->stream);
  } else if (const auto* status = std::get_if<router::WorkerSaid>(&event)) {
    Worker& worker = workers_[status->worker];
    if (worker.status.self != status->status.self || worker.status.ticks != status->status.ticks) {
      worker.ticked = now_;
    }
    worker.answered = now_;
    worker.status = status->status;
    worker.holds = std::min<uint64_t>(status->status.context_max,
                                      uint64_t{status->status.blocks_total} * kBlockTokens);
  } else if (const auto* said = std::get_if<router::StreamSaid>(&event)) {
    HeardOn(*said);
  }
}

void AttemptsChecker::HeardOn(const router::StreamSaid& said) {
  const auto it = streams_.find(said.stream);
  if (it == streams_.end()) return;  // not current any more (K4)
  Stream& stream = it->second;
  Request* request = Find(stream.request);
  if (request == nullptr) return;
  const bool reserving = stream.reserving;
  const auto answered = [&] {
    if (stream.reserving) --reserving_[stream.worker];
    stream.reserving = false;
  };
  if (const auto* reserved = std::get_if<Reserved>(&said.message)) {
    answered();
    request->reserved = true;
    request->reserved_in = tick_;
    request->ticket = reserved->ticket;
    resumes_ += request->delivered + request->heard.size() > 0;
  } else if (const auto* token = std::get_if<Token>(&said.message)) {
    request->heard.emplace_back(token->index, token->token.id);
    request->spoke = true;
    request->sign_of_life = request->revoked_at = absl::InfiniteFuture();
    spoken_.insert(request->client);
  } else if (const auto* ended = std::get_if<baton::Ended>(&said.message)) {
    answered();
    const bool no_room = ended->why.code() == absl::StatusCode::kResourceExhausted;
    const bool full = stream.decode && reserving && no_room;
    const bool handed_back = ended->preempted || (!stream.decode && no_room);
    request->free_of_blame |= handed_back || full;
    if (stream.decode && request->revoked) Blame(*request);
    if (stream.decode && absl::IsUnavailable(ended->why) && !handed_back) {
      CountWriterFault(*request);
    }
    if (full) workers_[stream.worker].refused = now_;
    if (!stream.decode) {
      request->writer_excused = handed_back || !absl::IsUnavailable(ended->why);
    }
    if (!stream.decode && !handed_back) WriterFailed(*request);
    Forget(said.stream);
  } else if (const auto* settled = std::get_if<Settled>(&said.message)) {
    request->revoked_at = absl::InfiniteFuture();
    request->settled = !settled->committed;
    if (request->settled) Blame(*request);
    if (request->settled) CountWriterFault(*request);
    spoken_.insert(request->client);
  } else if (std::holds_alternative<Progress>(said.message)) {
    request->sign_of_life = now_;
  } else if (std::holds_alternative<PrefillDone>(said.message)) {
    request->sign_of_life = now_;
    Forget(said.stream);  // its last word: the stream's end says nothing any more
  } else if (std::holds_alternative<Finished>(said.message)) {
    Forget(said.stream);
  }
}

AttemptsChecker::Request* AttemptsChecker::OfPrefill(StreamId stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end() || it->second.decode) return nullptr;
  return Find(it->second.request);
}

// Decode lives and says that nothing was committed: it was the writer.
void AttemptsChecker::Blame(Request& request) {
  if (request.writer_failed) request.failed_writers.insert(request.writer->incarnation);
}

// Nothing came of a ticket: decode had nothing else to wait for.
void AttemptsChecker::CountWriterFault(Request& request) {
  const bool pushing = request.reserved && !request.ticket.empty() && !request.spoke;
  if (!pushing || request.writer_excused || request.writer_blamed) return;
  request.writer_blamed = true;
  ++writer_faults_;
}

void AttemptsChecker::WriterFailed(Request& request) {
  request.writer_failed = true;
  spoken_.insert(request.client);
}

uint64_t AttemptsChecker::waiting_tokens() const {
  uint64_t tokens = 0;
  for (const auto& [client, request] : by_client_) {
    if (!Holds(request)) tokens += request.asked.prompt.size();
  }
  return tokens;
}

uint64_t AttemptsChecker::running() const {
  uint64_t running = 0;
  for (const auto& [client, request] : by_client_) {
    running += request.decode != StreamId() && request.spoke;
  }
  return running;
}

// ── the seam ────────────────────────────────────────────────────────────────────────

StreamId CheckedWorkerClient::Open(WorkerIndex worker, ToWorker first) {
  const ToWorker copy = first;
  const StreamId stream = real_.Open(worker, std::move(first));
  checker_.Opened(worker, stream, copy);
  return stream;
}
void CheckedWorkerClient::Send(StreamId stream, ToWorker message) {
  checker_.Sent(stream, message);
  real_.Send(stream, std::move(message));
}
void CheckedWorkerClient::Close(StreamId stream) {
  checker_.Closed(stream);
  real_.Close(stream);
}
void CheckedWorkerClient::Poll(std::vector<router::ClientEvent>& events) {
  const size_t before = events.size();
  real_.Poll(events);
  for (size_t i = before; i < events.size(); ++i) checker_.Heard(events[i]);
}

}  // namespace baton::sim
