// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/softmax.h"

#include <cmath>
#include <limits>

namespace baton::engine {
namespace {

// In four interleaved lanes, so that it vectorises to one order.
double SumOf(const float* values, size_t count) {
  double lanes[4] = {};
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) lanes[lane] += values[i + lane];
  }
  for (; i < count; ++i) lanes[0] += values[i];
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace

float MaxOf(absl::Span<const float> row) {
  constexpr size_t kLanes = 8;
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = row[i + lane] > lanes[lane] ? row[i + lane] : lanes[lane];
    }
  }
  for (; i < row.size(); ++i) lanes[0] = std::max(lanes[0], row[i]);
  return *std::max_element(lanes, lanes + kLanes);
}

double LogOfPositive(double x) {
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kHalfRoot = 0.70710678118654752;
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kHalfRoot) {
    m *= 2;
    --exponent;
  }
  // log m = 2 atanh(s), |s| <= 0.172: the series' 12th term is below 1e-19.
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return exponent * kLn2High + (2 * s * series + exponent * kLn2Low);
}

SoftmaxSums SoftmaxWeights(absl::Span<const float> row, float temperature,
                           std::vector<float>& weights, std::vector<double>& block_sums) {
  weights.resize(row.size());
  block_sums.assign((row.size() + kSumBlock - 1) / kSumBlock, 0.0);
  SoftmaxSums sums;
  sums.max = MaxOf(row);
  if (sums.max == -std::numeric_limits<float>::infinity()) {
    std::fill(weights.begin(), weights.end(), 0.0f);
    return sums;
  }
  const float max = sums.max;
  const float* in = row.data();
  float* out = weights.data();
  for (size_t i = 0; i < row.size(); ++i) out[i] = ExpOfNegative((in[i] - max) / temperature);
  for (size_t b = 0; b < block_sums.size(); ++b) {
    const size_t start = b * kSumBlock;
    block_sums[b] = SumOf(out + start, std::min(kSumBlock, row.size() - start));
    sums.sum += block_sums[b];
  }
  return sums;
}

double LogSumExp(absl::Span<const float> row, std::vector<float>& scratch,
                 std::vector<double>& block_scratch) {
  const SoftmaxSums sums = SoftmaxWeights(row, 1.0f, scratch, block_scratch);
  return sums.sum > 0 ? sums.max + LogOfPositive(sums.sum) : sums.max;
}

}  // namespace baton::engine
