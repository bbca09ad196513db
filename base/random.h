// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Randomness from a seed that the caller hands in; nothing here reads chance by itself.
//
// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
// CounterRandom is stateless: the value depends on (seed, stream, counter) only, so that
// a sequence may move between processes, batches and attempts and draw the same numbers.
#pragma once

#include <cmath>
#include <cstdint>

namespace baton {

constexpr uint64_t SplitMix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t CounterRandom(uint64_t seed, uint64_t stream, uint64_t counter) {
  return SplitMix64(SplitMix64(SplitMix64(seed) ^ stream) ^ counter);
}

// [0, 1) with 53 bits.
constexpr double UnitInterval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

class Random {
 public:
  explicit Random(uint64_t seed) : state_(SplitMix64(seed)) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    return SplitMix64(state_);
  }
  // [0, bound); bound > 0.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }
  // [low, high], both included.
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  double Unit() { return UnitInterval(Next()); }
  bool Chance(double probability) { return Unit() < probability; }
  double Exponential(double mean) { return -mean * std::log1p(-Unit()); }

 private:
  uint64_t state_;
};

}  // namespace baton
