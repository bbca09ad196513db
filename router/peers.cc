// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/peers.h"

#include <algorithm>

#include "base/ensure.h"

namespace baton::router {
namespace {

// What a running sequence costs its worker, in prompt tokens: each step reads all of its KV.
constexpr uint64_t kAttemptTokens = 32;

uint64_t PoolTokens(const WorkerStatus& status) {
  return uint64_t{status.blocks_total} * kBlockTokens;
}

bool Fits(const WorkerStatus& status, uint64_t tokens) {
  return tokens <= status.context_max && tokens <= PoolTokens(status);
}

const Avoided* FindAvoided(const std::vector<Avoided>& avoided, WorkerIndex worker) {
  const auto it = std::find_if(avoided.begin(), avoided.end(),
                               [&](const Avoided& a) { return a.worker == worker; });
  return it == avoided.end() ? nullptr : &*it;
}

}  // namespace

Peers::Peers(Options options, const std::vector<Role>& roles)
    : options_(options),
      decode_affinity_(options.affinity_entries),
      prefill_affinity_(options.affinity_entries) {
  for (const Role role : roles) {
    ENSURE(role != Role::kFrontend);
    peers_.push_back({.role = role, .health = Health(options.health)});
    has_prefill_ |= role == Role::kPrefill;
  }
}

void Peers::Forgive(absl::Duration gap) {
  for (Peer& peer : peers_) peer.health.Forgive(gap);
}

void Peers::Advance(absl::Time now, std::vector<WorkerIndex>& lost) {
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].health.Advance(now) == Health::Change::kLost) lost.push_back(WorkerIndex(i));
  }
}

absl::Time Peers::NextChange() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Peer& peer : peers_) next = std::min(next, peer.health.NextChange());
  return next;
}

absl::Time Peers::NextRoom(absl::Time now) const {
  absl::Time next = absl::InfiniteFuture();
  for (const Peer& peer : peers_) {
    if (peer.full_until > now) next = std::min(next, peer.full_until);
  }
  return next;
}

bool Peers::HasRoom(const Peer& peer, absl::Time now) const {
  return peer.full_until <= now && peer.reserving < (peer.narrow ? 1 : options_.reserving_max);
}

bool Peers::AnyRoom(absl::Time now) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.role == Role::kDecode && peer.health.usable() && HasRoom(peer, now);
  });
}

Candidate Peers::MakeCandidate(WorkerIndex worker, const Need& need,
                               const std::vector<std::pair<WorkerIndex, uint32_t>>& cached) const {
  const Peer& peer = at(worker);
  const WorkerStatus& status = peer.health.status();
  Candidate candidate{.worker = worker, .status = &status};
  candidate.load_tokens = std::max<uint64_t>(status.waiting_tokens, peer.tokens) +
                          kAttemptTokens * std::max(status.attempts, peer.attempts);
  for (const auto& [owner, tokens] : cached) {
    if (owner == worker) candidate.cached_tokens = tokens;
  }
  candidate.last_resort =
      peer.health.state() == PeerState::kSuspect || FindAvoided(*need.avoided, worker) != nullptr;
  return candidate;
}

std::optional<Placement> Peers::Find(const Need& need, absl::Time now, Lack& lack) const {
  const auto cached_decode = decode_affinity_.Match(*need.hashes);
  const auto cached_prefill = prefill_affinity_.Match(*need.hashes);
  std::vector<Candidate> decodes, prefills;
  lack = Lack::kDecode;
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    const Peer& peer = peers_[i];
    const WorkerIndex worker(i);
    if (!peer.health.usable()) continue;
    const WorkerStatus& status = peer.health.status();
    const Avoided* avoided = FindAvoided(*need.avoided, worker);
    if (peer.role == Role::kPrefill) {
      // A writer that failed this request is not asked again: decode can do without.
      if (need.writer_wanted && avoided == nullptr && Fits(status, need.tokens)) {
        prefills.push_back(MakeCandidate(worker, need, cached_prefill));
      }
      continue;
    }
    if (!Fits(status, need.tokens_end)) continue;
    if (need.fingerprint != 0 && status.model_fingerprint != need.fingerprint) continue;
    if (avoided != nullptr && peer.health.answers() <= avoided->answers) {
      if (lack == Lack::kDecode) lack = Lack::kNews;
      continue;
    }
    if (!HasRoom(peer, now)) {
      lack = Lack::kRoom;
      continue;
    }
    decodes.push_back(MakeCandidate(worker, need, cached_decode));
  }
  if (decodes.empty()) return std::nullopt;
  lack = Lack::kNone;
  return Place(
      {.tokens = need.tokens, .writer_wanted = need.writer_wanted, .rotation = need.rotation},
      decodes, prefills);
}

Capacity Peers::capacity() const {
  Capacity capacity;
  for (const Peer& peer : peers_) {
    if (peer.role != Role::kDecode || peer.health.answers() == 0) continue;
    const WorkerStatus& status = peer.health.status();
    const uint64_t holds = std::min<uint64_t>(status.context_max, PoolTokens(status));
    if (holds > std::min<uint64_t>(capacity.context_tokens, capacity.pool_tokens)) {
      capacity.context_tokens = status.context_max;
      capacity.pool_tokens = PoolTokens(status);
    }
    capacity.any_usable |= peer.health.usable();
  }
  return capacity;
}

void Peers::ReserveAnswered(WorkerIndex decode, bool taken) {
  Peer& peer = at(decode);
  ENSURE(peer.reserving > 0);
  --peer.reserving;
  if (taken) peer.narrow = false;
}

void Peers::RefusedFull(WorkerIndex decode, absl::Time now) {
  at(decode).narrow = true;
  at(decode).full_until = now + options_.full_backoff;
}

void Peers::Remember(const std::vector<uint64_t>& hashes, const Placement& placement) {
  decode_affinity_.Remember(hashes, placement.decode);
  if (placement.prefill) prefill_affinity_.Remember(hashes, *placement.prefill);
}

}  // namespace baton::router
