// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/marker_trie.h"

#include <algorithm>

#include "base/ensure.h"

namespace baton::text {
namespace {

uint64_t Key(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

}  // namespace

void MarkerTrie::Add(absl::string_view marker, TokenId id, bool trusted_only) {
  ENSURE(!marker.empty());
  uint32_t node = 0;
  for (const char byte : marker) {
    const auto [child, added] = children_.try_emplace(Key(node, byte), nodes_.size());
    node = child->second;
    if (added) nodes_.emplace_back();
  }
  nodes_[node] = {id, trusted_only};
  starts_[static_cast<uint8_t>(marker[0])] = true;
}

uint32_t MarkerTrie::Child(uint32_t node, char byte) const {
  const auto found = children_.find(Key(node, byte));
  return found == children_.end() ? 0 : found->second;
}

std::optional<MarkerTrie::Match> MarkerTrie::MatchAt(absl::string_view text, size_t at,
                                                     size_t trusted_end) const {
  std::optional<Match> best;
  uint32_t node = 0;
  for (size_t end = at; end < text.size();) {
    node = Child(node, text[end]);
    if (node == 0) break;
    ++end;
    const Node& here = nodes_[node];
    if (here.id >= 0 && (!here.trusted_only || end <= trusted_end)) best = {at, end, here.id};
  }
  return best;
}

std::optional<MarkerTrie::Match> MarkerTrie::Find(
    absl::string_view text, size_t from,
    const std::vector<std::pair<size_t, size_t>>& trusted) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<uint8_t>(text[at])]) continue;
    // The run that holds `at`: the first that ends behind it, if it has begun.
    const auto run = std::partition_point(trusted.begin(), trusted.end(),
                                          [at](const auto& range) { return range.second <= at; });
    const bool inside = run != trusted.end() && run->first <= at;
    const auto match = MatchAt(text, at, inside ? run->second : 0);
    if (match.has_value()) return match;
  }
  return std::nullopt;
}

std::optional<TokenId> MarkerTrie::Exactly(absl::string_view marker) const {
  uint32_t node = 0;
  for (const char byte : marker) {
    node = Child(node, byte);
    if (node == 0) return std::nullopt;
  }
  return nodes_[node].id >= 0 ? std::optional<TokenId>(nodes_[node].id) : std::nullopt;
}

}  // namespace baton::text
