// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Conversion of layouts by definition: element by element, by the picture in layout.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kv_transfer/layout.h"

namespace baton::kv::naive {

struct Spot {
  uint64_t element = 0, scale = 0;  // offsets in a block
};

// `token` counts within the block, `head` within the layout's own.
inline Spot Find(const Layout& layout, uint64_t which, uint64_t head, uint64_t token,
                 uint64_t dim) {
  const uint64_t heads = layout.kv_heads, tokens = layout.block_tokens;
  const bool by_head = layout.row_order == RowOrder::kHeadMajor;
  uint64_t line = 0, at = 0, in_line = 0;
  if (layout.kv_order == KvOrder::kInner) {
    line = by_head ? head * tokens + token : token * heads + head;
    at = which;
    in_line = 2;
  } else {
    line = by_head ? which * heads + head : which * tokens + token;
    at = by_head ? token : head;
    in_line = by_head ? tokens : heads;
  }
  const uint64_t row = uint64_t{layout.head_dim} * ElementBytes(layout.element_type);
  const uint64_t begin = line * in_line * (row + layout.scale_bytes());
  return {begin + at * row + dim * ElementBytes(layout.element_type),
          begin + in_line * row + at * layout.scale_bytes()};
}

// A float with `mantissa` bits and an exponent from `lowest`, as its bits without the sign.
inline uint32_t Round(float magnitude, int mantissa, int lowest, float most) {
  const float value = std::min(magnitude, most);
  if (value == 0) return 0;
  const int exponent = std::max(std::ilogb(value), lowest);
  const double steps = std::nearbyint(std::ldexp(double{value}, mantissa - exponent));
  return static_cast<uint32_t>((exponent - lowest) << mantissa) + static_cast<uint32_t>(steps);
}
inline float Value(uint32_t bits, int mantissa, int lowest) {
  const uint32_t exponent = bits >> mantissa, rest = bits & ((1u << mantissa) - 1);
  const uint32_t steps = exponent == 0 ? rest : rest + (1u << mantissa);
  return std::ldexp(static_cast<float>(steps),
                    static_cast<int>(std::max(exponent, 1u)) - 1 + lowest - mantissa);
}

inline float Read(const Layout& layout, const uint8_t* block, const Spot& spot) {
  const uint8_t* at = block + spot.element;
  uint16_t half = 0;
  float value = 0;
  switch (layout.element_type) {
    case ElementType::kF32:
      std::memcpy(&value, at, 4);
      return value;
    case ElementType::kF16:
      std::memcpy(&half, at, 2);
      return std::copysign(Value(half & 0x7fff, 10, -14), half & 0x8000 ? -1.0f : 1.0f);
    case ElementType::kBf16:
      std::memcpy(&half, at, 2);
      return std::copysign(Value(half & 0x7fff, 7, -126), half & 0x8000 ? -1.0f : 1.0f);
    case ElementType::kInt8:
      std::memcpy(&value, block + spot.scale, 4);
      return value * static_cast<float>(static_cast<int8_t>(*at));
  }
  return 0;
}

// `row`: all values of the row that the element belongs to.
inline void Write(const Layout& layout, uint8_t* block, const Spot& spot, float value,
                  const std::vector<float>& row) {
  uint8_t* at = block + spot.element;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (layout.element_type == ElementType::kF32) {
    std::memcpy(at, &value, 4);
  } else if (layout.element_type == ElementType::kInt8) {
    float largest = 0;
    for (const float other : row) largest = std::max(largest, std::abs(other));
    largest = std::min(largest, 0x1.fp127f);
    const bool usable = largest > 1e-30f;
    const float scale = usable ? largest / 127.0f : 0.0f;
    const float steps = std::nearbyint(value * (usable ? 127.0f / largest : 0.0f));
    *at = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(steps, -127.0f, 127.0f)));
    std::memcpy(block + spot.scale, &scale, 4);
  } else {
    const bool half = layout.element_type == ElementType::kF16;
    const uint32_t bits = half ? Round(std::abs(value), 10, -14, 65504.0f)
                               : Round(std::abs(value), 7, -126, 0x1.fep127f);
    const auto stored = static_cast<uint16_t>(bits | sign);
    std::memcpy(at, &stored, 2);
  }
}

// The bytes that `target` should hold of one layer's blocks: those of `before`, but for what the
// source has.  Finite values only.
inline std::vector<uint8_t> Converted(const Layout& source, const Layout& target,
                                      const std::vector<const uint8_t*>& blocks,
                                      std::vector<uint8_t> before) {
  const bool as_they_are = source.element_type == target.element_type;
  const uint64_t targets = before.size() / target.block_bytes();
  for (uint64_t token = 0; token < targets * target.block_tokens; ++token) {
    if (token / source.block_tokens >= blocks.size()) break;
    const uint8_t* from = blocks[token / source.block_tokens];
    uint8_t* to = before.data() + token / target.block_tokens * target.block_bytes();
    for (uint32_t head = 0; head < target.kv_heads; ++head) {
      const uint32_t of_model = target.heads_before + head;
      if (of_model < source.heads_before || of_model >= source.heads_before + source.kv_heads) {
        continue;
      }
      for (uint32_t which = 0; which < 2; ++which) {
        std::vector<Spot> here, there;
        std::vector<float> row;
        for (uint32_t dim = 0; dim < source.head_dim; ++dim) {
          here.push_back(Find(source, which, of_model - source.heads_before,
                              token % source.block_tokens, dim));
          there.push_back(Find(target, which, head, token % target.block_tokens, dim));
          row.push_back(Read(source, from, here.back()));
        }
        for (uint32_t dim = 0; dim < source.head_dim; ++dim) {
          if (!as_they_are) {
            Write(target, to, there[dim], row[dim], row);
            continue;
          }
          std::memcpy(to + there[dim].element, from + here[dim].element,
                      ElementBytes(source.element_type));
          std::memcpy(to + there[dim].scale, from + here[dim].scale, source.scale_bytes());
        }
      }
    }
  }
  return before;
}

}  // namespace baton::kv::naive
