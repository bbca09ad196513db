// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Our exponential, logarithm and sums against the C library's, and their exact edges.
#include "engine/softmax.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "base/random.h"

namespace baton::engine {

TEST_CASE("the exponential is within two units in the last place, and exact at its edges") {
  CHECK(ExpOfNegative(0) == 1);
  CHECK(ExpOfNegative(-std::numeric_limits<float>::infinity()) == 0);
  CHECK(ExpOfNegative(-1e30f) == 0);
  double worst = 0;
  for (float x = -87; x <= 0; x += 0.000977f) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(ExpOfNegative(x) - exact) / exact);
  }
  CHECK(worst < 2.4e-7);
}

TEST_CASE("the logarithm agrees with the C library's to a few parts in 1e16") {
  CHECK(LogOfPositive(1) == 0);
  Random random(1);
  for (int i = 0; i < 10000; ++i) {
    const double x = std::ldexp(1 + random.Unit(), static_cast<int>(random.Below(200)) - 100);
    INFO(x);
    REQUIRE(std::fabs(LogOfPositive(x) - std::log(x)) <= 1e-15 * (1 + std::fabs(std::log(x))));
  }
}

TEST_CASE("weights and block sums are a softmax's, for any length") {
  Random random(2);
  for (const size_t size : {1, 3, 255, 256, 257, 1000}) {
    std::vector<float> row(size);
    for (float& x : row) x = static_cast<float>(20 * random.Unit() - 10);
    if (size > 3) row[2] = -std::numeric_limits<float>::infinity();
    std::vector<float> weights;
    std::vector<double> blocks;
    const SoftmaxSums sums = SoftmaxWeights(row, 0.5f, weights, blocks);
    double exact = 0;
    for (const float x : row) exact += std::exp((static_cast<double>(x) - sums.max) / 0.5);
    CHECK(sums.sum == Approx(exact).epsilon(1e-6));
    if (size > 3) CHECK(weights[2] == 0);
    CHECK(blocks.size() == (size + 255) / 256);
  }
}

TEST_CASE("the largest element is found at its first place, past NaN, at any length") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Random random(4);
  for (const size_t size : {1, 7, 8, 9, 256, 257, 1000}) {
    std::vector<float> row(size);
    for (float& x : row) x = static_cast<float>(random.Below(50));
    if (size > 8) row[size / 3] = nan;
    size_t expected = 0;
    for (size_t i = 0; i < size; ++i) {
      if (row[i] > row[expected]) expected = i;
    }
    INFO(size);
    CHECK(FirstMaxOf(row) == expected);
    CHECK(MaxOf(row) == row[expected]);
  }
  CHECK(FirstMaxOf(std::vector<float>{nan, nan}) == 0);
  CHECK(FirstMaxOf(std::vector<float>{nan, -5}) == 1);
}

TEST_CASE("a row without any present element has no weight") {
  std::vector<float> weights;
  std::vector<double> blocks;
  const std::vector<float> row(5, -std::numeric_limits<float>::infinity());
  CHECK(SoftmaxWeights(row, 1, weights, blocks).sum == 0);
}

}  // namespace baton::engine
