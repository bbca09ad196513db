// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/bpe.h"

#include <algorithm>
#include <functional>

namespace baton::text {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr TokenId kGone = -1;           // joined to its left neighbour
constexpr size_t kCandidatesMax = 256;  // symbols of a piece; above, places are faster

uint64_t Pair(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

template <typename T>
void PushHeap(std::vector<T>& heap, T value) {
  heap.push_back(value);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

template <typename T>
T PopHeap(std::vector<T>& heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  const T value = heap.back();
  heap.pop_back();
  return value;
}

// Makes the symbol at `at` and the next one `joined`.
template <typename Symbols>
void Join(Symbols& symbols, uint32_t at, TokenId joined) {
  auto& left = symbols[at];
  auto& right = symbols[left.next];
  left.id = joined;
  left.next = right.next;
  right.id = kGone;
  if (left.next != kNone) symbols[left.next].previous = at;
}

}  // namespace

void BpeMerges::Add(TokenId left, TokenId right, TokenId joined, uint32_t rank) {
  rules_.insert_or_assign(Pair(left, right), Rule{joined, rank});
  ranks_ = std::max(ranks_, rank + 1);
}

const BpeMerges::Rule* BpeMerges::FindAt(Workspace& work, uint32_t left) const {
  if (left == kNone) return nullptr;
  const auto& symbol = work.symbols_[left];
  if (symbol.next == kNone) return nullptr;
  const uint64_t pair = Pair(symbol.id, work.symbols_[symbol.next].id);
  // The product's top bits depend on all bits of both ids.
  auto& known = work.known_[(pair * 0x9E3779B97F4A7C15) >> 55];
  if (known.pair != pair) {
    const auto found = rules_.find(pair);
    known = {pair, found == rules_.end() ? nullptr : &found->second};
  }
  return known.rule;
}

void BpeMerges::AddCandidate(Workspace& work, uint32_t left) const {
  const Rule* rule = FindAt(work, left);
  if (rule != nullptr) PushHeap(work.candidates_, uint64_t{rule->rank} << 32 | left);
}

void BpeMerges::JoinByCandidates(Workspace& work) const {
  work.candidates_.clear();
  for (uint32_t i = 0; i < work.symbols_.size(); ++i) AddCandidate(work, i);
  while (!work.candidates_.empty()) {
    const uint64_t candidate = PopHeap(work.candidates_);
    const uint32_t at = static_cast<uint32_t>(candidate);
    if (work.symbols_[at].id == kGone) continue;
    // The pair may have changed since; what it became is a candidate of its own.
    const Rule* rule = FindAt(work, at);
    if (rule == nullptr || rule->rank != candidate >> 32) continue;
    Join(work.symbols_, at, rule->joined);
    AddCandidate(work, work.symbols_[at].previous);
    AddCandidate(work, at);
  }
}

void BpeMerges::AddPlace(Workspace& work, uint32_t left) const {
  const Rule* rule = FindAt(work, left);
  if (rule == nullptr) return;
  uint32_t& index = work.places_of_rank_[rule->rank];
  if (index == 0) {
    const auto& symbol = work.symbols_[left];
    work.places_.push_back({symbol.id, work.symbols_[symbol.next].id, rule->joined, true, 0, {}});
    index = static_cast<uint32_t>(work.places_.size());
  }
  Workspace::Places& places = work.places_[index - 1];
  if (places.at.empty()) {
    PushHeap(work.ranks_, rule->rank);
  } else if (places.at.back() > left) {
    places.sorted = false;
  }
  places.at.push_back(left);
}

// No place is added to a rule while some of its places are visited: a new pair holds a
// symbol that is longer than either of the rule's.
void BpeMerges::VisitPlaces(Workspace& work, uint32_t rank) const {
  const uint32_t index = work.places_of_rank_[rank] - 1;
  if (!work.places_[index].sorted) {
    std::sort(work.places_[index].at.begin(), work.places_[index].at.end());
    work.places_[index].sorted = true;
  }
  while (work.ranks_.front() == rank) {
    Workspace::Places& places = work.places_[index];  // AddPlace may move it
    if (places.visited == places.at.size()) {
      PopHeap(work.ranks_);
      places.at.clear();
      places.visited = 0;
      return;
    }
    const uint32_t at = places.at[places.visited++];
    const auto& left = work.symbols_[at];
    if (left.id != places.left || left.next == kNone) continue;
    if (work.symbols_[left.next].id != places.right) continue;
    Join(work.symbols_, at, places.joined);
    AddPlace(work, work.symbols_[at].previous);
    AddPlace(work, at);
  }
}

void BpeMerges::JoinByPlaces(Workspace& work) const {
  work.places_.clear();
  work.places_of_rank_.assign(ranks_, 0);
  for (uint32_t i = 0; i < work.symbols_.size(); ++i) AddPlace(work, i);
  while (!work.ranks_.empty()) VisitPlaces(work, work.ranks_.front());
}

void BpeMerges::Apply(const std::vector<TokenId>& symbols, Workspace& work,
                      std::vector<TokenId>& out) const {
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  work.symbols_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    work.symbols_.push_back({symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1});
  }
  if (count > kCandidatesMax) {
    JoinByPlaces(work);
  } else {
    JoinByCandidates(work);
  }
  for (uint32_t i = 0; i != kNone && i < count; i = work.symbols_[i].next) {
    out.push_back(work.symbols_[i].id);
  }
}

}  // namespace baton::text
