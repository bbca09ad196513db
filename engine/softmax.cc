// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/softmax.h"

#include <cmath>
#include <cstring>
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
  // Two vectors of the compiler's own kind: it does not vectorise a maximum by itself, since
  // the result for NaN would change.
  using Lanes = float __attribute__((vector_size(16)));
  constexpr size_t kLanes = 4;
  const Lanes none = Lanes{} - std::numeric_limits<float>::infinity();
  Lanes best[2] = {none, none};
  size_t i = 0;
  for (; i + 2 * kLanes <= row.size(); i += 2 * kLanes) {
    for (size_t half = 0; half < 2; ++half) {
      Lanes values;
      std::memcpy(&values, row.data() + i + half * kLanes, sizeof(values));
      best[half] = values > best[half] ? values : best[half];
    }
  }
  float max = -std::numeric_limits<float>::infinity();
  for (; i < row.size(); ++i) max = row[i] > max ? row[i] : max;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    max = std::max({max, best[0][lane], best[1][lane]});
  }
  return max;
}

size_t FirstMaxOf(absl::Span<const float> row) {
  float max = -std::numeric_limits<float>::infinity();
  size_t start = 0;
  for (size_t block = 0; block < row.size(); block += kSumBlock) {
    const float value = MaxOf(row.subspan(block, kSumBlock));
    if (!(value > max)) continue;
    max = value;
    start = block;
  }
  const auto found = std::find(row.begin() + start, row.end(), max);
  return found == row.end() ? 0 : static_cast<size_t>(found - row.begin());
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
