// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_memory_path.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/ensure.h"
#include "base/status_macros.h"
#include "kv_transfer/ucx_copy.h"
#include "kv_transfer/ucx_status.h"

namespace baton::kv {
namespace {

constexpr uint64_t kSliceBytes = 1u << 20;
constexpr uint64_t kPatternBytes = 64u << 10;
constexpr uint64_t kPieceBytes = 4u << 10;
constexpr uint32_t kPieces = 64;
constexpr uint64_t kLatencyBytes = 8;
constexpr uint32_t kLatencyRounds = 64;
constexpr uint32_t kPieceRounds = 32;  // half of them as one run
// Of each phase; all of them together stay below a tenth of a second.
constexpr absl::Duration kWarmMax = absl::Milliseconds(30);
constexpr absl::Duration kRoundsMax = absl::Milliseconds(10);
constexpr absl::Duration kStreamMax = absl::Milliseconds(20);
constexpr uint64_t kStreamBytesMax = 64u << 20;
// For an RDMA connection to come up and carry the pattern.  Other peers wait for the probe region
// meanwhile, and another path needs its time too.
constexpr absl::Duration kConnectMax = absl::Seconds(8);

}  // namespace

absl::StatusOr<std::unique_ptr<UcxMemoryPath>> UcxMemoryPath::Open(UcxWorker& worker,
                                                                   const MemoryOffer& offer,
                                                                   absl::Span<const uint8_t> pool,
                                                                   absl::Span<uint8_t> probe,
                                                                   LinkId link, PathHost& host) {
  auto path = std::make_unique<UcxMemoryPath>(offer, pool, probe, link, host);
  ASSIGN_OR_RETURN(path->endpoint_, UcxEndpoint::Connect(worker, offer.worker_address));
  ASSIGN_OR_RETURN(path->key_, path->endpoint_.UnpackKey(offer.key));
  void* local = nullptr;
  if (ucp_rkey_ptr(path->key_.get(), offer.base, &local) == UCS_OK) {
    path->mapped_ = static_cast<uint8_t*>(local);
    RETURN_IF_ERROR(path->CheckNonce());
    return path;
  }
  // UCX's silent emulation of puts would need the owner's CPU.
  return absl::UnavailableError(
      "the peer's pool cannot be mapped: it is not in shared memory (see kernel.shmmax and the "
      "size of /dev/shm there)");
}

std::unique_ptr<UcxMemoryPath> UcxMemoryPath::OverRdma(UcxWorker& worker,
                                                       const SocketAddress& listener,
                                                       const MemoryOffer& offer,
                                                       absl::Span<const uint8_t> pool,
                                                       absl::Span<uint8_t> probe, LinkId link,
                                                       PathHost& host) {
  auto path = std::make_unique<UcxMemoryPath>(offer, pool, probe, link, host);
  path->rdma_ = &worker;
  path->listener_ = listener;
  return path;
}

// The key must have led to the owner's memory, not to something of the same number in another
// namespace: nothing is written before this holds.
absl::Status UcxMemoryPath::CheckNonce() const {
  uint64_t found = 0;
  std::memcpy(&found, mapped_, sizeof found);
  if (found == offer_.nonce) return absl::OkStatus();
  return absl::UnavailableError("the peer's key leads to other memory than the peer's");
}

void UcxMemoryPath::Begin(uint64_t, absl::Time now) {
  if (probe_.size() < kSliceBytes) {
    return Fail(absl::InvalidArgumentError("the peer's probe region is too small"));
  }
  FillPattern(offer_.nonce, probe_.first(kPatternBytes));
  probe_end_ = probe_.size() / kSliceBytes * kSliceBytes;
  if (rdma_ == nullptr) return PutPattern(now);
  auto connecting = UcxEndpoint::ConnectTo(*rdma_, listener_);
  if (!connecting.ok()) return Fail(connecting.status());
  endpoint_ = *std::move(connecting);
  Enter(Phase::kConnect, now);
  // UCX ends it when the connection is up.
  Flush([this](const absl::Status& status) {
    if (phase_ == Phase::kConnect) Connected(status);
  });
}

// A key is unpacked for the lanes that an endpoint has: before it is connected, none that writes
// memory.
void UcxMemoryPath::Connected(const absl::Status& status) {
  if (!status.ok()) return Fail(status);
  auto key = endpoint_.UnpackKey(offer_.key);
  if (!key.ok()) return Fail(key.status());
  key_ = *std::move(key);
  PutPattern(RealClock().Now());
}

void UcxMemoryPath::PutPattern(absl::Time now) {
  Enter(Phase::kPattern, now);
  ProbePut(kPatternBytes);
  waiting_ = true;
  Flush([this](const absl::Status& status) {
    if (!status.ok()) return Fail(status);
    PathMessage check{.step = PathStep::kCheck, .path = 'A'};
    check.seed = offer_.nonce;
    check.bytes = kPatternBytes;
    host_.SendPath(link_, check);
  });
}

void UcxMemoryPath::OnMessage(const PathMessage& message, absl::Time now) {
  if (message.step != PathStep::kChecked || phase_ != Phase::kPattern || closing_) return;
  if (!message.ok) return Fail(absl::UnavailableError(message.text));
  waiting_ = false;
  Enter(Phase::kWarm, now);
}

void UcxMemoryPath::Fail(const absl::Status& why) {
  phase_ = Phase::kDone;
  if (!result_.has_value() || result_->ok()) result_ = why;
}

void UcxMemoryPath::Enter(Phase phase, absl::Time now) {
  phase_ = phase;
  rounds_ = 0;
  phase_bytes_ = 0;
  probe_at_ = 0;
  phase_start_ = round_start_ = now;
}

absl::Status UcxMemoryPath::Put(const uint8_t* source, uint64_t bytes, uint64_t offset) {
  if (mapped_ == nullptr) return endpoint_.Put(source, bytes, offer_.base + offset, key_.get());
  CopyToPeer(mapped_ + offset, source, bytes);
  return absl::OkStatus();
}

void UcxMemoryPath::Flush(UcxDone done) {
  if (mapped_ != nullptr) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return done(absl::OkStatus());
  }
  ++flushes_;
  endpoint_.Flush([this, done = std::move(done)](const absl::Status& status) mutable {
    --flushes_;
    done(status);
  });
}

absl::Status UcxMemoryPath::ProbePutAt(uint64_t source, uint64_t bytes, uint64_t target) {
  phase_bytes_ += bytes;
  return Put(probe_.data() + source, bytes, offer_.probe_offset + target);
}

void UcxMemoryPath::ProbePut(uint64_t bytes) {
  if (probe_at_ + bytes > probe_end_) probe_at_ = 0;
  const absl::Status put = ProbePutAt(probe_at_, bytes, probe_at_);
  if (!put.ok()) return Fail(put);
  probe_at_ += bytes;
}

// As blocks of a pool go to those of another.
void UcxMemoryPath::ProbePieces() {
  if (probe_at_ + kPieces * kPieceBytes > probe_end_) probe_at_ = 0;
  for (uint64_t i = 0; i < kPieces; ++i) {
    const absl::Status put = ProbePutAt(probe_at_ + i * kPieceBytes, kPieceBytes,
                                        probe_at_ + Scattered(i, kPieces) * kPieceBytes);
    if (!put.ok()) return Fail(put);
  }
  probe_at_ += kPieces * kPieceBytes;
}

// One round of the phase: some puts and their flush.
void UcxMemoryPath::StepProbe() {
  round_start_ = RealClock().Now();
  switch (phase_) {
    case Phase::kLatency:
      ProbePut(kLatencyBytes);
      break;
    case Phase::kPieces:
      if (rounds_ % 2 == 0) {
        ProbePut(kPieces * kPieceBytes);
      } else {
        ProbePieces();
      }
      break;
    default:
      ProbePut(kSliceBytes);
  }
  if (phase_ == Phase::kDone) return;
  waiting_ = true;
  Flush([this](const absl::Status& status) {
    waiting_ = false;
    if (!status.ok()) return Fail(status);
    if (phase_ == Phase::kPieces) NoteRound(RealClock().Now() - round_start_);
    ++rounds_;
  });
}

void UcxMemoryPath::NoteRound(absl::Duration took) {
  (rounds_ % 2 == 0 ? whole_ : apart_).Note(took);
}

// The next phase when this one has seen enough.
void UcxMemoryPath::Judge() {
  const absl::Time now = RealClock().Now();
  const absl::Duration spent = now - phase_start_;
  switch (phase_) {
    case Phase::kWarm:
      if (phase_bytes_ + kSliceBytes <= probe_end_ && spent < kWarmMax) return;
      probe_end_ = phase_bytes_;  // what was not touched would cost its first touch
      return Enter(Phase::kLatency, now);
    case Phase::kLatency:
      if (rounds_ < kLatencyRounds && (rounds_ < 2 || spent < kRoundsMax)) return;
      return Enter(Phase::kPieces, now);
    case Phase::kPieces:
      if (rounds_ < kPieceRounds && (rounds_ < 2 || spent < kRoundsMax)) return;
      Enter(Phase::kStream, now);
      return meter_.Start(now);
    case Phase::kStream:
      meter_.Note(phase_bytes_, now);
      if (meter_.elapsed(now) < kStreamMax && phase_bytes_ < kStreamBytesMax) return;
      return Finish(now);
    default:
      return;
  }
}

void UcxMemoryPath::Finish(absl::Time now) {
  measure_.info.data_path = 'A';
  measure_.info.cost.latency = latency_.best();
  measure_.info.cost.per_operation = PerOperation(apart_.best(), whole_.best(), kPieces);
  measure_.info.cost.bandwidth = meter_.best(phase_bytes_, now);
  for (const UcxLane& lane : endpoint_.Lanes()) {
    if (lane.wireup_only || !IsMemoryTransport(lane.transport)) continue;
    if ((mapped_ != nullptr) == IsRdmaTransport(lane.transport)) continue;
    measure_.info.transport = lane.transport;
    measure_.rdma = IsRdmaTransport(lane.transport);
    break;
  }
  phase_ = Phase::kDone;
  if (measure_.info.transport.empty()) {
    return Fail(absl::UnavailableError("UCX uses no transport that writes memory"));
  }
  if (!result_.has_value()) result_ = measure_;
}

bool UcxMemoryPath::Step(absl::Time now) {
  if (closing_) return false;
  if (endpoint_.open() && !endpoint_.failure().ok()) Fail(endpoint_.failure());
  const bool verifying = phase_ == Phase::kConnect || phase_ == Phase::kPattern;
  if (verifying && rdma_ != nullptr && now - round_start_ > kConnectMax) {
    Fail(absl::DeadlineExceededError(absl::StrCat(
        "no RDMA connection to ", listener_.ToString(), " within ",
        absl::ToInt64Seconds(kConnectMax), " s: is it the address of an RDMA device's network?")));
  }
  const bool probing = phase_ > Phase::kPattern && phase_ < Phase::kDone;
  if (probing && !waiting_) {
    // A small write is done when the reactor has come round to it again.
    if (phase_ == Phase::kLatency && rounds_ > 0) latency_.Note(RealClock().Now() - round_start_);
    if (rounds_ > 0) Judge();
    if (phase_ < Phase::kDone) StepProbe();
    return true;
  }
  return StepWrites();
}

void UcxMemoryPath::Post(DataWrite write) {
  for (const Copy& copy : write.copies) {
    ENSURE(copy.source_offset + copy.size_bytes <= pool_.size());
    ENSURE(copy.target_offset + copy.size_bytes <= offer_.pool_bytes);
  }
  queue_.push_back({std::move(write)});
}

bool UcxMemoryPath::StepWrites() {
  uint64_t budget = kSliceBytes;
  bool moved = false;
  while (!queue_.empty() && budget > 0) {
    moved = true;
    Active& active = queue_.front();
    absl::Status status;
    while (status.ok() && budget > 0 && active.copy < active.write.copies.size()) {
      const Copy& copy = active.write.copies[active.copy];
      const uint64_t bytes = std::min(budget, copy.size_bytes - active.done);
      status = Put(pool_.data() + copy.source_offset + active.done, bytes,
                   offer_.pool_offset + copy.target_offset + active.done);
      budget -= bytes;
      active.done += bytes;
      if (active.done < copy.size_bytes) continue;
      active.done = 0;
      ++active.copy;
    }
    if (status.ok() && active.copy < active.write.copies.size()) break;
    Active ended = std::move(active);
    queue_.pop_front();
    if (status.ok()) {
      EndWrite(std::move(ended));
    } else {
      host_.WriteEnded(ended.write.header.write, status);
    }
  }
  return moved;
}

void UcxMemoryPath::EndWrite(Active active) {
  const uint64_t number = active.write.header.write;
  Flush([this, number](const absl::Status& status) { host_.WriteEnded(number, status); });
}

bool UcxMemoryPath::busy() const {
  return !queue_.empty() || flushes_ > 0 || (closing_ && !closed_) ||
         (phase_ != Phase::kOpen && phase_ != Phase::kDone);
}

void UcxMemoryPath::Close() {
  if (closing_) return;
  closing_ = true;
  for (const Active& active : std::exchange(queue_, {})) {
    host_.WriteEnded(active.write.header.write, absl::UnavailableError("the link was closed"));
  }
  key_.reset();  // unmaps the owner's memory
  mapped_ = nullptr;
  closed_ = !endpoint_.open();
  if (!closed_) endpoint_.Close([this](bool) { closed_ = true; });
}

std::optional<bool> UcxMemoryPath::closed() const {
  if (!closed_ || flushes_ > 0) return std::nullopt;
  return measure_.rdma;
}

}  // namespace baton::kv
