// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "tests/kv_transfer/kv_swarm.h"

#include "kv_transfer/conversion.h"

namespace baton::sim {
namespace {

kv::WriterCore::Options TightWriter() {
  kv::WriterCore::Options options;
  options.writes_in_flight_max = 2;  // so that bounds are met all the time
  return options;
}

}  // namespace

kv::Layout KvSwarm::Pool() {
  return {.layers = kLayers, .kv_heads = 1, .head_dim = 4, .block_tokens = 16, .blocks = kBlocks};
}

kv::Layout KvSwarm::WriterPool() const {
  kv::Layout layout = Pool();
  if (converts_) layout.kv_order = kv::KvOrder::kInner;
  return layout;
}

SimNetOptions KvSwarm::Net(Random& random) {
  SimNetOptions net;
  net.late_chance = random.Unit() * 0.2;
  net.late_max = absl::Milliseconds(random.Between(1, 1500));
  if (random.Chance(0.5)) net.write_jitter = absl::Milliseconds(random.Between(1, 20));
  net.exit_max = absl::Milliseconds(random.Between(1, 800));  // a dying process still copies
  return net;
}

SimProcessConfig KvSwarm::Config(const char* worker, Role role) const {
  SimProcessConfig config;
  config.worker = worker;
  config.role = role;
  config.layout = role == Role::kPrefill ? WriterPool() : Pool();
  config.writer = TightWriter();
  if (!converts_) return config;
  config.owner.link.pair.allow_conversion = config.writer.link.pair.allow_conversion = true;
  config.writer.staging = {.piece_bytes = 2 * Pool().block_bytes(), .per_link = 2};
  config.owners = 2;
  return config;
}

SimProcessConfig KvSwarm::Stranger() {
  SimProcessConfig config = Config("stranger", Role::kPrefill);
  switch (random_.Below(5)) {
    case 0:
      config.model_fingerprint = 0;
      break;
    case 1:
      config.model_fingerprint = 2;
      break;
    case 2:
      config.numeric_class = "other";
      break;
    case 3:
      config.layout.kv_heads = 2;
      break;
    case 4:
      if (converts_) {
        config.layout.head_dim = 8;  // what no writer converts
      } else {
        config.layout.element_type = kv::ElementType::kF16;
      }
      break;
  }
  return config;
}

KvSwarm::KvSwarm(uint64_t seed)
    : converts_(seed % 3 == 0),
      random_(seed),
      log_(queue_),
      checkers_(log_),
      fabric_(random_, queue_, Net(random_)) {
  fabric_.Watch(checkers_);
  if (converts_) checkers_.AllowConversion();
  checkers_.SetLimits({.writer = TightWriter(), .shares = false});
  for (int i = 0; i < 2; ++i) {
    owners_[i].index = fabric_.Add(Config(i ? "decode-1" : "decode-0", Role::kDecode));
  }
  for (int i = 0; i < 2; ++i) {
    writers_[i].index = fabric_.Add(Config(i ? "prefill-1" : "prefill-0", Role::kPrefill));
    for (OwnerLoop& owner : owners_) {
      const uint64_t kind = random_.Below(3);
      fabric_.Pair(writers_[i].index, owner.index,
                   {.path = kind == 0 ? 'B' : 'A', .close_fences = kind == 1});
    }
  }
  if (seed % 4 == 1) {  // one of the four links damages what passes
    const SimFabric::Index writer = writers_[seed / 4 % 2].index,
                           owner = owners_[seed / 8 % 2].index;
    LinkWeather weather = fabric_.weather(writer, owner);
    weather.damage_chance = 0.05;
    weather.tears = seed / 16 % 2 == 1;
    fabric_.SetWeather(writer, owner, weather);
  }
  const SimFabric::Index stranger = fabric_.Add(Stranger());
  for (OwnerLoop& owner : owners_) fabric_.Pair(stranger, owner.index);
}

void KvSwarm::Run() {
  for (int i = 0; i < 4000; ++i) {
    queue_.RunFor(absl::Microseconds(random_.Between(10, 12000)));
    if (random_.Chance(0.02)) Fail();
    Loops(/*start=*/true);
  }
  for (SimFabric::Index process = 0; process < 4; ++process) Mend(process);
  for (int i = 0; i < 6000; ++i) {  // 12 s: more than dead_after and every pause
    queue_.RunFor(absl::Milliseconds(2));
    Loops(/*start=*/false);
  }
  CheckIdle();
  damaged = fabric_.damaged();
}

// ── faults ──────────────────────────────────────────────────────────────────────────

void KvSwarm::Fail() {
  const auto process = static_cast<SimFabric::Index>(random_.Below(4));
  const auto writer = writers_[random_.Below(2)].index;
  const auto owner = owners_[random_.Below(2)].index;
  switch (random_.Below(8)) {
    case 0:
      if (fabric_.alive(process)) Crash(process);
      break;
    case 1:
    case 2:
      Mend(process);
      break;
    case 3:
    case 4:
    case 5:  // writers more often: what they hold outlives them
      Stop(random_.Chance(0.7) ? writer : process);
      break;
    case 6:
      fabric_.Break(writer, owner);
      break;
    case 7:
      fabric_.Cut(writer, owner, random_.Chance(0.4));
      break;
  }
}

void KvSwarm::Stop(SimFabric::Index process) {
  if (Runs(process)) fabric_.Pause(process);
}

void KvSwarm::Crash(SimFabric::Index process) {
  fabric_.Crash(process);
  for (OwnerLoop& owner : owners_) {
    if (owner.index == process) owner = OwnerLoop{.index = process};
  }
  for (WriterLoop& writer : writers_) {
    if (writer.index == process) writer = WriterLoop{.index = process};
  }
  if (random_.Chance(0.5)) fabric_.Restart(process);
}

void KvSwarm::Mend(SimFabric::Index process) {
  if (!fabric_.alive(process)) fabric_.Restart(process);
  if (fabric_.paused(process)) fabric_.Resume(process);
  for (WriterLoop& writer : writers_) {
    for (OwnerLoop& owner : owners_) fabric_.Cut(writer.index, owner.index, false);
  }
}

bool KvSwarm::Runs(SimFabric::Index process) const {
  return fabric_.alive(process) && !fabric_.paused(process);
}

// ── owners ──────────────────────────────────────────────────────────────────────────

void KvSwarm::Loops(bool start) {
  for (OwnerLoop& owner : owners_) {
    if (Runs(owner.index)) OwnerTick(owner, start);
  }
  for (WriterLoop& writer : writers_) {
    if (Runs(writer.index)) WriterTick(writer);
  }
}

void KvSwarm::OwnerHears(OwnerLoop& owner, const kv::TransportEvent& event) {
  if (const auto* up = std::get_if<kv::PeerUp>(&event)) {
    owner.peers[up->peer.incarnation] =
        up->peer.worker == "prefill-0" ? writers_[0].index : writers_[1].index;
  } else if (const auto* down = std::get_if<kv::PeerDown>(&event)) {
    owner.peers.erase(down->peer.incarnation);
    if (down->declared_dead) ++dead;
  } else if (const auto* failed = std::get_if<kv::WriterFailed>(&event)) {
    const auto job = owner.jobs.find(failed->generation);
    if (job != owner.jobs.end()) Revoke(owner, job->second);
  } else if (const auto* quiet = std::get_if<kv::Quiet>(&event)) {
    Free(owner, quiet->generation);
    ++quiets;
  } else if (const auto* commit = std::get_if<kv::CommitArrived>(&event)) {
    CheckBytes(owner, commit->commit.key.generation);
    Free(owner, commit->commit.key.generation);
    ++commits;
  }
}

void KvSwarm::OwnerTick(OwnerLoop& owner, bool start) {
  std::vector<kv::TransportEvent> events;
  fabric_.owner(owner.index).Poll(events);
  for (const kv::TransportEvent& event : events) OwnerHears(owner, event);
  checkers_.CheckOpen(fabric_.life_id(owner.index));
  checkers_.CheckSilence(fabric_.life_id(owner.index));
  std::vector<Generation> open;
  for (const auto& [generation, job] : owner.jobs) {
    if (!job.revoked) open.push_back(generation);
  }
  for (const Generation generation : open) {
    if (!start || random_.Chance(0.01)) Revoke(owner, owner.jobs.at(generation));
  }
  if (start && !owner.peers.empty() && random_.Chance(0.5)) Grant(owner);
}

void KvSwarm::Grant(OwnerLoop& owner) {
  const auto peer = std::next(owner.peers.begin(), random_.Below(owner.peers.size()));
  Job job;
  for (BlockIndex block = 0; block < kBlocks && job.ticket.blocks.size() < 2; ++block) {
    if (!owner.taken[block]) job.ticket.blocks.push_back(block);
  }
  if (job.ticket.blocks.empty()) return;
  for (const BlockIndex block : job.ticket.blocks) owner.taken[block] = true;
  job.ticket.key = {fabric_.self(owner.index).incarnation, Generation(++owner.last_generation)};
  job.ticket.writer = peer->first;
  job.ticket.attempt = {{Incarnation(1), ++last_request_}, 1};
  job.ticket.tokens = static_cast<uint32_t>(job.ticket.blocks.size()) * kBlockTokens;
  job.writer = peer->second;
  fabric_.owner(owner.index).Grant(job.ticket);
  owner.jobs[job.ticket.key.generation] = job;
  // The front end brings it: now, late, or twice.
  for (WriterLoop& writer : writers_) {
    if (writer.index != job.writer) continue;
    writer.late.push_back(job.ticket);
    if (random_.Chance(0.1)) writer.late.push_back(job.ticket);
  }
}

void KvSwarm::Revoke(OwnerLoop& owner, Job& job) {
  if (job.revoked) return;
  job.revoked = true;
  fabric_.owner(owner.index).Revoke(job.ticket.key.generation);
}

// Told twice, or of a generation that it does not know: the checkers have said so.
void KvSwarm::Free(OwnerLoop& owner, Generation generation) {
  const auto job = owner.jobs.find(generation);
  if (job == owner.jobs.end()) return;
  for (const BlockIndex block : job->second.ticket.blocks) owner.taken[block] = false;
  owner.jobs.erase(job);
}

uint8_t KvSwarm::ByteOf(const kv::Ticket& ticket, uint32_t layer, uint64_t i) {
  return static_cast<uint8_t>(ticket.attempt.request.number * 37 + layer * 11 + i);
}

void KvSwarm::CheckBytes(const OwnerLoop& owner, Generation generation) {
  const auto job = owner.jobs.find(generation);
  if (job == owner.jobs.end()) return;
  const kv::Ticket& ticket = job->second.ticket;
  const kv::Layout layout = Pool();
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (const BlockIndex block : ticket.blocks) {
      const uint8_t* at = fabric_.pool(owner.index) + layout.offset(layer, block);
      bool same = true;
      for (uint64_t i = 0; i < layout.block_bytes(); ++i) {
        same = same && at[i] == ByteOf(ticket, layer, i);
      }
      if (same) continue;
      log_.Violation("K8: block ", block, " of the committed generation ", generation.value(),
                     " does not hold its writer's bytes");
    }
  }
}

// ── writers ─────────────────────────────────────────────────────────────────────────

void KvSwarm::WriterTick(WriterLoop& writer) {
  std::vector<kv::TransportEvent> events;
  kv::WriterTransport& transport = fabric_.writer(writer.index);
  transport.Poll(events);
  for (const kv::TransportEvent& event : events) {
    if (const auto* ended = std::get_if<kv::PushEnded>(&event)) {
      const auto job = writer.jobs.find(ended->key);
      if (job != writer.jobs.end()) job->second.over = true;
    } else if (const auto* done = std::get_if<kv::WriteDone>(&event)) {
      OnWriteDone(writer, *done);
    } else if (std::holds_alternative<kv::Reborn>(event)) {
      ++reborn;
      for (const auto& [key, job] : writer.jobs) {
        if (!job.over) log_.Violation("K7: a push outlives its writer's incarnation");
      }
    }
  }
  checkers_.CheckSilence(fabric_.life_id(writer.index));
  Deliver(writer);
  std::vector<kv::GrantKey> over;
  for (auto& [key, job] : writer.jobs) {
    if (!job.over && job.writes == kLayers) {
      transport.SendCommit(CommitOf(job.ticket));
      job.over = true;
    } else if (!job.over && random_.Chance(0.005)) {
      transport.Abandon(key, absl::CancelledError("chance"));
      job.over = true;
    }
    if (job.over) over.push_back(key);
  }
  for (const kv::GrantKey& key : over) {
    if (writer.pins[writer.jobs.at(key).source] == 0) writer.jobs.erase(key);
  }
}

void KvSwarm::OnWriteDone(WriterLoop& writer, const kv::WriteDone& done) {
  const kv::GrantKey key = writer.writes.at(done.id);
  writer.writes.erase(done.id);
  Job& job = writer.jobs.at(key);
  --writer.pins[job.source];
  if (done.status.ok()) ++job.writes;
}

// Prefill arrives: computes (fills a source block) and writes both layers.
void KvSwarm::Deliver(WriterLoop& writer) {
  std::vector<kv::Ticket> later;
  std::vector<kv::Ticket> tickets;
  tickets.swap(writer.late);
  for (const kv::Ticket& ticket : tickets) {
    const auto source = FreeSource(writer);
    const bool busy = writer.jobs.contains(ticket.key);
    // A quarter of them takes long enough for links to break and come back meanwhile.
    const bool slow = ticket.attempt.request.number % 4 == 0;
    if (busy || !source || random_.Chance(slow ? 0.97 : 0.8)) {
      if (random_.Chance(0.999)) later.push_back(ticket);
      continue;
    }
    Job job{.ticket = ticket, .accepted = true, .source = *source};
    Push(writer, job);
  }
  writer.late.insert(writer.late.end(), later.begin(), later.end());
}

std::optional<BlockIndex> KvSwarm::FreeSource(const WriterLoop& writer) const {
  for (BlockIndex block = 0; block < kBlocks; ++block) {
    bool used = false;
    for (const auto& [key, job] : writer.jobs) used = used || job.source == block;
    if (!used) return block;
  }
  return std::nullopt;
}

void KvSwarm::Push(WriterLoop& writer, const Job& job) {
  const kv::Layout layout = WriterPool();
  kv::WriterTransport& transport = fabric_.writer(writer.index);
  transport.Accept(job.ticket);
  writer.jobs[job.ticket.key] = job;
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    Fill(fabric_.pool(writer.index) + layout.offset(layer, job.source), job.ticket, layer);
    std::vector<kv::WritePiece> pieces;
    for (uint32_t i = 0; i < job.ticket.blocks.size(); ++i) pieces.push_back({job.source, i});
    const kv::WriteId id(++writer.last_write);
    writer.writes[id] = job.ticket.key;
    ++writer.pins[job.source];
    transport.Write(id, job.ticket.key, layer, pieces);
  }
}

void KvSwarm::Fill(uint8_t* at, const kv::Ticket& ticket, uint32_t layer) const {
  std::vector<uint8_t> bytes(Pool().block_bytes());
  for (uint64_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteOf(ticket, layer, i);
  const auto planned = kv::PlanConversion(Pool(), WriterPool());
  if (const auto* plan = std::get_if<kv::ConversionPlan>(&planned)) {
    const uint8_t* from = bytes.data();
    kv::Convert(*plan, {&from, 1}, {at, bytes.size()});
  } else {
    std::copy(bytes.begin(), bytes.end(), at);
  }
}

kv::Commit KvSwarm::CommitOf(const kv::Ticket& ticket) {
  kv::Commit commit;
  commit.key = ticket.key;
  commit.writer = ticket.writer;
  commit.attempt = ticket.attempt;
  commit.blocks = static_cast<uint32_t>(ticket.blocks.size());
  commit.layers = kLayers;
  commit.bytes = commit.blocks * kLayers * Pool().block_bytes();
  commit.first_tokens = {{.id = 1}};
  return commit;
}

// When faults stop, everything ends: no grant, no quarantine, no write (K9).
void KvSwarm::CheckIdle() {
  for (OwnerLoop& owner : owners_) {
    checkers_.CheckIdle(fabric_.life_id(owner.index), fabric_.owner_core(owner.index));
    if (!owner.jobs.empty() || !fabric_.owner_core(owner.index).held().empty()) {
      log_.Violation("liveness: ", owner.jobs.size(), " grants are never settled");
    }
    if (owner.peers.size() != 2) {
      log_.Violation("liveness: an owner has ", owner.peers.size(), " of 2 writers");
    }
  }
  for (WriterLoop& writer : writers_) {
    checkers_.CheckIdle(fabric_.life_id(writer.index), fabric_.writer_core(writer.index));
    if (!writer.writes.empty()) log_.Violation("liveness: writes never end");
  }
  if (fabric_.writes_out() > 0) log_.Violation("liveness: writes are out for ever");
}

}  // namespace baton::sim
