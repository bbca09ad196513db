// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Tickets, quarantine and their caps.
#include "decode_worker/reservations.h"

#include <catch2/catch.hpp>

#include "base/random.h"

namespace baton::decode {
namespace {

const WorkerRef kA{"a", Incarnation(1)}, kAReborn{"a", Incarnation(2)}, kB{"b", Incarnation(3)};

TEST_CASE("an open ticket is found until it is revoked", "[reservations]") {
  engine::BlockPool pool(20);
  Reservations reservations(pool, 10);
  const Generation first = reservations.Open(7, kA, *pool.Take(3));
  CHECK(first == Generation(1));
  REQUIRE(reservations.Find(first) != nullptr);
  CHECK(reservations.Find(first)->attempt == 7);
  CHECK(reservations.AttemptsOf(kA.incarnation) == std::vector<uint64_t>{7});
  reservations.Revoke(first);
  CHECK(reservations.Find(first) == nullptr);
  CHECK(reservations.AttemptsOf(kA.incarnation).empty());
  CHECK(pool.counts().quarantined == 3);
  CHECK(reservations.Quiet(first));
  CHECK(!reservations.Quiet(first));
  CHECK(pool.counts().free == 20);
}

TEST_CASE("a landed ticket's blocks are used and no longer count", "[reservations]") {
  engine::BlockPool pool(20);
  Reservations reservations(pool, 10);
  const Generation generation = reservations.Open(7, kA, *pool.Take(4));
  CHECK(reservations.blocks_of("a") == 4);
  CHECK(reservations.Land(generation).size() == 4);
  CHECK(reservations.blocks() == 0);
  CHECK(reservations.blocks_of("a") == 0);
  CHECK(!reservations.Quiet(generation));
  CHECK(pool.counts().used == 4);
}

TEST_CASE("quarantine and a writer's later incarnations count against its cap", "[reservations]") {
  // Without rule 14 a writer that is stopped and restarted again and again eats the pool.
  engine::BlockPool pool(40);
  Reservations reservations(pool, 6);
  const Generation old = reservations.Open(1, kA, *pool.Take(4));
  reservations.Revoke(old);
  CHECK(!reservations.WriterFits(kAReborn.worker, 3));
  CHECK(reservations.WriterFits(kAReborn.worker, 2));
  CHECK(reservations.WriterFits(kB.worker, 6));
  reservations.Quiet(old);
  CHECK(reservations.WriterFits(kAReborn.worker, 6));
}

TEST_CASE("all tickets and quarantine together take at most half the pool", "[reservations]") {
  engine::BlockPool pool(20);
  Reservations reservations(pool, 100);
  CHECK(reservations.EverFits(10));
  CHECK(!reservations.EverFits(11));
  reservations.Open(1, kA, *pool.Take(6));
  CHECK(reservations.PoolFits(4));
  CHECK(!reservations.PoolFits(5));
}

TEST_CASE("random lives of tickets: the caps hold and the pool agrees", "[reservations]") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    engine::BlockPool pool(64);
    Reservations reservations(pool, 16);
    std::vector<Generation> open, revoked;
    for (int i = 0; i < 300; ++i) {
      const WorkerRef& writer = random.Chance(0.5) ? kA : kB;
      const auto count = static_cast<uint32_t>(random.Between(1, 6));
      const size_t pick = open.empty() ? 0 : random.Below(open.size());
      switch (random.Below(4)) {
        case 0:
          if (!reservations.WriterFits(writer.worker, count) || !reservations.PoolFits(count))
            break;
          open.push_back(reservations.Open(1, writer, *pool.Take(count)));
          break;
        case 1:
          if (open.empty()) break;
          for (const BlockIndex block : reservations.Land(open[pick])) pool.Release(block);
          open.erase(open.begin() + static_cast<int64_t>(pick));
          break;
        case 2:
          if (open.empty()) break;
          reservations.Revoke(open[pick]);
          revoked.push_back(open[pick]);
          open.erase(open.begin() + static_cast<int64_t>(pick));
          break;
        case 3:
          if (revoked.empty()) break;
          REQUIRE(reservations.Quiet(revoked.back()));
          revoked.pop_back();
          break;
      }
      REQUIRE(reservations.open() == open.size());
      REQUIRE(reservations.quarantined() == revoked.size());
      REQUIRE(reservations.blocks() == pool.counts().reserved + pool.counts().quarantined);
      REQUIRE(reservations.blocks() == reservations.blocks_of("a") + reservations.blocks_of("b"));
      REQUIRE(reservations.blocks() <= 32);
      REQUIRE(reservations.blocks_of("a") <= 16);
      REQUIRE(reservations.blocks_of("b") <= 16);
    }
  }
}

}  // namespace
}  // namespace baton::decode
