// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/checkers.h"

#include <algorithm>
#include <utility>

#include "base/ensure.h"

namespace baton::sim {

Checkers::Checkers(EventLog& log)
    : log_(log),
      k1_(book_, log),
      k2_(book_, log),
      k3_(book_, log),
      k4_(book_, log),
      k5_(book_, log),
      k6_(book_, log),
      k7_(book_, log),
      k9_(log),
      k10_(log),
      k11_(book_, log),
      fairness_(log),
      liveness_(log),
      metrics_(book_, log) {}

// ── the fabric ────────────────────────────────────────────────────────────────────────

void Checkers::Started(LifeId life, const kv::Hello& hello) {
  k7_.Started(hello.self.incarnation);
  k1_.Started(life, hello.layout.blocks);
  book_.Started(life, hello);
}

void Checkers::Gone(LifeId life) {
  k1_.Gone(life);
  k11_.Gone(life);
  book_.Gone(life);
  workers_.erase(life);
  moved_.erase(life);
}

void Checkers::Framed(LifeId from, LifeId to, absl::Span<const uint8_t> bytes) {
  constexpr uint8_t kQuiet = 9;  // docs/kv_transfer.md: u32 length | u8 type | body
  if (bytes.size() < 5 || bytes[4] != kQuiet) return;
  const auto frame = kv::DecodeFrame(bytes);
  ENSURE(frame.ok());
  k11_.Said(from, to, std::get<kv::QuietFrame>(*frame));
}

void Checkers::Posted(LifeId writer, LifeId owner, kv::LinkId link, const kv::DataWrite& write,
                      char path, bool fences) {
  k1_.Posted(writer, write);
  k5_.Posted(writer, link, write);
  k7_.Posted(writer, owner, write);
  k11_.Posted(writer, write);
  book_.Posted(write, path, fences);
}

void Checkers::WriteEnded(kv::LinkId link, const kv::GrantKey& key, uint64_t bytes) {
  k5_.WriteEnded(link, bytes);
  book_.WriteEnded(key);
}

void Checkers::Permitted(LifeId owner, const kv::DataHeader& header) {
  k4_.Permitted(owner, header);
}

void Checkers::Landed(const kv::GrantKey& key, uint64_t target_offset, uint64_t bytes) {
  k2_.Landed(key);
  book_.Landed(key, target_offset, bytes);
}

void Checkers::CheckOpen(LifeId owner) {
  const auto unsettled = book_.unsettled.find(owner);
  if (unsettled == book_.unsettled.end()) return;
  const LifeFacts& life = book_.life(owner);
  for (const Generation generation : unsettled->second) {
    const GrantFacts& grant = *book_.Find({life.incarnation, generation});
    if (grant.state != GrantState::kOpen || grant.failed) continue;
    if (life.links.contains(grant.ticket.writer)) continue;
    log_.Violation("K9: ", life.name(), " is not told that generation ", generation.value(),
                   " will see no Commit, though its writer is gone");
  }
}

void Checkers::CheckIdle(LifeId owner, const kv::OwnerCore& core) {
  metrics_.Equal(book_.life(owner).name(), "grants", core.grants(), unsettled(owner));
}

void Checkers::CheckIdle(LifeId writer, const kv::WriterCore& core) {
  const std::string& name = book_.life(writer).name();
  uint64_t writes = 0;
  if (const auto it = book_.writes.find(writer); it != book_.writes.end()) {
    writes = it->second.size();
  }
  if (writes > 0) return;
  metrics_.Equal(name, "bytes in flight", core.bytes_in_flight(), 0);
  metrics_.Equal(name, "writes waiting", core.writes_waiting(), 0);
}

// ── role loops and their transports ───────────────────────────────────────────────────

void Checkers::Granted(LifeId owner, const kv::Ticket& ticket) {
  log_.Add(book_.life(owner).name(), "grants generation ", ticket.key.generation.value(), ", ",
           ticket.blocks.size(), " blocks");
  k1_.Granted(owner, ticket);
  k2_.Granted(owner, ticket);
  k5_.Granted(owner, ticket);
  k6_.Granted(owner, ticket);
  k7_.Granted(owner, ticket);
  book_.Granted(owner, ticket);
}

void Checkers::Revoked(LifeId owner, Generation generation) {
  log_.Add(book_.life(owner).name(), "revokes generation ", generation.value());
  const GrantFacts* grant = book_.Find({book_.life(owner).incarnation, generation});
  if (grant == nullptr || grant->state != GrantState::kOpen) {
    log_.Violation("K4: ", book_.life(owner).name(), " revokes generation ", generation.value(),
                   ", which is not open");
  }
  book_.Revoked(owner, generation);
}

void Checkers::Accepted(LifeId writer, const kv::Ticket& ticket) { book_.Accepted(writer, ticket); }

void Checkers::Wrote(LifeId writer, kv::WriteId id, const kv::GrantKey& key, uint32_t layer,
                     absl::Span<const kv::WritePiece> pieces) {
  k1_.Wrote(writer, key, layer, pieces);
  WriteFacts write{.key = key, .layer = layer, .pieces = {pieces.begin(), pieces.end()}};
  k1_.Wrote(writer, write);
  moved_[writer].blocks += pieces.size();
  book_.Wrote(writer, id, std::move(write));
}

void Checkers::Committed(LifeId writer, const kv::Commit& commit) {
  k3_.Committed(writer, commit);
  ++moved_[writer].pushes;
  book_.Committed(commit);
}

void Checkers::LogTold(const std::string& who, const kv::TransportEvent& event) {
  if (const auto* commit = std::get_if<kv::CommitArrived>(&event)) {
    log_.Add(who, "Commit of generation ", commit->commit.key.generation.value());
  } else if (const auto* quiet = std::get_if<kv::Quiet>(&event)) {
    log_.Add(who, "Quiet of generation ", quiet->generation.value());
  } else if (const auto* failed = std::get_if<kv::WriterFailed>(&event)) {
    log_.Add(who, "writer of generation ", failed->generation.value(), " failed");
  } else if (const auto* up = std::get_if<kv::PeerUp>(&event)) {
    log_.Add(who, "link to ", up->peer.worker, " up");
  } else if (const auto* down = std::get_if<kv::PeerDown>(&event)) {
    log_.Add(who, "link to ", down->peer.worker, down->declared_dead ? " dead" : " down");
  } else if (const auto* ended = std::get_if<kv::PushEnded>(&event)) {
    log_.Add(who, "push of generation ", ended->key.generation.value(), " ended");
  } else if (std::holds_alternative<kv::Reborn>(event)) {
    log_.Add(who, "is reborn");
  }
}

void Checkers::Told(LifeId life, const kv::TransportEvent& event) {
  LogTold(book_.life(life).name(), event);
  k4_.Told(life, event);
  k3_.Told(life, event);
  k2_.Told(life, event);
  k1_.Told(life, event);
  k6_.Told(life, event);
  k7_.Told(life, event);
  if (const auto* arrived = std::get_if<kv::CommitArrived>(&event)) {
    MetricsChecker::Moved& moved = moved_[life];
    ++moved.pushes;
    moved.blocks += arrived->commit.blocks;
    moved.bytes += arrived->commit.bytes;
  } else if (std::holds_alternative<kv::Reborn>(event)) {
    k2_.Reborn(life);
  } else if (std::holds_alternative<kv::MustExit>(event)) {
    if (const auto it = workers_.find(life); it != workers_.end()) it->second.must_exit = true;
  }
  book_.Told(life, event);
}

size_t Checkers::unsettled(LifeId owner) const {
  const auto it = book_.unsettled.find(owner);
  return it == book_.unsettled.end() ? 0 : it->second.size();
}

// ── workers ───────────────────────────────────────────────────────────────────────────

void Checkers::WorkerStarted(LifeId life, const std::string& name, Role role) {
  WorkerFacts& worker = workers_[life];
  worker.name = name;
  worker.role = role;
  worker.life = life;
}

void Checkers::Opened(WorkerFacts& worker, const StreamOpened& opened) {
  const auto* reserve = std::get_if<Reserve>(&opened.first);
  const auto* prefill = std::get_if<Prefill>(&opened.first);
  StreamFacts& stream = worker.streams[opened.stream];
  stream.order = ++worker.orders;
  const bool expected = worker.role == Role::kDecode ? reserve != nullptr : prefill != nullptr;
  if (!expected) return;  // it will be refused
  ++worker.opened;
  const Sequence& sequence = reserve != nullptr ? reserve->sequence : prefill->sequence;
  stream.attempt = reserve != nullptr ? reserve->attempt : prefill->attempt;
  stream.first_index = static_cast<uint32_t>(sequence.outputs.size());
  stream.remaining = sequence.remaining_tokens;
  stream.stop_ids = sequence.stop_ids;
  stream.behind_drain = worker.drain_heard;
  if (reserve != nullptr) stream.decode = reserve->decode;
  if (reserve != nullptr && reserve->writer) stream.writer = reserve->writer->worker;
  if (prefill != nullptr) {
    stream.sequence = sequence.prompt;
    stream.sequence.insert(stream.sequence.end(), sequence.outputs.begin(), sequence.outputs.end());
  }
  // Its back-stop counts from the tick that takes it in.
  fresh_[worker.life].emplace_back(opened.stream,
                                   reserve != nullptr ? reserve->remaining : prefill->remaining);
  worker.alive_heard.push_back(stream.attempt.request.frontend);
}

void Checkers::Heard(LifeId life, const WorkerInput& input) {
  WorkerFacts& worker = workers_.at(life);
  if (const auto* opened = std::get_if<StreamOpened>(&input)) {
    Opened(worker, *opened);
  } else if (const auto* said = std::get_if<StreamMessage>(&input)) {
    const auto it = worker.streams.find(said->stream);
    if (it != worker.streams.end() && std::holds_alternative<Revoke>(said->message)) {
      it->second.revoke_asked = true;
    }
  } else if (const auto* closed = std::get_if<StreamClosed>(&input)) {
    worker.closing.push_back(closed->stream);
    const auto it = worker.streams.find(closed->stream);
    if (it != worker.streams.end()) it->second.closing = true;
  } else if (const auto* alive = std::get_if<FrontendAlive>(&input)) {
    worker.alive_heard.push_back(alive->frontend);
  } else {
    worker.drain_heard = true;
  }
}

void Checkers::Ticking(LifeId life, absl::Time now) {
  constexpr absl::Duration kBackstop = absl::Seconds(1);
  WorkerFacts& worker = workers_.at(life);
  for (const Incarnation frontend : worker.alive_heard) worker.heard[frontend] = now;
  worker.alive_heard.clear();
  if (worker.drain_heard) worker.drains = std::min(worker.drains, now);
  for (const auto& [id, remaining] : std::exchange(fresh_[life], {})) {
    const auto it = worker.streams.find(id);
    if (it != worker.streams.end()) it->second.backstop = now + remaining + kBackstop;
  }
}

void Checkers::Said(LifeId life, const WorkerOutput& output, absl::Time now) {
  WorkerFacts& worker = workers_.at(life);
  const auto it = worker.streams.find(output.stream);
  StreamFacts* stream = it == worker.streams.end() ? nullptr : &it->second;
  k10_.Said(worker, stream, output);
  if (stream == nullptr) return;
  if (const auto* reserved = std::get_if<Reserved>(&output.message)) {
    if (!reserved->ticket.empty() || stream->writer.empty()) fairness_.Granted(worker, *stream);
    k7_.Reserved(life, stream->decode);
    stream->reserved = true;
    stream->ticket = !reserved->ticket.empty();
  } else if (std::holds_alternative<PromptStats>(output.message)) {
    stream->stats = true;
  } else if (const auto* token = std::get_if<Token>(&output.message)) {
    const auto& stops = stream->stop_ids;
    stream->stopped |= std::find(stops.begin(), stops.end(), token->token.id) != stops.end();
    ++stream->tokens;
    ++worker.tokens;
  } else if (std::holds_alternative<Settled>(output.message)) {
    stream->settled = true;
  } else if (std::holds_alternative<PrefillDone>(output.message)) {
    stream->done = true;
  } else if (std::holds_alternative<Finished>(output.message)) {
    ++worker.finished;
  } else if (const auto* ended = std::get_if<Ended>(&output.message)) {
    k9_.Ended(worker, *stream, *ended, now);
  }
  if (output.last) worker.streams.erase(output.stream);
}

bool Checkers::AfterTick(LifeId life, absl::Time now) {
  WorkerFacts& worker = workers_.at(life);
  for (const StreamId stream : std::exchange(worker.closing, {})) worker.streams.erase(stream);
  if (now - worker.looked >= absl::Milliseconds(5)) {
    worker.looked = now;
    k7_.CheckSilence(life);
    k9_.Ticked(worker, now);
    k9_.Drains(worker, now, k5_.limits());
    size_t waiting = 0, preempted = 0;
    for (const auto& [id, stream] : worker.streams) {
      const bool landed = worker.role == Role::kDecode ? stream.reserved : stream.started;
      ++(landed ? preempted : waiting);
    }
    k5_.Waiting(life, worker.role, waiting, preempted);
  }
  k9_.Answered(worker);
  k9_.LetGo(worker, book_);
  return ++worker.ticks % kFullEvery == 0 || worker.streams.empty();
}

void Checkers::Stepped(LifeId life, const engine::Step& step) {
  for (const engine::Slice& slice : step.slices) {
    const auto end = BlocksFor(slice.position + slice.tokens.size());
    for (uint32_t i = 0; i < end; ++i) {
      k2_.Used(life, slice.block_table[i]);
      k3_.Used(life, slice.block_table[i]);
    }
  }
  k1_.Stepped(life, step);
  k5_.Stepped(life, step);
  WorkerFacts& worker = workers_.at(life);
  ++worker.steps;
  worker.stepping = true;
  if (worker.role == Role::kPrefill) fairness_.Stepped(worker, step);
}

void Checkers::StepDone(LifeId life) {
  k1_.StepDone(life);
  workers_.at(life).stepping = false;
}

// ── front ends ────────────────────────────────────────────────────────────────────────

std::unique_ptr<AttemptsChecker> Checkers::MakeAttempts(
    const std::string& name, Incarnation self, const router::Dispatcher::Options& options) {
  return std::make_unique<AttemptsChecker>(name, self, options, log_);
}

// ── the engine ────────────────────────────────────────────────────────────────────────

void CheckedEngine::Submit(engine::Step step) {
  checkers_.Stepped(life_, step);
  real_.Submit(std::move(step));
}

void CheckedEngine::Poll(std::vector<engine::Event>& events) {
  const size_t before = events.size();
  real_.Poll(events);
  for (size_t i = before; i < events.size(); ++i) {
    if (std::holds_alternative<engine::StepDone>(events[i])) checkers_.StepDone(life_);
  }
}

}  // namespace baton::sim
