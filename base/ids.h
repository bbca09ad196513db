// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The names of things that cross processes: distinct types, so that they cannot be swapped.
//
// An Incarnation is one life of a process, drawn at its start (K7).  A RequestId
// is unique over all front ends and their restarts.  An AttemptId is one try of a
// request; attempts count from 1.  A Generation is one grant of memory by one
// owner incarnation; generations count from 1 and are never reused.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "absl/strings/str_format.h"

namespace baton {

template <typename Tag, typename Integer>
class StrongId {
 public:
  constexpr StrongId() = default;
  constexpr explicit StrongId(Integer value) : value_(value) {}
  constexpr Integer value() const { return value_; }
  constexpr auto operator<=>(const StrongId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const StrongId& id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  Integer value_ = 0;
};

using Incarnation = StrongId<struct IncarnationTag, uint64_t>;  // 0: none
using Generation = StrongId<struct GenerationTag, uint64_t>;    // 0: none

struct RequestId {
  Incarnation frontend;
  uint64_t number = 0;
  auto operator<=>(const RequestId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const RequestId& id) {
    return H::combine(std::move(h), id.frontend, id.number);
  }
};

struct AttemptId {
  RequestId request;
  uint32_t attempt = 0;
  auto operator<=>(const AttemptId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const AttemptId& id) {
    return H::combine(std::move(h), id.request, id.attempt);
  }
};

inline std::string ToString(Incarnation id) { return absl::StrFormat("%016x", id.value()); }
inline std::string ToString(const RequestId& id) {
  return absl::StrFormat("%s-%d", ToString(id.frontend), id.number);
}
inline std::string ToString(const AttemptId& id) {
  return absl::StrFormat("%s/%d", ToString(id.request), id.attempt);
}

using TokenId = int32_t;
using BlockIndex = uint32_t;

inline constexpr uint32_t kBlockTokens = 16;  // tokens in one KV block (design: paged KV)

// Blocks that hold `tokens` tokens.
constexpr uint32_t BlocksFor(uint64_t tokens) {
  return static_cast<uint32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

}  // namespace baton
