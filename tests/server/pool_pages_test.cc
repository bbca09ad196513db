// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Which pages of a pool are touched, and which become huge: on real memory of this process.
#include "server/pool_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "base/random.h"

namespace baton::server {
namespace {

constexpr uint64_t kPage = 4096;

// A pool in memory of its own, untouched.
class Pool {
 public:
  Pool(const engine::KvLayout& layout, int advice) {
    pool.layout = layout;
    bytes = (layout.pool_bytes() + kPage - 1) / kPage * kPage;
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(mapped != MAP_FAILED);
    (void)madvise(mapped, bytes, advice);
    pool.base = static_cast<uint8_t*>(mapped);
  }
  ~Pool() { munmap(pool.base, bytes); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::vector<bool> Touched() const {
    std::vector<unsigned char> present(bytes / kPage);
    REQUIRE(mincore(pool.base, bytes, present.data()) == 0);
    std::vector<bool> touched;
    for (const unsigned char one : present) touched.push_back((one & 1) != 0);
    return touched;
  }
  // Pages with a byte of the first `blocks` blocks of a layer.
  std::vector<bool> Expected(uint32_t blocks) const {
    std::vector<bool> expected(bytes / kPage);
    for (uint32_t layer = 0; layer < pool.layout.layers && blocks > 0; ++layer) {
      const uint64_t begin = pool.layout.offset(layer, 0);
      const uint64_t end = begin + blocks * pool.layout.block_bytes();
      for (uint64_t page = begin / kPage; page * kPage < end; ++page) expected[page] = true;
    }
    return expected;
  }

  engine::KvPool pool;
  uint64_t bytes = 0;
};

// Blocks of a page and a half, layers of 6 MiB and a bit.
const engine::KvLayout kLayout = {3, 1, 96, 1030, engine::KvType::kBf16};

TEST_CASE("the pages of the first blocks of each layer are touched, and no others") {
  REQUIRE(kLayout.block_bytes() == 6144);
  Pool pool(kLayout, MADV_NOHUGEPAGE);  // a touch touches no neighbours
  PoolPages pages(pool.pool);
  CHECK_FALSE(pages.Touch(0));
  CHECK(pool.Touched() == pool.Expected(0));
  for (const uint32_t blocks : {1u, 3u, 500u, 400u, 1030u, 5000u}) {
    const uint32_t before = pages.touched_blocks();
    while (pages.Touch(blocks)) {
    }
    const uint32_t expected = std::min(std::max(before, blocks), kLayout.blocks);
    CHECK(pages.touched_blocks() == expected);
    CHECK(pool.Touched() == pool.Expected(expected));
  }
}

TEST_CASE("touching and collapsing change no byte") {
  Pool pool(kLayout, MADV_NORMAL);
  Random random(3);
  std::vector<uint8_t> copy(kLayout.pool_bytes());
  for (uint64_t at = 0; at < copy.size(); at += 1 + random.Below(3000)) {
    copy[at] = static_cast<uint8_t>(random.Below(256));
    if (copy[at] % 2 == 0) copy[at] = 0;  // and some pages stay untouched
    if (copy[at] != 0) pool.pool.base[at] = copy[at];
  }
  PoolPages pages(pool.pool);
  for (const uint32_t blocks : {200u, 700u, 1030u}) {
    while (pages.Touch(blocks)) {
    }
    size_t huge = 0;
    while (pages.Collapse()) ++huge;
    CHECK(huge <= kLayout.pool_bytes() / kHugePageBytes);
    CHECK(std::equal(copy.begin(), copy.end(), pool.pool.base));
  }
}

TEST_CASE("a huge page is full when all its bytes are of the first blocks of their layers") {
  for (const uint64_t address : {uint64_t{0}, uint64_t{0x7000}, kHugePageBytes - kPage}) {
    for (const uint32_t blocks : {340u, 1030u, 4000u}) {  // layers smaller and larger than pages
      const engine::KvLayout layout = {5, 1, 96, blocks, engine::KvType::kBf16};
      const uint64_t layer_bytes = layout.block_bytes() * blocks;
      const auto full = [&](uint64_t at, uint32_t count) {
        for (uint64_t byte = at; byte < at + kHugePageBytes; byte += 512) {
          if (byte % layer_bytes >= count * layout.block_bytes()) return false;
        }
        return true;
      };
      uint32_t from = 0;
      std::vector<uint64_t> all;
      for (const uint32_t to : {1u, blocks / 2, blocks - 1, blocks}) {
        const std::vector<uint64_t> found = FilledHugePages(address, layout, from, to);
        for (const uint64_t at : found) {
          CHECK((address + at) % kHugePageBytes == 0);
          CHECK(full(at, to));
          CHECK_FALSE(full(at, from));
        }
        all.insert(all.end(), found.begin(), found.end());
        from = to;
      }
      // All of them in the end, each once.
      const uint64_t first = (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes;
      CHECK(all.size() == (layout.pool_bytes() - first) / kHugePageBytes);
      std::sort(all.begin(), all.end());
      CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
    }
  }
}

}  // namespace
}  // namespace baton::server
