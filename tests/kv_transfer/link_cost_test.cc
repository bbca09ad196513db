// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The cost model on made-up links: what it predicts, and how it follows them.
#include "kv_transfer/link_cost.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace baton::kv {
namespace {

constexpr uint64_t kMiB = 1u << 20;

LinkCost SomeCost() {
  return {.latency = absl::Microseconds(50),
          .per_operation = absl::Nanoseconds(200),
          .bandwidth = 2e9,
          .sums_bandwidth = 8e9};
}

LinkWork WorkOf(uint64_t bytes, uint64_t operations, bool summed = false) {
  return {.bytes = bytes, .operations = operations, .summed_bytes = summed ? bytes : 0};
}

double Ratio(absl::Duration a, absl::Duration b) { return absl::FDivDuration(a, b); }

// A link with a cost of its own, whose spans vary by `noise` around it.
struct Link {
  LinkCost truth;
  double noise = 0;
  Random random{7};
  absl::Time now = absl::UnixEpoch();

  LinkSample Move(const LinkWork& work) {
    const double factor = 1 + noise * (2 * random.Unit() - 1);
    now += absl::Milliseconds(20);
    return {work, truth.Predict(work) * factor};
  }
};

// Spans of sizes as prompts of all lengths have them.
void Feed(LinkEstimate& estimate, Link& link, int spans, bool summed = false) {
  for (int i = 0; i < spans; ++i) {
    const uint64_t blocks = link.random.Between(8, 512);
    estimate.Add(link.Move(WorkOf(blocks * 12288, blocks, summed)), link.now);
  }
}

TEST_CASE("T is latency, operations and bytes, and sums where they are made") {
  const LinkCost cost = SomeCost();
  CHECK(cost.Predict(WorkOf(2000000, 100)) == absl::Microseconds(50 + 20 + 1000));
  CHECK(cost.Predict(WorkOf(2000000, 100, true)) == absl::Microseconds(50 + 20 + 1000 + 250));
  LinkWork twice = WorkOf(2000000, 100);
  twice.starts = 2;
  CHECK(cost.Predict(twice) == absl::Microseconds(100 + 20 + 1000));
  CHECK(LinkCost{}.Predict(WorkOf(kMiB, 10)) == absl::ZeroDuration());
}

TEST_CASE("a meter's span begins on an idle link and ends on one") {
  LinkMeter meter;
  const absl::Time start = absl::UnixEpoch();
  meter.Posted(start);
  meter.Posted(start + absl::Milliseconds(1));
  CHECK_FALSE(meter.Ended(WorkOf(10, 1), true, start + absl::Milliseconds(2)).has_value());
  const auto span = meter.Ended(WorkOf(20, 3, true), true, start + absl::Milliseconds(3));
  REQUIRE(span.has_value());
  CHECK(span->took == absl::Milliseconds(3));
  CHECK(span->work == LinkWork{.bytes = 30, .operations = 4, .summed_bytes = 20, .starts = 1});
  meter.Posted(start + absl::Seconds(9));
  const auto next = meter.Ended(WorkOf(5, 1), true, start + absl::Seconds(10));
  REQUIRE(next.has_value());
  CHECK(next->took == absl::Seconds(1));  // the pause before it is no part of it
  CHECK(next->work.bytes == 5);
}

TEST_CASE("a span in which a write failed tells nothing, the next one does") {
  LinkMeter meter;
  const absl::Time start = absl::UnixEpoch();
  meter.Posted(start);
  meter.Posted(start);
  CHECK_FALSE(meter.Ended(WorkOf(10, 1), false, start + absl::Seconds(1)).has_value());
  CHECK_FALSE(meter.Ended(WorkOf(10, 1), true, start + absl::Seconds(2)).has_value());
  meter.Posted(start + absl::Seconds(3));
  CHECK(meter.Ended(WorkOf(10, 1), true, start + absl::Seconds(4)).has_value());
}

TEST_CASE("a link that is never idle is cut into spans, of which only the first begins on idle") {
  LinkMeter meter;
  absl::Time now = absl::UnixEpoch();
  std::vector<LinkSample> spans;
  meter.Posted(now);
  for (int i = 0; i < 100; ++i) {
    meter.Posted(now);
    now += absl::Milliseconds(10);
    const auto span = meter.Ended(WorkOf(1000, 2), true, now);
    if (span) spans.push_back(*span);
  }
  REQUIRE(spans.size() == 10);
  for (size_t i = 0; i < spans.size(); ++i) {
    CHECK(spans[i].work.starts == (i == 0 ? 1u : 0u));
    CHECK(spans[i].took == LinkMeter::kSpanMax);
    CHECK(spans[i].work.bytes == 10000);
  }
}

TEST_CASE("an estimate whose probe was wrong comes to predict every size") {
  for (const double wrong : {0.3, 0.7, 1.4, 3.0}) {
    Link link{SomeCost(), 0.1};
    LinkCost probed = link.truth;
    probed.bandwidth *= wrong;
    LinkEstimate estimate(probed, link.now);
    Feed(estimate, link, 60);
    for (const uint64_t blocks : {16, 64, 256, 1024}) {
      const LinkWork work = WorkOf(blocks * 12288, blocks);
      INFO("probed " << wrong << " times the bandwidth, " << blocks << " blocks");
      CHECK(Ratio(estimate.cost().Predict(work), link.truth.Predict(work)) ==
            Approx(1).margin(0.12));
    }
  }
}

TEST_CASE("a link ten times slower than before is known after a few spans") {
  Link link{SomeCost(), 0.1};
  LinkEstimate estimate(link.truth, link.now);
  Feed(estimate, link, 20);
  link.truth.bandwidth /= 10;
  Feed(estimate, link, 10);
  CHECK(estimate.cost().bandwidth == Approx(link.truth.bandwidth).epsilon(0.15));
  link.truth.bandwidth *= 10;
  Feed(estimate, link, 10);
  CHECK(estimate.cost().bandwidth == Approx(link.truth.bandwidth).epsilon(0.15));
}

TEST_CASE("single spans that are far off move an estimate little") {
  Link link{SomeCost(), 0.05};
  LinkEstimate estimate(link.truth, link.now);
  for (int i = 0; i < 40; ++i) {
    LinkSample stalled = link.Move(WorkOf(kMiB, 85));
    stalled.took *= i % 2 == 0 ? 50 : 30;
    estimate.Add(stalled, link.now);
    Feed(estimate, link, 6);
    CHECK(Ratio(estimate.cost().Predict(WorkOf(kMiB, 85)), link.truth.Predict(WorkOf(kMiB, 85))) <
          1.15);
  }
}

TEST_CASE("a per-operation cost that a busy machine made up is not believed for long") {
  for (const double wrong : {10.0, 1000.0, 3000.0}) {
    Link link{SomeCost(), 0.1};
    LinkCost probed = link.truth;
    probed.per_operation *= wrong;
    probed.bandwidth /= 4;
    LinkEstimate estimate(probed, link.now);
    Feed(estimate, link, 20);
    for (const uint64_t blocks : {32, 256, 1024}) {
      const LinkWork work = WorkOf(blocks * 12288, blocks);
      INFO("probed " << wrong << " times the cost, " << blocks << " blocks");
      CHECK(Ratio(estimate.cost().Predict(work), link.truth.Predict(work)) ==
            Approx(1).margin(0.2));
    }
  }
}

TEST_CASE("small writes tell of latency and leave the bandwidth alone") {
  Link link{SomeCost(), 0.1};
  LinkCost probed = link.truth;
  probed.latency *= 1.8;
  LinkEstimate estimate(probed, link.now);
  for (int i = 0; i < 40; ++i) estimate.Add(link.Move(WorkOf(4096, 1)), link.now);
  CHECK(estimate.cost().bandwidth == probed.bandwidth);
  CHECK(Ratio(estimate.cost().latency, link.truth.latency) == Approx(1).margin(0.1));
}

TEST_CASE("small writes that take very long say that the link is slow, not that it starts late") {
  Link link{SomeCost(), 0.1};
  LinkEstimate estimate(link.truth, link.now);
  link.truth.bandwidth /= 100;
  for (int i = 0; i < 10; ++i) estimate.Add(link.Move(WorkOf(65536, 16)), link.now);
  const LinkWork large = WorkOf(8 * kMiB, 700);
  CHECK(Ratio(estimate.cost().Predict(large), link.truth.Predict(large)) == Approx(1).margin(0.15));
}

TEST_CASE("sums are a cost of their own") {
  Link link{SomeCost(), 0.05};
  LinkCost probed = link.truth;
  probed.sums_bandwidth *= 2.5;
  LinkEstimate estimate(probed, link.now);
  for (int i = 0; i < 200; ++i) {
    Feed(estimate, link, 3);
    Feed(estimate, link, 1, /*summed=*/true);
  }
  for (const bool summed : {false, true}) {
    const LinkWork work = WorkOf(64 * 12288, 64, summed);
    CHECK(Ratio(estimate.cost().Predict(work), link.truth.Predict(work)) == Approx(1).margin(0.08));
  }
}

TEST_CASE("where every write has sums, what is predicted with sums is right") {
  Link link{SomeCost(), 0.05};
  LinkCost probed = link.truth;
  probed.bandwidth *= 1.7;
  probed.sums_bandwidth = 0;
  LinkEstimate estimate(probed, link.now);
  Feed(estimate, link, 60, /*summed=*/true);
  const LinkWork work = WorkOf(64 * 12288, 64, true);
  CHECK(Ratio(estimate.cost().Predict(work), link.truth.Predict(work)) == Approx(1).margin(0.1));
}

TEST_CASE("a span of writes with and without sums tells nothing") {
  Link link{SomeCost()};
  LinkEstimate estimate(link.truth, link.now);
  LinkWork mixed = WorkOf(kMiB, 10);
  mixed.summed_bytes = kMiB / 2;
  estimate.Add({mixed, absl::Seconds(1)}, link.now + absl::Seconds(5));
  CHECK(estimate.cost() == link.truth);
  CHECK(estimate.updated() == link.now);
}

TEST_CASE("an old estimate believes a sample more than a fresh one") {
  const auto moved = [](absl::Duration age) {
    Link link{SomeCost()};
    LinkEstimate estimate(SomeCost(), link.now);
    Feed(estimate, link, 20);
    link.truth.bandwidth /= 1.8;
    link.now += age;
    estimate.Add(link.Move(WorkOf(8 * kMiB, 1)), link.now);
    CHECK(estimate.updated() == link.now);
    return SomeCost().bandwidth - estimate.cost().bandwidth;
  };
  CHECK(moved(absl::Seconds(1)) > 0);
  CHECK(moved(absl::Seconds(120)) > 2 * moved(absl::Seconds(1)));
}

TEST_CASE("whatever the spans, a cost stays a cost") {
  Random random(11);
  LinkEstimate estimate(LinkCost{}, absl::UnixEpoch());
  for (int i = 0; i < 5000; ++i) {
    LinkWork work{.bytes = random.Below(1u << random.Below(30)),
                  .operations = random.Below(1000),
                  .starts = static_cast<uint32_t>(random.Below(2))};
    if (random.Chance(0.3)) work.summed_bytes = work.bytes;
    estimate.Add({work, absl::Nanoseconds(random.Below(uint64_t{1} << random.Below(40)))},
                 absl::UnixEpoch() + absl::Milliseconds(i));
    const LinkCost& cost = estimate.cost();
    REQUIRE((std::isfinite(cost.bandwidth) && cost.bandwidth >= 0));
    REQUIRE((std::isfinite(cost.sums_bandwidth) && cost.sums_bandwidth >= 0));
    REQUIRE(cost.latency >= absl::ZeroDuration());
    REQUIRE(cost.latency < absl::Hours(1));
  }
  CHECK(estimate.cost().bandwidth > 0);
}

TEST_CASE("a cost survives the wire, and what no link can have is refused") {
  const auto decoded = [](const LinkCost& cost, bool& ok) {
    ByteWriter out;
    Put(out, cost);
    const std::vector<uint8_t> bytes = std::move(out).Take();
    ByteReader in(bytes);
    const LinkCost back = GetLinkCost(in);
    ok = in.done();
    return back;
  };
  bool ok = false;
  CHECK(decoded(SomeCost(), ok) == SomeCost());
  CHECK(ok);
  LinkCost cost = SomeCost();
  cost.latency = absl::InfiniteDuration();
  CHECK(decoded(cost, ok).latency == absl::Hours(1));  // said as the longest there is
  CHECK(ok);
  for (const double wrong :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    cost = SomeCost();
    cost.bandwidth = wrong;
    decoded(cost, ok);
    CHECK_FALSE(ok);
    cost = SomeCost();
    cost.sums_bandwidth = wrong;
    decoded(cost, ok);
    CHECK_FALSE(ok);
  }
  ByteWriter out;
  out.Put<double>(1e9);
  out.Put<uint64_t>(~uint64_t{0});
  out.Put<uint64_t>(0);
  out.Put<double>(0);
  const std::vector<uint8_t> bytes = std::move(out).Take();
  ByteReader in(bytes);
  (void)GetLinkCost(in);
  CHECK_FALSE(in.ok());
}

}  // namespace
}  // namespace baton::kv
