// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Grants, quarantine and fences (K1-K5, K7, K11; the rules of docs/kv_transfer.md).
//
// A ticket does not outlive the connection under which it was granted: the first thing said on
// a later one is that every generation so far is closed (Heartbeat.lowest_open).  Without that,
// a closed endpoint would be no fence: a late Prefill could bring the ticket to the new one.
#include "kv_transfer/owner_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crc32c.h"
#include "base/ensure.h"

namespace baton::kv {

OwnerCore::OwnerCore(const Options& options, Hello self, absl::Span<const uint8_t> pool, LinkIo& io)
    : LinkCore(options.link, std::move(self), io), options_(options), pool_(pool) {
  ENSURE(self_.role == Role::kDecode);
  ENSURE(pool_.size() >= self_.layout.pool_bytes());
}

// ── grants ────────────────────────────────────────────────────────────────────────────

void OwnerCore::Grant(const Ticket& ticket) {
  ENSURE(ticket.key.owner == self_.self.incarnation);
  ENSURE(ticket.key.generation > last_granted_);
  ENSURE(grants_.size() < options_.grants_max);
  ENSURE(!ticket.blocks.empty());
  for (const BlockIndex block : ticket.blocks) ENSURE(block < self_.layout.blocks);
  last_granted_ = ticket.key.generation;

  GrantRecord grant;
  grant.ticket = ticket;
  const auto life = lives_.find(ticket.writer);
  if (life != lives_.end()) grant.worker = life->second.worker;
  const Link* link = FindUp(ticket.writer);
  if (link != nullptr) {
    grant.link = link->id;
    grant.path = link->info.data_path;
    grant.begun.resize(ticket.blocks.size() * self_.layout.layers);
  } else if (life != lives_.end() && !life->second.memory_writes &&
             FindKnown(ticket.writer) == nullptr) {
    grant.path = 'B';  // no link that could carry memory writes ever knew this generation
  }
  GrantRecord& kept = grants_.emplace(ticket.key.generation, std::move(grant)).first->second;
  if (link == nullptr) Break(kept, absl::UnavailableError("the writer's link is down"));
}

void OwnerCore::Revoke(Generation generation) {
  const auto it = grants_.find(generation);
  if (it == grants_.end()) {  // its Commit was the writer's last word
    ENSURE(generation <= last_granted_);
    Emit(Quiet{generation});
    return;
  }
  GrantRecord& grant = it->second;
  ENSURE(!grant.quarantined);
  grant.quarantined = true;
  const Link* link = FindKnown(grant.ticket.writer);
  if (link != nullptr && link->state != LinkState::kFenced) {
    Send(*link, RevokeFrame{.generation = generation, .lowest_open = LowestOpen(*link)});
  }
  Settle(generation);
}

void OwnerCore::Break(GrantRecord& grant, const absl::Status& why) {
  ENSURE(!why.ok());
  if (grant.broken || grant.quarantined) return;
  grant.broken = true;
  Emit(WriterFailed{grant.ticket.key.generation, why});
}

void OwnerCore::Settle(Generation generation) {
  const auto it = grants_.find(generation);
  ENSURE(it != grants_.end());
  const GrantRecord& grant = it->second;
  if (!grant.quarantined || grant.landings > 0) return;
  const auto life = lives_.find(grant.ticket.writer);
  const bool silent = life != lives_.end() && life->second.silent;
  if (grant.path == 'A' && !grant.fenced && !silent) return;
  grants_.erase(it);
  Emit(Quiet{generation});
}

std::vector<Generation> OwnerCore::GrantsOf(Incarnation writer) const {
  std::vector<Generation> generations;
  for (const auto& [generation, grant] : grants_) {
    if (grant.ticket.writer == writer) generations.push_back(generation);
  }
  return generations;
}

Generation OwnerCore::LowestOpen(const Link& link) const {
  for (const auto& [generation, grant] : grants_) {
    const bool open = !grant.quarantined && !grant.broken;
    if (open && grant.ticket.writer == link.peer->self.incarnation) return generation;
  }
  return Generation(last_granted_.value() + 1);
}

absl::btree_map<std::string, OwnerCore::Held> OwnerCore::held() const {
  absl::btree_map<std::string, Held> held;
  for (const auto& [generation, grant] : grants_) {
    Held& mine = held[grant.worker];
    const auto blocks = static_cast<uint32_t>(grant.ticket.blocks.size());
    (grant.quarantined ? mine.quarantined_blocks : mine.open_blocks) += blocks;
  }
  return held;
}

// ── links and lives ───────────────────────────────────────────────────────────────────

void OwnerCore::HelloAccepted(Link& link) {
  const Hello& peer = *link.peer;
  const Incarnation incarnation = peer.self.incarnation;
  Life& life = lives_[incarnation];
  if (life.worker.empty()) {
    life.worker = peer.self.worker;
    life.process = peer.process;
    life.since = ++births_;
  } else if (life.worker != peer.self.worker || life.process != peer.process) {
    Refuse(link, {"incarnation", "the peer's incarnation is known as another's"});
    return;
  }
  if (life.dead) {  // rule 3
    Fence(link);
    Send(link, DeclaredDead{incarnation});
    return;
  }
  Supersede(peer);
  // Before Ready, so before the writer can accept anything on this link.
  Send(link, Heartbeat{.ticks = 0, .lowest_open = LowestOpen(link)});
  for (const Generation generation : GrantsOf(incarnation)) {  // rule 2
    const GrantRecord& grant = grants_.at(generation);
    ENSURE(grant.link != link.id);
    if (!grant.quarantined) continue;
    Send(link, RevokeFrame{.generation = generation, .lowest_open = LowestOpen(link)});
  }
  Prepare(link);
  ForgetLives();
}

// Rules 5 and 6: what a new incarnation of a worker means for its earlier ones.
void OwnerCore::Supersede(const Hello& newcomer) {
  std::vector<Incarnation> silenced;
  for (auto& [incarnation, life] : lives_) {
    if (life.worker != newcomer.self.worker || incarnation == newcomer.self.incarnation) continue;
    life.dead = true;
    if (life.process == newcomer.process) silenced.push_back(incarnation);
    for (const Generation generation : GrantsOf(incarnation)) {
      Break(grants_.at(generation),
            absl::UnavailableError("the writer came back under a new incarnation"));
    }
  }
  for (const Incarnation incarnation : silenced) Silence(incarnation);
}

void OwnerCore::Silence(Incarnation writer) {
  const auto life = lives_.find(writer);
  ENSURE(life != lives_.end());
  life->second.silent = true;
  for (const Generation generation : GrantsOf(writer)) Settle(generation);
}

void OwnerCore::ProcessExited(const ProcessId& process) {
  std::vector<Incarnation> gone;
  for (auto& [incarnation, life] : lives_) {
    if (life.process != process) continue;
    life.dead = true;
    gone.push_back(incarnation);
  }
  for (const Incarnation incarnation : gone) {
    const absl::Status why = absl::UnavailableError("the writer's process exited");
    if (const Link* link = FindKnown(incarnation)) EndLink(link->id, why);
    for (const Generation generation : GrantsOf(incarnation)) Break(grants_.at(generation), why);
    Silence(incarnation);
  }
}

void OwnerCore::LinkEnded(const Link& link, const absl::Status& why, bool silent) {
  const Incarnation incarnation = link.peer->self.incarnation;
  const auto it = lives_.find(incarnation);
  ENSURE(it != lives_.end());
  Life& life = it->second;
  // A stranger that took this incarnation was refused; the life is not about its link.
  if (life.process != link.peer->process || life.worker != link.peer->self.worker) return;
  if (link.data_ready && link.info.data_path == 'A') life.memory_writes = true;
  if (silent && !life.dead) {
    life.dead = true;
    ++counters_.declared_dead;
  }
  if (link.state == LinkState::kUp) Emit(PeerDown{PeerOf(link), why, life.dead});
  for (const Generation generation : GrantsOf(incarnation)) {
    GrantRecord& grant = grants_.at(generation);
    if (life.dead || grant.link == link.id) Break(grant, why);
  }
  ForgetLives();
}

void OwnerCore::DataClosed(LinkId link, bool fenced) {
  ENSURE(Find(link) == nullptr);
  auto landing = landings_.lower_bound({link, 0});
  while (landing != landings_.end() && landing->first.first == link) {
    --grants_.at(landing->second.generation).landings;
    landing = landings_.erase(landing);
  }
  landings_of_.erase(link);
  std::vector<Generation> touched;
  for (auto& [generation, grant] : grants_) {
    if (grant.link != link) continue;
    ENSURE(grant.broken || grant.quarantined);
    grant.fenced = grant.fenced || fenced;
    touched.push_back(generation);
  }
  for (const Generation generation : touched) Settle(generation);
}

// Keeps what K7 needs: who was declared dead.  Beyond dead_max the oldest that holds nothing
// goes; were it to wake after a thousand others died, it would be taken for new.
void OwnerCore::ForgetLives() {
  if (lives_.size() <= options_.dead_max) return;
  auto oldest = lives_.end();
  for (auto it = lives_.begin(); it != lives_.end(); ++it) {
    const bool younger = oldest != lives_.end() && it->second.since > oldest->second.since;
    if (younger || FindKnown(it->first) != nullptr || !GrantsOf(it->first).empty()) continue;
    oldest = it;
  }
  if (oldest != lives_.end()) lives_.erase(oldest);
}

// ── what the writer says ──────────────────────────────────────────────────────────────

void OwnerCore::Received(Link& link, const Frame& frame) {
  if (const auto* commit = std::get_if<Commit>(&frame)) {
    CommitFrame(link, *commit);
  } else if (const auto* written = std::get_if<WrittenFrame>(&frame)) {
    WrittenArrived(link, written->header);
  } else if (const auto* quiet = std::get_if<QuietFrame>(&frame)) {
    QuietArrived(link, *quiet);
  } else if (const auto* failure = std::get_if<WriterFailedFrame>(&frame)) {
    FailureArrived(link, *failure);
  } else if (const auto* dead = std::get_if<DeclaredDead>(&frame)) {
    // Only from a verified peer: our incarnation is no secret, and this ends the process.
    if (link.state != LinkState::kUp || dead->incarnation != self_.self.incarnation) return;
    Emit(MustExit{absl::UnavailableError("this process was declared dead by a peer")});  // rule 7
  } else {
    ++counters_.malformed_frames;
    EndLink(link.id, absl::InvalidArgumentError("frame: not a writer's to send"));
  }
}

void OwnerCore::HeartbeatArrived(Link& link, const Heartbeat& heartbeat) {
  if (link.state != LinkState::kUp || heartbeat.link.cost.bandwidth <= 0) return;
  link.info.cost = heartbeat.link.cost;
  link.info.in_flight_bytes = heartbeat.link.in_flight_bytes;
  // The way here is not counted: it is short beside an age that matters.
  link.info.measured = std::max(link.info.measured, now_ - heartbeat.link.age);
}

void OwnerCore::CommitFrame(const Link& link, const Commit& commit) {
  const auto it = grants_.find(commit.key.generation);
  const bool live = it != grants_.end() && commit.key.owner == self_.self.incarnation &&
                    commit.writer == link.peer->self.incarnation &&
                    it->second.ticket.writer == commit.writer &&
                    it->second.ticket.attempt == commit.attempt && it->second.link == link.id &&
                    !it->second.broken && !it->second.quarantined;
  if (!live) {  // K4
    ++counters_.stale_commits;
    return;
  }
  GrantRecord& grant = it->second;
  const uint64_t blocks = grant.ticket.blocks.size();
  const uint64_t pieces = blocks * self_.layout.layers;
  const bool whole = commit.blocks == blocks && commit.layers == self_.layout.layers &&
                     commit.bytes == pieces * self_.layout.block_bytes() &&
                     !commit.first_tokens.empty();
  const bool here = grant.path == 'A' || (grant.pieces == pieces && grant.landings == 0);
  const bool right = !commit.summed || grant.right == pieces;
  if (!whole || !here || !right) {  // K3
    ++counters_.refused_commits;
    Break(grant,
          absl::InternalError(absl::StrCat("commit of generation ", commit.key.generation.value(),
                                           " names other bytes than have landed")));
    return;
  }
  grants_.erase(it);
  Emit(CommitArrived{commit});
}

void OwnerCore::QuietArrived(const Link& link, const QuietFrame& quiet) {
  const Incarnation writer = link.peer->self.incarnation;
  if (!quiet.generation) {
    Silence(writer);
    return;
  }
  const auto it = grants_.find(*quiet.generation);
  if (it == grants_.end()) {
    if (*quiet.generation > last_granted_) ++counters_.stale_quiets;
    return;  // settled already by another fence
  }
  GrantRecord& grant = it->second;
  if (grant.ticket.writer != writer || !grant.quarantined) {
    ++counters_.stale_quiets;
    return;
  }
  grant.fenced = true;
  Settle(*quiet.generation);
}

void OwnerCore::FailureArrived(const Link& link, const WriterFailedFrame& failure) {
  const auto it = grants_.find(failure.generation);
  if (it == grants_.end() || it->second.link != link.id || it->second.quarantined) {
    ++counters_.stale_failures;
    return;
  }
  const bool known =
      failure.code > absl::StatusCode::kOk && failure.code <= absl::StatusCode::kUnauthenticated;
  Break(it->second, absl::Status(known ? failure.code : absl::StatusCode::kUnknown,
                                 absl::StrCat("writer: ", failure.message)));
}

// ── sums ──────────────────────────────────────────────────────────────────────────────

void OwnerCore::WrittenArrived(Link& link, const DataHeader& header) {
  if (!CheckHeader(link.id, header, 'A').ok()) {  // K4
    ++counters_.stale_arrivals;
    return;
  }
  GrantRecord& grant = grants_.at(header.key.generation);
  for (const uint32_t target : header.targets) {
    grant.begun[header.layer * grant.ticket.blocks.size() + target] = true;
  }
  Compare(link, grant, header);
}

bool OwnerCore::Compare(const Link& link, GrantRecord& grant, const DataHeader& header) {
  if (grant.broken || grant.quarantined) return true;  // nobody will read it
  ComparedOver over{grant.worker, link.info.transport, link.info.data_path};
  if (compared_.size() >= kComparedMax && !compared_.contains(over)) over.peer = "others";
  Compared& count = compared_[over];
  const uint64_t bytes = self_.layout.block_bytes();
  for (size_t i = 0; i < header.targets.size(); ++i) {
    const BlockIndex block = grant.ticket.blocks[header.targets[i]];
    const uint32_t sum = Crc32c(pool_.subspan(self_.layout.offset(header.layer, block), bytes));
    if (sum == header.sums[i]) {
      ++count.right;
      ++grant.right;
      continue;
    }
    ++count.wrong;
    Break(grant, absl::DataLossError(absl::StrFormat(
                     "block %d of layer %d arrived damaged from %s over %s (path %c): its CRC32C "
                     "is %08x, not %08x",
                     block, header.layer, grant.worker, link.info.transport, link.info.data_path,
                     sum, header.sums[i])));
  }
  return !grant.broken;
}

// ── path B ────────────────────────────────────────────────────────────────────────────

// What the header says must be the grant's, and new.
absl::Status OwnerCore::CheckHeader(LinkId id, const DataHeader& header, char path) const {
  const auto link = links_.find(id);
  const auto it = grants_.find(header.key.generation);
  if (link == links_.end() || !link->second.peer || it == grants_.end()) {
    return absl::NotFoundError("no such link or grant");
  }
  const GrantRecord& grant = it->second;
  if (header.key.owner != self_.self.incarnation || grant.link != id || grant.path != path ||
      header.writer != link->second.peer->self.incarnation ||
      grant.ticket.writer != header.writer || grant.ticket.attempt != header.attempt ||
      grant.quarantined || grant.broken) {
    return absl::NotFoundError("the grant is another's, or closed");
  }
  const uint64_t blocks = grant.ticket.blocks.size();
  if (header.targets.empty() || header.targets.back() >= blocks ||
      header.layer >= self_.layout.layers) {
    return absl::InvalidArgumentError("outside the grant");
  }
  for (size_t i = 0; i < header.targets.size(); ++i) {
    if (i > 0 && header.targets[i] <= header.targets[i - 1]) {
      return absl::InvalidArgumentError("targets do not rise");
    }
    if (grant.begun[header.layer * blocks + header.targets[i]]) {
      return absl::InvalidArgumentError("a piece comes twice");
    }
  }
  return absl::OkStatus();
}

absl::Status OwnerCore::CheckRoom(LinkId id, const DataHeader& header,
                                  uint64_t payload_bytes) const {
  if (payload_bytes != header.targets.size() * self_.layout.block_bytes()) {
    return absl::InvalidArgumentError("outside the grant");
  }
  const auto landing = landings_of_.find(id);
  if (landing != landings_of_.end() && landing->second >= options_.landings_per_link_max) {
    return absl::ResourceExhaustedError("too many landings at once");
  }
  if (landings_.contains({id, header.write})) return absl::InvalidArgumentError("number reused");
  return absl::OkStatus();
}

absl::StatusOr<OwnerCore::Landing> OwnerCore::CheckArrival(LinkId id, const DataHeader& header,
                                                           uint64_t payload_bytes) {
  absl::Status status = CheckHeader(id, header, 'B');
  if (status.ok()) status = CheckRoom(id, header, payload_bytes);
  if (!status.ok()) {
    ++counters_.stale_arrivals;
    if (const Link* link = Find(id)) Send(*link, WriteResult{header.write, false});
    return status;
  }
  GrantRecord& grant = grants_.at(header.key.generation);
  Landing landing;
  landing.block_bytes = self_.layout.block_bytes();
  for (const uint32_t target : header.targets) {
    const BlockIndex block = grant.ticket.blocks[target];
    ENSURE(block < self_.layout.blocks);
    grant.begun[header.layer * grant.ticket.blocks.size() + target] = true;
    landing.offsets.push_back(self_.layout.offset(header.layer, block));
  }
  ++grant.landings;
  ++landings_of_[id];
  LandingRecord& record = landings_[{id, header.write}];
  record.generation = header.key.generation;
  record.pieces = static_cast<uint32_t>(header.targets.size());
  if (!header.sums.empty()) record.sums = header;
  return landing;
}

void OwnerCore::Landed(LinkId id, uint64_t write) {
  const auto it = landings_.find({id, write});
  ENSURE(it != landings_.end());
  const LandingRecord landing = std::move(it->second);
  landings_.erase(it);
  uint32_t& count = landings_of_.at(id);
  ENSURE(count > 0);
  --count;
  GrantRecord& grant = grants_.at(landing.generation);
  ENSURE(grant.landings > 0);
  --grant.landings;
  grant.pieces += landing.pieces;
  ENSURE(grant.pieces <= grant.begun.size());
  if (const Link* link = Find(id)) {
    const bool right = landing.sums.sums.empty() || Compare(*link, grant, landing.sums);
    Send(*link, WriteResult{write, right});
  }
  Settle(landing.generation);
}

}  // namespace baton::kv
