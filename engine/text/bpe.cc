// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/bpe.h"

#include <algorithm>
#include <functional>

namespace baton::text {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr TokenId kGone = -1;  // joined to its left neighbour

uint64_t Pair(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void BpeMerges::Add(TokenId left, TokenId right, TokenId joined, uint32_t rank) {
  rules_.insert_or_assign(Pair(left, right), Rule{joined, rank});
}

const BpeMerges::Rule* BpeMerges::Find(TokenId left, TokenId right) const {
  const auto found = rules_.find(Pair(left, right));
  return found == rules_.end() ? nullptr : &found->second;
}

void BpeMerges::Propose(Workspace& work, uint32_t left) const {
  if (left == kNone) return;
  const auto& symbol = work.symbols[left];
  if (symbol.next == kNone) return;
  const Rule* rule = Find(symbol.id, work.symbols[symbol.next].id);
  if (rule == nullptr) return;
  work.queue.push_back(uint64_t{rule->rank} << 32 | left);
  std::push_heap(work.queue.begin(), work.queue.end(), std::greater<>());
}

void BpeMerges::Apply(const std::vector<TokenId>& symbols, Workspace& work,
                      std::vector<TokenId>& out) const {
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  work.symbols.clear();
  work.queue.clear();
  for (uint32_t i = 0; i < count; ++i) {
    work.symbols.push_back({symbols[i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1});
  }
  for (uint32_t i = 0; i + 1 < count; ++i) Propose(work, i);

  while (!work.queue.empty()) {
    std::pop_heap(work.queue.begin(), work.queue.end(), std::greater<>());
    const uint64_t candidate = work.queue.back();
    work.queue.pop_back();
    const uint32_t at = static_cast<uint32_t>(candidate);
    auto& left = work.symbols[at];
    if (left.id == kGone || left.next == kNone) continue;
    auto& right = work.symbols[left.next];
    // The pair may have changed since it was proposed; its successor was proposed then.
    const Rule* rule = Find(left.id, right.id);
    if (rule == nullptr || rule->rank != candidate >> 32) continue;
    left.id = rule->joined;
    right.id = kGone;
    left.next = right.next;
    if (left.next != kNone) work.symbols[left.next].previous = at;
    Propose(work, left.previous);
    Propose(work, at);
  }
  for (uint32_t i = 0; i != kNone && i < count; i = work.symbols[i].next) {
    out.push_back(work.symbols[i].id);
  }
}

}  // namespace baton::text
