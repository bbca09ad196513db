// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Exponentials, logarithms and sums that give the same bits on every machine: only IEEE
// operations in a fixed order, never the C library, whose results differ by CPU (K8).
//
// Thread: pure functions.
// Cost:   the exponential of a row vectorises: about 2 ns an element.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace baton::engine {

// e^x for x <= 0, within 2 units in the last place; 0 below -87, 1 at 0.
inline float ExpOfNegative(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693145752f;  // 16 bits, so that n * kLn2High is exact
  constexpr float kLn2Low = 1.42860677e-6f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = std::max(x, -87.0f);
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const float scaled = p * std::bit_cast<float>((exponent + 127) << 23);
  return x < -87.0f ? 0.0f : scaled;
}

// The natural logarithm of a finite x > 0, within 1e-15 of its size or absolutely.
double LogOfPositive(double x);

// The largest element; -inf for an empty row.  NaN elements count as absent.
float MaxOf(absl::Span<const float> row);

// The first place of the largest element; 0 if there is none.
size_t FirstMaxOf(absl::Span<const float> row);

// What a softmax needs of a row: its largest element and the sum of e^(x - largest).
// -inf elements count as absent; there are no NaN and no +inf.
struct SoftmaxSums {
  float max = 0;  // -inf: no element is present
  double sum = 0;
};

inline constexpr size_t kSumBlock = 256;

// weights[i] = e^((row[i] - max) / temperature), and block_sums[b] the sum of those of
// elements [256 b, 256 b + 256).  Both are resized.
SoftmaxSums SoftmaxWeights(absl::Span<const float> row, float temperature,
                           std::vector<float>& weights, std::vector<double>& block_sums);

// max + log(sum): subtract it from an element for its log-probability.
double LogSumExp(absl::Span<const float> row, std::vector<float>& scratch,
                 std::vector<double>& block_scratch);

}  // namespace baton::engine
