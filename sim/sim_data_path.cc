// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How bytes get from pool to pool in simulation, and how a data path ends.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/ensure.h"
#include "sim/checkers/checkers.h"
#include "sim/sim_process.h"
#include "sim/sim_transport.h"

namespace baton::sim {
namespace {

constexpr double kGivesUp = 0.02;  // a write that cannot pass, at each further try

// Cuts one contiguous piece into up to three parts at arbitrary bytes.
std::vector<kv::Copy> Tear(const kv::Copy& copy, Random& random) {
  std::vector<kv::Copy> parts;
  uint64_t at = 0;
  while (at < copy.size_bytes) {
    const uint64_t left = copy.size_bytes - at;
    const uint64_t size = parts.size() == 2 ? left : random.Between(1, left);
    parts.push_back({copy.source_offset + at, copy.target_offset + at, size});
    at += size;
  }
  return parts;
}

}  // namespace

void SimFabric::Post(SimProcess* from, kv::LinkId link, kv::DataWrite write) {
  Wire* wire = FindWire(link);
  ENSURE(wire != nullptr && wire->ends[kWriter] == from && !wire->closed[kWriter]);
  const PairState& pair = pairs_[wire->pair];
  if (checkers_ != nullptr) {
    checkers_->Posted(from->id, wire->ends[kOwner]->id, link, write, pair.config.path,
                      pair.config.close_fences);
  }
  const uint64_t number = write.header.write;
  const double speed = pair.weather.bytes_per_second > 0 ? pair.weather.bytes_per_second
                                                         : pair.config.bandwidth_bytes_per_second;
  const absl::Duration span = absl::Seconds(static_cast<double>(write.bytes) / speed);
  wire->busy_until = std::max(wire->busy_until, queue_.Now()) + span;
  ++wire->posted;
  const bool fresh =
      writes_.emplace(WriteKey{link, number}, WriteState{.write = std::move(write)}).second;
  ENSURE(fresh);
  if (pair.config.path == 'A') {
    PostPathA(*wire, number);
  } else {
    const absl::Time when = wire->busy_until + Upto(options_.write_jitter);
    queue_.At(when, [this, link, number] { DepartPathB(link, number, false); });
  }
}

// ── path A ────────────────────────────────────────────────────────────────────────────

void SimFabric::PostPathA(Wire& wire, uint64_t number) {
  const kv::LinkId link = wire.id;
  WriteState& state = writes_.at({link, number});
  absl::Time latest = wire.busy_until + Upto(options_.write_jitter);
  if (random_.Chance(options_.late_chance)) latest += Upto(options_.late_max);
  for (const kv::Copy& copy : state.write.copies) {
    for (const kv::Copy& part : Tear(copy, random_)) {
      ++state.parts;
      queue_.At(queue_.Now() + Upto(latest - queue_.Now()),
                [this, link, number, part] { LandPart(link, number, part, false); });
    }
  }
  ENSURE(state.parts > 0);
}

// `waits`: it lands only when its writer runs; decided when the writer is first found stopped.
void SimFabric::LandPart(kv::LinkId link, uint64_t number, kv::Copy part, bool waits) {
  WriteState& state = writes_.at({link, number});
  Wire* wire = FindWire(link);
  ENSURE(wire != nullptr);
  SimProcess* writer = wire->ends[kWriter];
  SimProcess* owner = wire->ends[kOwner];
  if (writer->alive && writer->paused && (waits || random_.Chance(0.5))) {
    queue_.After(options_.tick, [this, link, number, part] { LandPart(link, number, part, true); });
    return;
  }
  if (MemoryCut(*wire)) {
    // The network card tries again for a while, then gives up.
    if (!wire->closed[kWriter] && !random_.Chance(kGivesUp)) {
      queue_.After(options_.tick,
                   [this, link, number, part, waits] { LandPart(link, number, part, waits); });
      return;
    }
    state.failed = true;
    return PartDone(link, number);
  }
  const bool writer_gone = !writer->alive && (queue_.Now() >= writer->gone || random_.Chance(0.5));
  const bool fenced = pairs_[wire->pair].config.close_fences && wire->data_gone[kOwner];
  if (writer_gone || fenced) {
    state.failed = true;
  } else if (owner->alive) {
    ENSURE(part.source_offset + part.size_bytes <= writer->pool.size());
    Land(*wire, state.write.header.key, part.target_offset,
         absl::MakeConstSpan(writer->pool).subspan(part.source_offset, part.size_bytes));
  }
  PartDone(link, number);
}

void SimFabric::Land(const Wire& wire, const kv::GrantKey& key, uint64_t target_offset,
                     absl::Span<const uint8_t> bytes) {
  SimProcess& owner = *wire.ends[kOwner];
  const LinkWeather& weather = pairs_[wire.pair].weather;
  owner.Landing(key, target_offset, bytes.size());
  ENSURE(target_offset + bytes.size() <= owner.pool.size());
  uint8_t* const to = owner.pool.data() + target_offset;
  bytes_landed_ += bytes.size();
  const bool damaged = weather.damage_chance > 0 && random_.Chance(weather.damage_chance);
  const bool torn = damaged && weather.tears;
  std::memcpy(to, bytes.data(), torn ? random_.Below(bytes.size()) : bytes.size());
  if (damaged && !torn) {
    to[random_.Below(bytes.size())] ^= static_cast<uint8_t>(1u << random_.Below(8));
  }
  // The bytes that a torn part left may be the right ones by chance.
  if (!damaged || std::memcmp(to, bytes.data(), bytes.size()) == 0) return;
  ++damaged_;
  if (checkers_ != nullptr) checkers_->Damaged(key);
}

// Whether nothing written through the wire arrives now; a write that never will is dropped.
bool SimFabric::MemoryCut(const Wire& wire) const {
  return pairs_[wire.pair].weather.memory_cut && wire.ends[kWriter]->alive &&
         wire.ends[kOwner]->alive && !wire.data_gone[kOwner] &&
         wire.ends[kWriter]->host != wire.ends[kOwner]->host;
}

void SimFabric::PartDone(kv::LinkId link, uint64_t number) {
  WriteState& state = writes_.at({link, number});
  ENSURE(state.parts > 0);
  if (--state.parts > 0) return;
  const absl::Status status =
      state.failed ? absl::UnavailableError("endpoint closed") : absl::OkStatus();
  const PairState& pair = pairs_[FindWire(link)->pair];
  queue_.After(Delay(pair), [this, link, number, status] { EndWrite(link, number, status); });
}

void SimFabric::EndWrite(kv::LinkId link, uint64_t number, const absl::Status& status) {
  const auto ended = writes_.find({link, number});
  if (checkers_ != nullptr) {
    checkers_->WriteEnded(link, ended->second.write.header.key, ended->second.write.bytes);
  }
  writes_.erase(ended);
  Wire* wire = FindWire(link);
  ENSURE(wire != nullptr && wire->posted > 0);
  --wire->posted;
  SimProcess* writer = wire->ends[kWriter];
  As(writer, [writer, number, status] { writer->writer->WriteEnded(number, status); });
  if (wire->posted == 0 && wire->closed[kWriter] && !wire->data_gone[kWriter]) {
    queue_.After(Delay(pairs_[wire->pair]), [this, link] { CloseData(link, kWriter, true); });
  }
  ForgetWireIfOver(link);
}

// ── path B ────────────────────────────────────────────────────────────────────────────

// The message leaves: from here on its source may be reused.
void SimFabric::DepartPathB(kv::LinkId link, uint64_t number, bool waits) {
  Wire* wire = FindWire(link);
  ENSURE(wire != nullptr);
  SimProcess* writer = wire->ends[kWriter];
  if (writer->alive && writer->paused && (waits || random_.Chance(0.5))) {
    queue_.After(options_.tick, [this, link, number] { DepartPathB(link, number, true); });
    return;
  }
  if (!writer->alive || wire->closed[kWriter]) {
    EndWrite(link, number, absl::UnavailableError("connection closed"));
    return;
  }
  const kv::DataWrite& write = writes_.at({link, number}).write;
  std::vector<uint8_t> payload;
  payload.reserve(write.bytes);
  for (const kv::Copy& copy : write.copies) {
    const uint8_t* from = writer->pool.data() + copy.source_offset;
    payload.insert(payload.end(), from, from + copy.size_bytes);
  }
  absl::Time when = queue_.Now() + Delay(pairs_[wire->pair]);
  when += Upto(options_.write_jitter);
  if (random_.Chance(options_.late_chance)) when += Upto(options_.late_max);
  const auto header = kv::DecodeDataHeader(kv::Encode(write.header));
  ENSURE(header.ok());
  queue_.At(when, [this, link, header = *header, payload = std::move(payload)]() mutable {
    const Wire* now = FindWire(link);
    if (now == nullptr || now->deaf_data) return;
    Arrive(link, kOwner, [this, link, header, payload = std::move(payload)]() mutable {
      ArrivePathB(link, header, std::move(payload));
    });
  });
  EndWrite(link, number, absl::OkStatus());
}

void SimFabric::ArrivePathB(kv::LinkId link, const kv::DataHeader& header,
                            std::vector<uint8_t> payload) {
  Wire* wire = FindWire(link);
  if (wire == nullptr || wire->closed[kOwner]) return;
  SimProcess* owner = wire->ends[kOwner];
  const auto landing = owner->owner->CheckArrival(link, header, payload.size());
  if (!landing.ok()) return;
  if (checkers_ != nullptr) checkers_->Permitted(owner->id, header);
  const absl::Duration half = Upto(options_.write_jitter);
  const auto land = [this, link, owner, landing = *landing, header, payload = std::move(payload)](
                        size_t first, size_t end) {
    const Wire* now = FindWire(link);
    if (now == nullptr || now->data_gone[kOwner]) return false;  // abandoned
    for (size_t i = first; i < end; ++i) {
      Land(*now, header.key, landing.offsets[i],
           absl::MakeConstSpan(payload).subspan(i * landing.block_bytes, landing.block_bytes));
    }
    return true;
  };
  const size_t targets = header.targets.size();
  const uint64_t number = header.write;
  queue_.After(
      half, [this, owner, land, targets] { As(owner, [land, targets] { land(0, targets / 2); }); });
  queue_.After(half + Upto(options_.write_jitter), [this, link, owner, land, targets, number] {
    As(owner, [link, owner, land, targets, number] {
      if (land(targets / 2, targets)) owner->owner->Landed(link, number);
    });
  });
}

// ── the end of a data path ────────────────────────────────────────────────────────────

void SimFabric::CloseData(kv::LinkId link, int end, bool fenced) {
  Wire* wire = FindWire(link);
  if (wire == nullptr || wire->data_gone[end]) return;
  SimProcess* process = wire->ends[end];
  As(process, [this, link, end, fenced, process] {
    Wire* now = FindWire(link);
    if (now == nullptr || now->data_gone[end]) return;
    now->data_gone[end] = true;
    process->core().DataClosed(link, fenced);
    ForgetWireIfOver(link);
  });
}

void SimFabric::ForgetWireIfOver(kv::LinkId link) {
  const Wire* wire = FindWire(link);
  if (wire == nullptr || wire->posted > 0) return;
  if (wire->data_gone[kWriter] && wire->data_gone[kOwner]) wires_.erase(link);
}

}  // namespace baton::sim
