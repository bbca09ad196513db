// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Pushes, closed generations, Quiet and rebirth (K2, K5, K7, K11; docs/kv_transfer.md).
#include "kv_transfer/writer_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/ensure.h"
#include "base/random.h"

namespace baton::kv {
namespace {

constexpr size_t kSupersededMax = 1024;

}  // namespace

WriterCore::WriterCore(const Options& options, Hello self, uint64_t rebirth_seed,
                       absl::Span<uint8_t> memory, LinkIo& io)
    : LinkCore(options.link, std::move(self), io),
      options_(options),
      memory_(memory),
      staging_(options.staging, self_.layout, memory),
      rebirth_seed_(rebirth_seed) {
  ENSURE(memory_.size() >= MemoryBytes(options, self_.layout, 1));
  ENSURE(self_.role == Role::kPrefill);
  ENSURE(options.writes_in_flight_max > 0);
  ENSURE(options.bytes_in_flight_max > 0);
}

uint64_t WriterCore::MemoryBytes(const Options& options, const Layout& pool, size_t owners) {
  if (!options.link.pair.allow_conversion) return pool.pool_bytes();
  const uint64_t pieces = std::max<size_t>(owners, 1) * options.staging.per_link;
  return StagingArea::Offset(pool) + pieces * StagingArea::PieceBytes(options.staging, pool);
}

// ── pushes ────────────────────────────────────────────────────────────────────────────

absl::Status WriterCore::CheckTicket(const Ticket& ticket) {
  if (fenced_) return absl::UnavailableError("this writer is between two incarnations");
  if (ticket.writer != self_.self.incarnation) {
    return absl::UnavailableError("the ticket names another incarnation of the writer");
  }
  const Link* link = FindUp(ticket.key.owner);
  if (link == nullptr) {  // rule 1
    return absl::UnavailableError("no link to the ticket's owner in that incarnation");
  }
  const Owner& owner = owners_.at(ticket.key.owner);
  if (ticket.key.generation < owner.floor || owner.closed.contains(ticket.key.generation)) {
    return absl::CancelledError("the ticket was revoked or used before");  // K11, rule 11
  }
  if (pushes_.size() >= options_.pushes_max) return absl::ResourceExhaustedError("pushes");
  for (const BlockIndex block : ticket.blocks) {
    if (block >= link->peer->layout.blocks) {
      return absl::InvalidArgumentError("the ticket names a block outside its owner's pool");
    }
  }
  return absl::OkStatus();
}

void WriterCore::Accept(const Ticket& ticket) {
  ENSURE(!pushes_.contains(ticket.key));
  ENSURE(!ticket.blocks.empty());
  if (absl::Status status = CheckTicket(ticket); !status.ok()) {
    ++counters_.stale_tickets;
    Emit(PushEnded{ticket.key, status});
    return;
  }
  Owner& owner = owners_.at(ticket.key.owner);
  CloseGeneration(owner, ticket.key.generation);
  Push push;
  // By turns with each owner: pushes that alternate between two would else leave one unchecked.
  const uint32_t every = options_.check_one_in;
  push.summed = every > 0 && owner.accepted++ % every == 0;
  push.ticket = ticket;
  push.link = FindUp(ticket.key.owner)->id;
  push.begun.resize(ticket.blocks.size() * self_.layout.layers);
  pushes_.emplace(ticket.key, std::move(push));
}

void WriterCore::Write(WriteId id, GrantKey key, uint32_t layer,
                       absl::Span<const WritePiece> pieces) {
  const auto it = pushes_.find(key);
  if (it == pushes_.end()) {
    Emit(WriteDone{id, absl::CancelledError("the push has ended")});
    return;
  }
  Push& push = it->second;
  const Link* link = Find(push.link);
  ENSURE(link != nullptr);
  ENSURE(layer < self_.layout.layers);
  ENSURE(!pieces.empty() && pieces.size() <= kDataTargetsMax);
  Flow& flow = flows_[push.link];
  size_t at_once = pieces.size();
  if (flow.plan) at_once = staging_.piece_bytes() / flow.plan->target_block_bytes;
  ENSURE(at_once > 0);
  const size_t parts = (pieces.size() + at_once - 1) / at_once;
  if (writes_waiting_ + parts > options_.writes_waiting_max) {
    Emit(WriteDone{id, absl::ResourceExhaustedError("too many writes are waiting")});
    return;
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    ENSURE(pieces[i].target_index < push.ticket.blocks.size());
    ENSURE(pieces[i].source < self_.layout.blocks);
    ENSURE(i == 0 || pieces[i].target_index > pieces[i - 1].target_index);
    const size_t place = layer * push.ticket.blocks.size() + pieces[i].target_index;
    ENSURE(!push.begun[place]);
    push.begun[place] = true;
  }
  if (parts > 1) splits_[id].left = static_cast<uint32_t>(parts);
  for (size_t at = 0; at < pieces.size(); at += at_once) {
    flow.waiting.push_back({id, MakeWrite(push, *link, layer, pieces.subspan(at, at_once))});
    ++writes_waiting_;
  }
  PostWaiting(push.link);
}

// Of blocks that are still to be converted each is a copy of its own, from where it is now.
DataWrite WriterCore::MakeWrite(const Push& push, const Link& link, uint32_t layer,
                                absl::Span<const WritePiece> pieces) const {
  const Ticket& ticket = push.ticket;
  const Layout& target = link.peer->layout;
  const bool converts = flows_.at(push.link).plan.has_value();
  DataWrite write;
  write.header.key = ticket.key;
  write.header.writer = ticket.writer;
  write.header.attempt = ticket.attempt;
  write.header.layer = layer;
  for (const WritePiece& piece : pieces) {
    write.header.targets.push_back(piece.target_index);
    const Copy copy = {.source_offset = self_.layout.offset(layer, piece.source),
                       .target_offset = target.offset(layer, ticket.blocks[piece.target_index]),
                       .size_bytes = target.block_bytes()};
    if (converts) {
      write.copies.push_back(copy);
    } else {
      AppendCopy(write.copies, copy);
    }
  }
  write.bytes = target.block_bytes() * pieces.size();
  return write;
}

void WriterCore::PartOver(WriteId id, const LinkWork& work, const absl::Status& status) {
  const auto it = splits_.find(id);
  if (it == splits_.end()) {
    Emit(WriteDone{id, status, status.ok() ? work : LinkWork{}});
    return;
  }
  Split& split = it->second;
  split.status.Update(status);
  split.work += work;
  ENSURE(split.left > 0);
  if (--split.left > 0) return;
  Emit(WriteDone{id, split.status, split.status.ok() ? split.work : LinkWork{}});
  splits_.erase(it);
}

void WriterCore::PostWaiting(LinkId id) {
  Link* link = Find(id);
  if (link == nullptr || link->state != LinkState::kUp) return;
  Flow& flow = flows_[id];
  while (!flow.waiting.empty()) {
    const uint64_t bytes = flow.waiting.front().write.bytes;
    const bool fits = flow.writes < options_.writes_in_flight_max &&
                      flow.bytes + bytes <= options_.bytes_in_flight_max;
    if (flow.writes > 0 && !fits) return;
    std::optional<StagingArea::Piece> piece;
    if (flow.plan) {
      if (flow.staged < options_.staging.per_link) piece = staging_.Take();
      if (!piece) return;  // WriteEnded goes on as one comes back
    }
    Post(*link, flow, piece);
  }
}

void WriterCore::Post(Link& link, Flow& flow, std::optional<StagingArea::Piece> piece) {
  Waiting next = std::move(flow.waiting.front());
  flow.waiting.pop_front();
  --writes_waiting_;
  const uint64_t number = ++last_write_;
  next.write.header.write = number;
  const GrantKey key = next.write.header.key;
  const auto push = pushes_.find(key);
  ENSURE(push != pushes_.end());  // K11: nothing is posted under a closed generation
  if (piece) {
    ++flow.staged;
    ConvertInto(*piece, *flow.plan, next.write);
  }
  const bool memory = link.info.data_path == 'A';
  const bool summed = push->second.summed;
  flow.meter.Posted(io_.Now());
  if (summed && !memory) AddSums(next.write);
  posted_[number] = {.id = next.id,
                     .key = key,
                     .link = link.id,
                     .work = {.bytes = next.write.bytes,
                              .operations = next.write.copies.size(),
                              .summed_bytes = summed ? next.write.bytes : 0},
                     .pieces = static_cast<uint32_t>(next.write.header.targets.size()),
                     .staged = piece,
                     .ended = false,
                     .answered = memory,
                     .status = absl::OkStatus()};
  if (summed && memory) posted_[number].to_sum = next.write;
  if (flow.writes == 0) link.moved = now_;
  flow.bytes += next.write.bytes;
  ++flow.writes;
  Measure(link, flow, std::nullopt);
  ++owners_.at(key.owner).posted[key.generation];
  io_.Post(link.id, std::move(next.write));
}

// The write's source is the piece from here on.
void WriterCore::ConvertInto(StagingArea::Piece piece, const ConversionPlan& plan,
                             DataWrite& write) {
  ENSURE(plan.whole && write.bytes <= staging_.piece_bytes());
  std::vector<const uint8_t*> blocks;
  std::vector<Copy> converted;
  uint64_t at = staging_.offset(piece);
  for (const Copy& copy : write.copies) {
    blocks.push_back(memory_.subspan(copy.source_offset, plan.source_block_bytes).data());
    AppendCopy(
        converted,
        {.source_offset = at, .target_offset = copy.target_offset, .size_bytes = copy.size_bytes});
    at += copy.size_bytes;
  }
  Convert(plan, blocks, staging_.bytes(piece).first(write.bytes));
  write.copies = std::move(converted);
}

// The driver has read the piece for the last time.
void WriterCore::Unstage(Posted& posted) {
  staging_.GiveBack(*posted.staged);
  posted.staged.reset();
  Flow& flow = flows_.at(posted.link);
  ENSURE(flow.staged > 0);
  --flow.staged;
}

void WriterCore::SendCommit(const Commit& commit) {
  const auto it = pushes_.find(commit.key);
  if (it == pushes_.end()) return;  // PushEnded is on its way
  const Push& push = it->second;
  const uint64_t pieces = push.begun.size();
  ENSURE(push.pieces_done == pieces);  // K3: every write is done
  ENSURE(commit.writer == push.ticket.writer);
  ENSURE(commit.attempt == push.ticket.attempt);
  ENSURE(commit.blocks == push.ticket.blocks.size());
  ENSURE(commit.layers == self_.layout.layers);
  ENSURE(!commit.first_tokens.empty());
  const Link* link = Find(push.link);
  ENSURE(link != nullptr);  // rule 13: a push does not survive its link
  ENSURE(commit.bytes == pieces * link->peer->layout.block_bytes());
  Commit said = commit;
  said.summed = push.summed;
  Send(*link, said);
  pushes_.erase(it);
}

void WriterCore::Abandon(GrantKey key, const absl::Status& why) {
  ENSURE(!why.ok());
  const auto it = pushes_.find(key);
  if (it == pushes_.end()) return;
  const LinkId id = it->second.link;
  EndPush(key, why, /*tell=*/false);
  if (const Link* link = Find(id)) {
    Send(*link, WriterFailedFrame{key.generation, why.code(), std::string(why.message())});
  }
}

void WriterCore::EndPush(GrantKey key, const absl::Status& why, bool tell) {
  const auto it = pushes_.find(key);
  ENSURE(it != pushes_.end());
  DropWaiting(it->second.link, key, why);
  pushes_.erase(it);
  if (tell) Emit(PushEnded{key, why});
}

void WriterCore::DropWaiting(LinkId link, GrantKey key, const absl::Status& why) {
  const auto flow = flows_.find(link);
  if (flow == flows_.end()) return;
  std::deque<Waiting> kept;
  for (Waiting& waiting : flow->second.waiting) {
    if (waiting.write.header.key == key) {
      --writes_waiting_;
      PartOver(waiting.id, {}, why);
    } else {
      kept.push_back(std::move(waiting));
    }
  }
  flow->second.waiting = std::move(kept);
}

// ── posted writes ─────────────────────────────────────────────────────────────────────

void WriterCore::WriteEnded(uint64_t number, const absl::Status& status) {
  const auto it = posted_.find(number);
  ENSURE(it != posted_.end());
  Posted& posted = it->second;
  ENSURE(!posted.ended);
  posted.ended = true;
  if (!status.ok()) {
    posted.status.Update(status);
    posted.answered = true;
  }
  if (status.ok() && posted.to_sum) SayWritten(posted);
  const bool staged = posted.staged.has_value();
  if (staged) Unstage(posted);
  FinishIfOver(number);
  if (!staged) return;
  for (const auto& [link, flow] : flows_) {  // whoever waits for the piece
    if (flow.plan && !flow.waiting.empty()) PostWaiting(link);
  }
}

// The bytes are visible to the owner, and their source is still as it was.
void WriterCore::SayWritten(Posted& posted) {
  const Link* link = Find(posted.link);
  if (link == nullptr || !pushes_.contains(posted.key)) return;
  AddSums(*posted.to_sum);
  Send(*link, WrittenFrame{std::move(posted.to_sum->header)});
}

void WriterCore::AddSums(DataWrite& write) const {
  const uint64_t bytes = write.bytes / write.header.targets.size();
  for (const Copy& copy : write.copies) {
    for (uint64_t at = 0; at < copy.size_bytes; at += bytes) {
      write.header.sums.push_back(Crc32c(memory_.subspan(copy.source_offset + at, bytes)));
    }
  }
  ENSURE(write.header.sums.size() == write.header.targets.size());
}

void WriterCore::ResultArrived(const Link& link, const WriteResult& result) {
  const auto it = posted_.find(result.write);
  if (it == posted_.end() || it->second.link != link.id || it->second.answered) return;
  it->second.answered = true;
  if (!result.landed) it->second.status.Update(absl::CancelledError("refused by the owner"));
  FinishIfOver(result.write);
}

void WriterCore::FinishIfOver(uint64_t number) {
  const auto it = posted_.find(number);
  ENSURE(it != posted_.end());
  if (!it->second.ended || !it->second.answered) return;
  const Posted posted = std::move(it->second);
  posted_.erase(it);
  Flow& flow = flows_.at(posted.link);
  ENSURE(flow.writes > 0 && flow.bytes >= posted.work.bytes);
  --flow.writes;
  flow.bytes -= posted.work.bytes;
  const auto span = flow.meter.Ended(posted.work, posted.status.ok(), io_.Now());
  if (Link* link = Find(posted.link)) {
    link->moved = flow.writes > 0 ? now_ : absl::InfiniteFuture();
    Measure(*link, flow, span);
  }
  if (posted.status.ok()) {
    const auto push = pushes_.find(posted.key);
    if (push != pushes_.end()) push->second.pieces_done += posted.pieces;
  }
  PartOver(posted.id, posted.work, posted.status);
  Drained(posted.key.owner, posted.key.generation);
  PostWaiting(posted.link);
  BeRebornIfDrained();
}

void WriterCore::Measure(Link& link, Flow& flow, const std::optional<LinkSample>& span) {
  // The first write of a link goes on from what the probe found.
  if (flow.estimate.updated() == absl::InfinitePast()) {
    flow.estimate = LinkEstimate(link.info.cost, link.info.measured);
  }
  if (span.has_value()) flow.estimate.Add(*span, io_.Now());
  link.info.cost = flow.estimate.cost();
  link.info.measured = flow.estimate.updated();
  link.info.in_flight_bytes = flow.bytes;
}

LinkReport WriterCore::Report(const Link& link) const {
  if (link.state != LinkState::kUp) return {};
  return {.cost = link.info.cost,
          .age = std::max(absl::ZeroDuration(), now_ - link.info.measured),
          .in_flight_bytes = link.info.in_flight_bytes};
}

// One write less is out under the generation.
void WriterCore::Drained(Incarnation incarnation, Generation generation) {
  const auto it = owners_.find(incarnation);
  ENSURE(it != owners_.end());
  Owner& owner = it->second;
  const auto count = owner.posted.find(generation);
  ENSURE(count != owner.posted.end() && count->second > 0);
  if (--count->second > 0) return;
  owner.posted.erase(count);
  SayQuietIfDrained(incarnation, generation);
  if (owner.superseded && owner.posted.empty()) owners_.erase(it);
}

void WriterCore::SayQuietIfDrained(Incarnation incarnation, Generation generation) {
  Owner& owner = owners_.at(incarnation);
  if (owner.posted.contains(generation)) return;
  if (owner.quiet_owed.erase(generation) == 0) return;
  ENSURE(generation < owner.floor || owner.closed.contains(generation));  // K11: recorded first
  // Without a link nothing is said: the owner asks again on the next one (rule 2).
  if (const Link* link = FindKnown(incarnation)) Send(*link, QuietFrame{generation});
}

// ── what an owner says ────────────────────────────────────────────────────────────────

void WriterCore::Received(Link& link, const Frame& frame) {
  if (const auto* revoke = std::get_if<RevokeFrame>(&frame)) {
    RevokeArrived(link, *revoke);
  } else if (const auto* result = std::get_if<WriteResult>(&frame)) {
    ResultArrived(link, *result);
  } else if (const auto* dead = std::get_if<DeclaredDead>(&frame)) {
    DeclaredDeadArrived(link, dead->incarnation);
  } else {
    ++counters_.malformed_frames;
    EndLink(link.id, absl::InvalidArgumentError("frame: not an owner's to send"));
  }
}

void WriterCore::HeartbeatArrived(Link& link, const Heartbeat& heartbeat) {
  RaiseFloor(link.peer->self.incarnation, heartbeat.lowest_open);
}

void WriterCore::RevokeArrived(Link& link, const RevokeFrame& revoke) {
  const Incarnation incarnation = link.peer->self.incarnation;
  Owner& owner = owners_.at(incarnation);
  CloseGeneration(owner, revoke.generation);
  const GrantKey key{incarnation, revoke.generation};
  if (pushes_.contains(key)) EndPush(key, absl::CancelledError("revoked by the owner"), true);
  RaiseFloor(incarnation, revoke.lowest_open);
  owner.quiet_owed.insert(revoke.generation);
  SayQuietIfDrained(incarnation, revoke.generation);
}

void WriterCore::CloseGeneration(Owner& owner, Generation generation) {
  if (generation < owner.floor) return;
  owner.closed.insert(generation);
  if (owner.closed.size() <= options_.closed_max) return;
  // Refusing what was never seen is safe; forgetting what was closed is not.
  owner.floor = Generation(owner.closed.begin()->value() + 1);
  owner.closed.erase(owner.closed.begin());
}

void WriterCore::RaiseFloor(Incarnation incarnation, Generation lowest_open) {
  Owner& owner = owners_.at(incarnation);
  if (lowest_open <= owner.floor) return;
  owner.floor = lowest_open;
  owner.closed.erase(owner.closed.begin(), owner.closed.lower_bound(lowest_open));
  std::vector<GrantKey> closed;
  for (const auto& [key, push] : pushes_) {
    if (key.owner == incarnation && key.generation < lowest_open) closed.push_back(key);
  }
  for (const GrantKey& key : closed) {
    EndPush(key, absl::CancelledError("closed by the owner"), /*tell=*/true);
  }
}

void WriterCore::DeclaredDeadArrived(Link& link, Incarnation incarnation) {
  if (incarnation != self_.self.incarnation) return;  // about an earlier life
  ++counters_.declared_dead;
  Fence(link);
  fenced_ = true;
  std::vector<GrantKey> all;
  for (const auto& [key, push] : pushes_) all.push_back(key);
  for (const GrantKey& key : all) {
    EndPush(key, absl::UnavailableError("an owner declared this writer dead"), /*tell=*/true);
  }
  BeRebornIfDrained();
}

// Rule 4: only when nothing is out to any owner.  Ends every link, `link`s of callers included.
void WriterCore::BeRebornIfDrained() {
  if (!fenced_ || !posted_.empty()) return;
  ENSURE(pushes_.empty() && writes_waiting_ == 0);
  std::vector<LinkId> all;
  for (const auto& [id, link] : links_) {
    if (link.state == LinkState::kFenced) Send(link, QuietFrame{});
    all.push_back(id);
  }
  for (const LinkId id : all) EndLink(id, absl::UnavailableError("taking a new incarnation"));
  self_.self.incarnation = Incarnation(SplitMix64(rebirth_seed_ ^ ++rebirths_) | 1);
  fenced_ = false;
  Emit(Reborn{self_.self.incarnation});
}

// ── links ─────────────────────────────────────────────────────────────────────────────

void WriterCore::HelloAccepted(Link& link) {
  const WorkerRef peer = PeerOf(link);
  if (fenced_) {
    EndLink(link.id, absl::UnavailableError("draining before a new incarnation"));
    return;
  }
  if (std::find(superseded_.begin(), superseded_.end(), peer.incarnation) != superseded_.end()) {
    Refuse(link, {"incarnation", "this incarnation of the owner was replaced"});  // K7
    return;
  }
  for (auto it = owners_.begin(); it != owners_.end();) {
    Owner& owner = it->second;
    const bool earlier = owner.worker == peer.worker && it->first != peer.incarnation;
    if (earlier && !owner.superseded) {
      owner.superseded = true;
      superseded_.push_back(it->first);
      if (superseded_.size() > kSupersededMax) superseded_.pop_front();
    }
    it = earlier && owner.posted.empty() ? owners_.erase(it) : std::next(it);
  }
  if (!owners_.contains(peer.incarnation) && owners_.size() >= options_.owners_max) {
    Refuse(link, {"owners", "too many owners"});
    return;
  }
  owners_[peer.incarnation].worker = peer.worker;
  auto plan = PlanConversion(self_.layout, link.peer->layout);
  ENSURE(!std::holds_alternative<Refusal>(plan));  // K6: CheckPair
  if (auto* conversion = std::get_if<ConversionPlan>(&plan)) {
    flows_[link.id].plan = std::move(*conversion);
  }
  Prepare(link);
}

void WriterCore::LinkEnded(const Link& link, const absl::Status& why, bool) {
  if (link.state == LinkState::kUp) Emit(PeerDown{PeerOf(link), why});
  std::vector<GrantKey> ended;  // rule 13
  for (const auto& [key, push] : pushes_) {
    if (push.link == link.id) ended.push_back(key);
  }
  for (const GrantKey& key : ended) {
    EndPush(key, absl::UnavailableError(absl::StrCat("link lost: ", why.message())), true);
  }
  std::vector<uint64_t> unanswered;
  for (auto& [number, posted] : posted_) {
    if (posted.link != link.id || posted.answered) continue;
    posted.answered = true;
    posted.status.Update(absl::UnavailableError("link lost before the owner's answer"));
    unanswered.push_back(number);
  }
  for (const uint64_t number : unanswered) FinishIfOver(number);
}

uint64_t WriterCore::bytes_in_flight() const {
  uint64_t bytes = 0;
  for (const auto& [link, flow] : flows_) bytes += flow.bytes;
  return bytes;
}

void WriterCore::DataClosed(LinkId link, bool) {
  ENSURE(Find(link) == nullptr);
  const auto flow = flows_.find(link);
  if (flow == flows_.end()) return;
  ENSURE(flow->second.writes == 0 && flow->second.bytes == 0);
  ENSURE(flow->second.waiting.empty() && flow->second.staged == 0);
  flows_.erase(flow);
}

}  // namespace baton::kv
