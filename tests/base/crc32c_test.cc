// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "base/crc32c.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/random.h"

namespace baton {
namespace {

absl::Span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST_CASE("CRC32C has the values of RFC 3720, appendix B.4") {
  std::vector<uint8_t> rising(32), falling(32);
  std::iota(rising.begin(), rising.end(), uint8_t{0});
  std::iota(falling.rbegin(), falling.rend(), uint8_t{0});
  for (const auto sum : {Crc32c, PortableCrc32c}) {
    CHECK(sum({}, 0) == 0);
    CHECK(sum(BytesOf("123456789"), 0) == 0xe3069283);
    CHECK(sum(std::vector<uint8_t>(32, 0x00), 0) == 0x8a9136aa);
    CHECK(sum(std::vector<uint8_t>(32, 0xff), 0) == 0x62a8ab43);
    CHECK(sum(rising, 0) == 0x46dd794e);
    CHECK(sum(falling, 0) == 0x113fdb5c);
  }
}

TEST_CASE("CRC32C by the instruction is CRC32C without it, at any length, place and cut") {
  Random random(7);
  std::vector<uint8_t> bytes(40000);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.Below(256));
  for (const size_t length :
       {0u, 1u, 7u, 8u, 63u, 383u, 384u, 385u, 12287u, 12288u, 12289u, 24576u, 30001u}) {
    for (const size_t at : {0u, 1u, 5u, 64u}) {
      const absl::Span<const uint8_t> part = absl::MakeConstSpan(bytes).subspan(at, length);
      const uint32_t sum = Crc32c(part);
      CHECK(sum == PortableCrc32c(part));
      const size_t cut = random.Below(length + 1);
      CHECK(sum == Crc32c(part.subspan(cut), Crc32c(part.subspan(0, cut))));
    }
  }
}

TEST_CASE("CRC32C sees every single bit") {
  std::vector<uint8_t> bytes(13000, 0x5a);
  const uint32_t sum = Crc32c(bytes);
  for (size_t bit = 0; bit < bytes.size() * 8; bit += 97) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    if (Crc32c(bytes) == sum) FAIL("bit " << bit);
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
  }
}

}  // namespace
}  // namespace baton
