// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The tokens that are matched as whole strings before anything else: control markers such
// as <|im_end|>, and tokens that a model's makers defined by their text.
//
// The leftmost match wins, of those the longest.  Work per character is bounded by the
// longest marker.
//
// Thread: immutable after Add.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"

namespace baton::text {

class MarkerTrie {
 public:
  struct Match {
    size_t begin;
    size_t end;
    TokenId id;
  };

  // `trusted_only`: matches only in text that a template wrote.  REQUIRES: not empty.
  void Add(absl::string_view marker, TokenId id, bool trusted_only);

  // The first match that begins in [from, text.size()).  `trusted` holds, ascending and
  // not touching, [begin, end) pairs of text in which trusted_only markers may lie.
  std::optional<Match> Find(absl::string_view text, size_t from,
                            const std::vector<std::pair<size_t, size_t>>& trusted) const;

  std::optional<TokenId> Exactly(absl::string_view marker) const;

 private:
  struct Node {
    TokenId id = -1;  // -1: no marker ends here
    bool trusted_only = false;
  };
  // The node behind `node` by `byte`; 0 if there is none (the root is nobody's child).
  uint32_t Child(uint32_t node, char byte) const;
  // The longest allowed match at `at`.
  std::optional<Match> MatchAt(absl::string_view text, size_t at, size_t trusted_end) const;

  std::vector<Node> nodes_{1};
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // node << 8 | byte
  std::array<bool, 256> starts_{};
};

}  // namespace baton::text
