// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/crc32c.h"

#include <array>
#include <cstring>

#ifdef __x86_64__
#include <nmmintrin.h>
#endif

namespace baton {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected
using Table = std::array<uint32_t, 256>;

// [0][b]: the state after byte b; [k][b]: after b and k bytes of zero behind it.
constexpr std::array<Table, 8> MakeTables() {
  std::array<Table, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? kPolynomial : 0);
    tables[0][byte] = state;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const uint32_t state = tables[k - 1][byte];
      tables[k][byte] = state >> 8 ^ tables[0][state & 0xff];
    }
  }
  return tables;
}
constexpr std::array<Table, 8> kTables = MakeTables();

uint64_t LoadWord(const uint8_t* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

uint32_t PortableState(const uint8_t* at, size_t bytes, uint32_t state) {
  for (; bytes >= 8; bytes -= 8, at += 8) {
    const uint64_t word = LoadWord(at) ^ state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][word >> (8 * i) & 0xff];
  }
  for (; bytes > 0; --bytes, ++at) state = state >> 8 ^ kTables[0][(state ^ *at) & 0xff];
  return state;
}

#ifdef __x86_64__

// What `bytes` bytes of zero make of a state: linear, so a table per byte of the state does.
class Zeros {
 public:
  explicit Zeros(size_t bytes) {
    std::array<uint32_t, 32> of_bit;
    for (size_t bit = 0; bit < 32; ++bit) {
      uint32_t state = uint32_t{1} << bit;
      for (size_t i = 0; i < bytes; ++i) state = state >> 8 ^ kTables[0][state & 0xff];
      of_bit[bit] = state;
    }
    for (size_t k = 0; k < 4; ++k) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t state = 0;
        for (size_t bit = 0; bit < 8; ++bit) {
          if (byte >> bit & 1) state ^= of_bit[8 * k + bit];
        }
        tables_[k][byte] = state;
      }
    }
  }
  uint32_t operator()(uint32_t state) const {
    return tables_[0][state & 0xff] ^ tables_[1][state >> 8 & 0xff] ^
           tables_[2][state >> 16 & 0xff] ^ tables_[3][state >> 24];
  }

 private:
  std::array<Table, 4> tables_;
};

// The instruction takes three cycles but a new one may start in each: three lanes of `lane` bytes
// go side by side, and are joined.
__attribute__((target("sse4.2"))) uint32_t Lanes(const uint8_t*& at, size_t& bytes, size_t lane,
                                                 const Zeros& behind, uint32_t state) {
  while (bytes >= 3 * lane) {
    uint64_t a = state, b = 0, c = 0;
    for (size_t i = 0; i < lane; i += 8) {
      a = _mm_crc32_u64(a, LoadWord(at + i));
      b = _mm_crc32_u64(b, LoadWord(at + lane + i));
      c = _mm_crc32_u64(c, LoadWord(at + 2 * lane + i));
    }
    const uint32_t ab = behind(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    state = behind(ab) ^ static_cast<uint32_t>(c);
    at += 3 * lane;
    bytes -= 3 * lane;
  }
  return state;
}

__attribute__((target("sse4.2"))) uint32_t InstructionState(const uint8_t* at, size_t bytes,
                                                            uint32_t state) {
  constexpr size_t kLong = 4096, kShort = 64;
  static const Zeros long_zeros(kLong), short_zeros(kShort);
  state = Lanes(at, bytes, kLong, long_zeros, state);
  state = Lanes(at, bytes, kShort, short_zeros, state);
  uint64_t wide = state;
  for (; bytes >= 8; bytes -= 8, at += 8) wide = _mm_crc32_u64(wide, LoadWord(at));
  state = static_cast<uint32_t>(wide);
  for (; bytes > 0; --bytes, ++at) state = _mm_crc32_u8(state, *at);
  return state;
}

#endif

}  // namespace

uint32_t PortableCrc32c(absl::Span<const uint8_t> bytes, uint32_t before) {
  return ~PortableState(bytes.data(), bytes.size(), ~before);
}

uint32_t Crc32c(absl::Span<const uint8_t> bytes, uint32_t before) {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return ~InstructionState(bytes.data(), bytes.size(), ~before);
#endif
  return PortableCrc32c(bytes, before);
}

}  // namespace baton
