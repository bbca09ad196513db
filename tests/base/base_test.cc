// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The small tools that everything stands on.
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/ensure.h"
#include "base/ids.h"
#include "base/lease.h"
#include "base/mailbox.h"
#include "base/nearest.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/this_thread.h"

namespace baton {
namespace {

std::string NameOfThisThread() {
  char name[16] = "";
  prctl(PR_GET_NAME, name, 0, 0, 0);
  return name;
}

TEST_CASE("a thread gives way, its children like it, nobody else, and never less than before",
          "[base]") {
  const int before = getpriority(PRIO_PROCESS, 0);
  const int lower = std::min(19, before + 3);
  int own = 0, child = 0, later = 0;
  std::string name;
  std::thread([&] {
    NameThisThread("a name that is too long");
    TakeShortTurns();
    TakeUsualTurns(lower);
    own = getpriority(PRIO_PROCESS, 0);
    std::thread([&] {
      child = getpriority(PRIO_PROCESS, 0);
      name = NameOfThisThread();
    }).join();
    TakeUsualTurns(0);
    later = getpriority(PRIO_PROCESS, 0);
  }).join();
  CHECK(own == lower);
  CHECK(child == lower);
  CHECK(later == lower);
  CHECK(name == "a name that is ");
  CHECK(getpriority(PRIO_PROCESS, 0) == before);
}

TEST_CASE("a reader never reads past its end, and says so once and for all", "[base]") {
  ByteWriter writer;
  writer.Put<uint32_t>(7);
  writer.PutString("abc");
  const std::vector<uint8_t> bytes = std::move(writer).Take();
  ByteReader reader(bytes);
  CHECK(reader.Get<uint32_t>() == 7);
  CHECK(reader.GetString(3) == "abc");
  CHECK(reader.done());
  CHECK(reader.Get<uint8_t>() == 0);
  CHECK(!reader.ok());
  CHECK(reader.remaining() == 0);
}

TEST_CASE("a string longer than allowed, or than the input, is refused", "[base]") {
  ByteWriter writer;
  writer.PutString("abcd");
  const std::vector<uint8_t> bytes = std::move(writer).Take();
  ByteReader limited(bytes);
  CHECK(limited.GetString(3).empty());
  CHECK(!limited.ok());
  ByteReader cut(absl::MakeSpan(bytes).subspan(0, 6));
  CHECK(cut.GetString(100).empty());
  CHECK(!cut.ok());
}

TEST_CASE("a full mailbox refuses and keeps what it has", "[base]") {
  Bell bell;
  Mailbox<int> box(2, &bell);
  CHECK(box.Push(1));
  CHECK(box.Push(2));
  CHECK(!box.Push(3));
  CHECK(bell.Wait(absl::ZeroDuration()));
  CHECK(box.TakeAll() == std::vector<int>{1, 2});
  CHECK(box.TakeAll().empty());
}

TEST_CASE("a ring before the wait is not lost, and one ring wakes once", "[base]") {
  Bell bell;
  bell.Ring();
  bell.Ring();
  CHECK(bell.Wait(absl::InfiniteDuration()));
  CHECK(!bell.Wait(absl::Milliseconds(1)));
  std::thread other([&] { bell.Ring(); });
  CHECK(bell.Wait(absl::InfiniteDuration()));
  other.join();
}

TEST_CASE("many threads post to one owner and nothing is lost", "[base]") {
  Bell bell;
  Mailbox<int> box(100000, &bell);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) ENSURE(box.Push(i));
    });
  }
  size_t seen = 0;
  while (seen < 4000) {
    bell.Wait(absl::Seconds(1));
    seen += box.TakeAll().size();
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(seen == 4000);
}

TEST_CASE("a front end is gone once, after its silence", "[base]") {
  LeaseTable leases(absl::Seconds(2));
  const absl::Time start = absl::UnixEpoch();
  leases.Alive(Incarnation(1), start);
  leases.Alive(Incarnation(2), start + absl::Seconds(1));
  CHECK(leases.NextExpiry() == start + absl::Seconds(2));
  CHECK(leases.Expire(start + absl::Milliseconds(1999)).empty());
  CHECK(leases.Expire(start + absl::Seconds(2)) == std::vector{Incarnation(1)});
  CHECK(leases.Expire(start + absl::Seconds(2)).empty());
  leases.Alive(Incarnation(2), start + absl::Seconds(2));
  CHECK(leases.Expire(start + absl::Seconds(3)).empty());
}

TEST_CASE("the same seed gives the same chance, and counters are independent", "[base]") {
  Random a(5), b(5);
  for (int i = 0; i < 100; ++i) CHECK(a.Next() == b.Next());
  CHECK(CounterRandom(1, 2, 3) == CounterRandom(1, 2, 3));
  CHECK(CounterRandom(1, 2, 3) != CounterRandom(1, 3, 2));
  CHECK(CounterRandom(1, 2, 3) != CounterRandom(2, 1, 3));
  double sum = 0;
  for (int i = 0; i < 10000; ++i) sum += UnitInterval(CounterRandom(9, 0, i));
  CHECK(sum / 10000 == Approx(0.5).margin(0.02));
  for (int i = 0; i < 1000; ++i) {
    const uint64_t drawn = a.Between(3, 5);
    CHECK((drawn >= 3 && drawn <= 5));
  }
}

TEST_CASE("the nearest word is close enough to be meant", "[base]") {
  CHECK(EditDistance("kitten", "sitting") == 3);
  CHECK(Nearest("drian", {"drain", "devices"}) == "drain");
  CHECK(Nearest("zzz", {"drain", "devices"}).empty());
}

TEST_CASE("annotating keeps the code and adds the place", "[base]") {
  const absl::Status status = Annotate(absl::UnavailableError("gone"), "link 3");
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(status.message() == "link 3: gone");
  CHECK(Annotate(absl::OkStatus(), "x").ok());
}

TEST_CASE("the real clock moves forward", "[base]") {
  const RealClock clock;
  const absl::Time first = clock.Now();
  CHECK(clock.Now() >= first);
}

TEST_CASE("blocks round up", "[base]") {
  CHECK(BlocksFor(0) == 0);
  CHECK(BlocksFor(1) == 1);
  CHECK(BlocksFor(16) == 1);
  CHECK(BlocksFor(17) == 2);
}

}  // namespace
}  // namespace baton
