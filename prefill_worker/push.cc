// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The half of the prefill worker that moves KV: layers become writes, writes a Commit.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "prefill_worker/prefill_worker.h"

namespace baton::prefill {
namespace {

constexpr uint32_t kSpeedTokensMin = 64;  // a shorter prompt tells little of speed
constexpr double kSpeedWeight = 0.25;

}  // namespace

bool PrefillWorker::PollTransport(absl::Time now) {
  std::vector<kv::TransportEvent> events;
  transport_.Poll(events);
  for (const kv::TransportEvent& event : events) {
    if (const auto* done = std::get_if<kv::WriteDone>(&event)) {
      OnWriteDone(*done, now);
    } else if (const auto* ended = std::get_if<kv::PushEnded>(&event)) {
      OnPushEnded(*ended);
    } else if (const auto* up = std::get_if<kv::PeerUp>(&event)) {
      links_[up->peer.incarnation] = *up;
    } else if (const auto* down = std::get_if<kv::PeerDown>(&event)) {
      links_.erase(down->peer.incarnation);  // its pushes end by PushEnded
    } else if (const auto* measured = std::get_if<kv::PeerMeasured>(&event)) {
      const auto link = links_.find(measured->peer.incarnation);
      if (link != links_.end()) link->second.link = measured->link;
    } else if (const auto* reborn = std::get_if<kv::Reborn>(&event)) {
      OnReborn(*reborn);
    } else {
      ENSURE(false);  // an owner's event
    }
  }
  return !events.empty();
}

bool PrefillWorker::PollEngine(absl::Time now) {
  std::vector<engine::Event> events;
  engine_.Poll(events);
  for (const engine::Event& event : events) {
    if (const auto* layer = std::get_if<engine::LayerDone>(&event)) {
      OnLayerDone(*layer, now);
    } else {
      OnStepDone(std::get<engine::StepDone>(event), now);
    }
  }
  return !events.empty();
}

void PrefillWorker::OnLayerDone(const engine::LayerDone& done, absl::Time now) {
  ENSURE(!step_.empty() && done.step == step_id_ && done.layer < layout_.layers);
  ++moves_;
  const bool last_layer = done.layer + 1 == layout_.layers;
  for (const Chunk& chunk : step_) {
    Job& job = jobs_.at(chunk.key);
    ENSURE(job.in_step);
    if (job.state == State::kEnding) continue;
    ENSURE(job.state == State::kComputing);
    const uint32_t begin = chunk.begin / kBlockTokens, end = BlocksFor(chunk.end);
    Log(PushEvent::Kind::kComputed, job, done.layer, end - begin, now);
    if (last_layer && chunk.end == job.sequence.size()) job.computed_at = now;
    if (options_.pipelining) Post(job, done.layer, begin, end, now);
    if (done.layer == layout_.layers / 2) {
      BATON_FAILPOINT_ABOUT("prefill.half_computed", About(job));
    }
  }
}

void PrefillWorker::OnStepDone(const engine::StepDone& done, absl::Time now) {
  ENSURE(!step_.empty() && done.step == step_id_);
  const std::vector<Chunk> chunks = std::exchange(step_, {});
  for (const engine::Sampled& sampled : done.sampled) {
    jobs_.at(sampled.tag).first_token = sampled.token;
  }
  for (const Chunk& chunk : chunks) ChunkDone(jobs_.at(chunk.key), chunk, done.status, now);
}

void PrefillWorker::ChunkDone(Job& job, const Chunk& chunk, const absl::Status& status,
                              absl::Time now) {
  ENSURE(job.in_step);
  job.in_step = false;
  if (job.state == State::kEnding) return FreeIfIdle(job.key);
  if (!status.ok()) return Fail(job, Failure::kEngine, Annotate(status, "model step"));
  ENSURE(job.state == State::kComputing && job.computed == chunk.begin);
  job.computed = chunk.end;
  job.moved = ++moves_;
  totals_.prompt_tokens_computed += chunk.end - chunk.begin;
  const size_t full = std::min<size_t>(job.chain.size(), chunk.end / kBlockTokens);
  for (size_t i = chunk.begin / kBlockTokens; i < full; ++i) {
    cache_.Insert(job.chain[i], job.blocks[i]);
  }
  if (job.computed < job.sequence.size()) return;
  ENSURE(job.first_token.has_value());
  job.state = State::kPushing;
  if (!options_.pipelining) {
    PostAllLayers(job, 0, static_cast<uint32_t>(job.blocks.size()), now);
  }
  CommitIfComplete(job, now);
}

// Posts the blocks [begin, end) of the sequence, as far as the ticket names them.
void PrefillWorker::Post(Job& job, uint32_t layer, uint32_t begin, uint32_t end, absl::Time now) {
  ENSURE(!job.push_over && job.state != State::kEnding);
  const uint32_t first = job.ticket.first_position / kBlockTokens;
  std::vector<kv::WritePiece> pieces;
  for (uint32_t i = std::max(begin, first); i < end; ++i) {
    pieces.push_back({job.blocks.at(i), i - first});
  }
  if (pieces.empty()) return;
  const kv::WriteId id(next_write_++);
  const auto blocks = static_cast<uint32_t>(pieces.size());
  writes_[id] = {job.key, layer, blocks};
  if (job.work.starts == 0) {
    if (const kv::PeerUp* owner = OwnerOf(job)) job.cost = owner->link.cost;
  }
  if (job.writes_out++ == 0) {
    job.busy_since = now;
    ++job.work.starts;
  }
  Log(PushEvent::Kind::kPosted, job, layer, blocks, now);
  transport_.Write(id, job.ticket.key, layer, pieces);
  BATON_FAILPOINT("prefill.first_write");
}

void PrefillWorker::PostAllLayers(Job& job, uint32_t begin, uint32_t end, absl::Time now) {
  for (uint32_t layer = 0; layer < layout_.layers; ++layer) Post(job, layer, begin, end, now);
}

void PrefillWorker::OnWriteDone(const kv::WriteDone& done, absl::Time now) {
  const auto found = writes_.find(done.id);
  if (found == writes_.end()) {
    ++totals_.stale[static_cast<size_t>(Stale::kWrite)];
    return;
  }
  const WriteRecord write = found->second;
  writes_.erase(found);
  Job& job = jobs_.at(write.job);
  ENSURE(job.writes_out > 0);
  if (--job.writes_out == 0) job.transfer += now - job.busy_since;
  if (job.state == State::kEnding) return FreeIfIdle(job.key);
  if (!done.status.ok()) {
    return Fail(job, Failure::kWrite,
                absl::UnavailableError(absl::StrCat("kv write: ", done.status.message())));
  }
  job.pieces_written += write.blocks;
  job.work += done.work;
  job.moved = ++moves_;
  job.last_write_at = now;
  Log(PushEvent::Kind::kWritten, job, write.layer, write.blocks, now);
  if (const kv::PeerUp* owner = OwnerOf(job)) {
    Pushed& pushed = totals_.pushed[{owner->peer.worker, owner->link.transport}];
    pushed.blocks += write.blocks;
    pushed.bytes += done.work.bytes;
  }
  if (write.layer == layout_.layers / 2) {
    BATON_FAILPOINT_ABOUT("prefill.half_written", About(job));
  }
  CommitIfComplete(job, now);
}

void PrefillWorker::OnPushEnded(const kv::PushEnded& ended) {
  const auto found = by_grant_.find(ended.key);
  if (found == by_grant_.end()) {
    ++totals_.stale[static_cast<size_t>(Stale::kPush)];
    return;
  }
  Job& job = jobs_.at(found->second);
  ENSURE(job.state != State::kEnding);
  job.push_over = true;
  Fail(job, Failure::kRefused, absl::UnavailableError(absl::StrCat("push: ", ended.why.message())));
}

void PrefillWorker::CommitIfComplete(Job& job, absl::Time now) {
  if (job.state != State::kPushing || job.writes_out > 0) return;
  ENSURE(!job.push_over && job.first_token.has_value());
  const PromptStats stats = StatsOf(job);
  ENSURE(job.pieces_written == uint64_t{stats.kv_blocks} * layout_.layers);  // K3
  kv::Commit commit;
  commit.key = job.ticket.key;
  commit.writer = self_.incarnation;
  commit.attempt = job.attempt;
  commit.blocks = stats.kv_blocks;
  commit.layers = layout_.layers;
  commit.bytes = stats.kv_bytes;
  commit.first_tokens = {*job.first_token};
  commit.first_index = static_cast<uint32_t>(job.sequence.outputs.size());
  commit.cached_tokens = stats.cached_tokens;
  commit.computed_tokens = stats.computed_tokens;
  commit.queued = stats.queued;
  commit.compute = stats.compute;
  commit.transfer = stats.transfer;
  commit.exposed = stats.exposed;
  commit.predicted = stats.predicted;
  BATON_FAILPOINT_ABOUT("prefill.all_written", About(job));
  transport_.SendCommit(commit);
  BATON_FAILPOINT("prefill.committed");
  job.push_over = true;
  Log(PushEvent::Kind::kCommitted, job, layout_.layers, stats.kv_blocks, now);
  ++totals_.committed;
  NoteSpeed(stats);
  if (const kv::PeerUp* owner = OwnerOf(job)) {
    ++totals_.pushed[{owner->peer.worker, owner->link.transport}].pushes;
  }
  Emit(job.stream, PrefillDone{stats});
  Emit(job.stream, Finished{}, /*last=*/true);
  End(job, absl::OkStatus());
}

PromptStats PrefillWorker::StatsOf(const Job& job) const {
  PromptStats stats;
  stats.pushed = true;
  stats.cached_tokens = job.cached_tokens;
  stats.computed_tokens = job.sequence.size() - job.cached_tokens;
  stats.kv_blocks = static_cast<uint32_t>(job.ticket.blocks.size());
  stats.kv_bytes = job.work.bytes;
  if (const kv::PeerUp* owner = OwnerOf(job)) stats.transport = owner->link.transport;
  stats.queued = job.started - job.received;
  stats.compute = job.computed_at - job.started;
  stats.transfer = job.transfer;
  stats.exposed = std::max(absl::ZeroDuration(), job.last_write_at - job.computed_at);
  stats.predicted = job.cost.Predict(job.work);
  return stats;
}

// For the router: what part of a push hides behind the computation.
void PrefillWorker::NoteSpeed(const PromptStats& stats) {
  if (stats.computed_tokens < kSpeedTokensMin || stats.compute <= absl::ZeroDuration()) return;
  const double speed = stats.computed_tokens / absl::ToDoubleSeconds(stats.compute);
  tokens_per_second_ += (tokens_per_second_ > 0 ? kSpeedWeight : 1) * (speed - tokens_per_second_);
}

const kv::PeerUp* PrefillWorker::OwnerOf(const Job& job) const {
  const auto found = links_.find(job.ticket.key.owner);
  return found == links_.end() ? nullptr : &found->second;
}

std::string PrefillWorker::About(const Job& job) const {
  const kv::PeerUp* owner = OwnerOf(job);
  return absl::StrCat(ToString(job.attempt), " ", owner == nullptr ? "" : owner->peer.worker);
}

void PrefillWorker::Fail(Job& job, Failure reason, const absl::Status& why, bool preempted) {
  ENSURE(job.state != State::kEnding && !why.ok());
  ++totals_.failures[static_cast<size_t>(reason)];
  Emit(job.stream, Ended{why, preempted}, /*last=*/true);
  End(job, why);
}

void PrefillWorker::End(Job& job, const absl::Status& why) {
  ENSURE(job.state != State::kEnding);
  if (job.state == State::kQueued) {
    --queued_;
    queued_tokens_ -= job.sequence.size();
  }
  job.state = State::kEnding;
  ENSURE(by_stream_.erase(job.stream) == 1);
  ENSURE(by_grant_.erase(job.ticket.key) == 1);
  if (!job.push_over) {
    job.push_over = true;
    transport_.Abandon(job.ticket.key, why);
  }
  FreeIfIdle(job.key);
}

// The source blocks go back only when neither the engine nor a posted write uses them (K2).
void PrefillWorker::FreeIfIdle(uint64_t key) {
  const Job& job = jobs_.at(key);
  ENSURE(job.state == State::kEnding);
  if (job.in_step || job.writes_out > 0) return;
  if (!job.blocks.empty()) {
    cache_.Release(job.blocks);
    ENSURE(active_ > 0);
    --active_;
  }
  jobs_.erase(key);
}

void PrefillWorker::Log(PushEvent::Kind kind, const Job& job, uint32_t layer, uint32_t blocks,
                        absl::Time now) {
  if (push_events_.size() >= options_.push_events_max) return;
  push_events_.push_back({kind, now, job.attempt, layer, blocks});
}

std::vector<PushEvent> PrefillWorker::TakePushEvents() {
  std::vector<PushEvent> events(push_events_.begin(), push_events_.end());
  push_events_.clear();
  return events;
}

}  // namespace baton::prefill
