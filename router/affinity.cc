// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/affinity.h"

#include <algorithm>

#include "base/random.h"

namespace baton::router {
namespace {

constexpr uint32_t kLeadingBlocksMax = 128;

}  // namespace

std::vector<uint64_t> LeadingBlockHashes(const Sequence& sequence) {
  const uint32_t blocks = std::min((sequence.size() - 1) / kBlockTokens, kLeadingBlocksMax);
  std::vector<uint64_t> hashes;
  hashes.reserve(blocks);
  uint64_t hash = SplitMix64(sequence.cache_salt);
  for (uint32_t block = 0; block < blocks; ++block) {
    for (uint32_t i = 0; i < kBlockTokens; ++i) {
      hash = SplitMix64(hash ^ static_cast<uint32_t>(sequence.at(block * kBlockTokens + i)));
    }
    hashes.push_back(hash);
  }
  return hashes;
}

void PrefixAffinity::Remember(const std::vector<uint64_t>& hashes, WorkerIndex worker) {
  for (const uint64_t hash : hashes) {
    if (young_.size() >= entries_max_ / 2) {
      old_ = std::move(young_);
      young_ = {};
    }
    young_[hash] = worker;
  }
}

const WorkerIndex* PrefixAffinity::Find(uint64_t hash) const {
  if (const auto it = young_.find(hash); it != young_.end()) return &it->second;
  if (const auto it = old_.find(hash); it != old_.end()) return &it->second;
  return nullptr;
}

std::vector<std::pair<WorkerIndex, uint32_t>> PrefixAffinity::Match(
    const std::vector<uint64_t>& hashes) const {
  std::vector<std::pair<WorkerIndex, uint32_t>> matches;
  uint32_t tokens = 0;
  for (const uint64_t hash : hashes) {
    const WorkerIndex* worker = Find(hash);
    if (worker == nullptr) break;
    tokens += kBlockTokens;
    auto it = std::find_if(matches.begin(), matches.end(),
                           [&](const auto& match) { return match.first == *worker; });
    if (it == matches.end()) it = matches.insert(matches.end(), {*worker, 0});
    it->second = tokens;
  }
  return matches;
}

}  // namespace baton::router
