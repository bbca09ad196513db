// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What went wrong in others' systems, each as a scenario named after its row in the list of
// reports (docs/testing.md says which rows need a real process).  Every checker is on.
#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/cluster.h"
#include "tests/sim/scenario.h"

namespace baton::sim {
namespace {

using router::Outcome;
using router::Path;

// Nothing is owned within a second.
void CheckIdleSoon(Cluster& cluster) {
  cluster.Until([&] { return cluster.Owned().empty(); }, absl::Seconds(1));
  CHECK(cluster.Owned() == "");
}

Reply& AskAndWait(Cluster& cluster, const Ask& ask) {
  Reply& reply = cluster.Submit(ask);
  cluster.Until([&] { return reply.done(); });
  return reply;
}

TEST_CASE("C40 more than the queue holds is refused at once, the queue never grows", "[field]") {
  ClusterOptions options;
  options.router.queue_requests = 4;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  for (int i = 0; i < 10; ++i) cluster.Submit(kLong);
  cluster.Run(absl::Milliseconds(1));
  size_t refused = 0;
  for (const Reply& reply : cluster.replies()) {
    if (!reply.over) continue;
    ++refused;
    CHECK(reply.over->status.code() == absl::StatusCode::kResourceExhausted);
    CHECK(reply.over->retry_after > absl::ZeroDuration());
  }
  CHECK(refused == 6);
  CheckEnd(cluster);
  CHECK(Right(cluster, AskAndWait(cluster, kLong)));
}

TEST_CASE("C41 what fits the context and not the pool is refused, and stops nobody", "[field]") {
  ClusterOptions options;
  options.decode_blocks = 8;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Reply& big = cluster.Submit({.prompt_tokens = 200});
  Reply& small = cluster.Submit(kShort);
  cluster.Run(absl::Milliseconds(1));
  REQUIRE(big.done());
  CHECK(big.over->status.code() == absl::StatusCode::kInvalidArgument);
  cluster.Until([&] { return small.done(); });
  CHECK(Right(cluster, small));
  // An answer longer than the pool is cut, not waited for.
  CHECK(Right(cluster, AskAndWait(cluster, {.prompt_tokens = 100, .new_tokens = 100})));
  CheckEnd(cluster);
}

TEST_CASE("C42 preempted answers are the undisturbed ones", "[field]") {
  ClusterOptions options;
  options.decode_blocks = 24;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  for (const float temperature : {0.0f, 1.0f}) {
    std::vector<Reply*> replies;
    for (int i = 0; i < 4; ++i) {
      replies.push_back(
          &cluster.Submit({.prompt_tokens = 100, .new_tokens = 100, .temperature = temperature}));
    }
    CheckEnd(cluster);
    for (const Reply* reply : replies) CHECK(Right(cluster, *reply));
  }
  CHECK(cluster.decode(0).decode_metrics().preemptions > 0);
}

TEST_CASE("C43 a decode that stands still for a while blocks nobody for ever", "[field]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  cluster.decode(0).SetStopped(true);
  std::vector<Reply*> replies;
  for (int i = 0; i < 20; ++i) replies.push_back(&cluster.Submit(kLong));
  cluster.Run(absl::Milliseconds(1500));
  CHECK(cluster.prefill(0).blocks().used == 0);  // nothing is computed without a place to go
  cluster.decode(0).SetStopped(false);
  CheckEnd(cluster);
  for (const Reply* reply : replies) CHECK(Right(cluster, *reply));
}

TEST_CASE("C44 the threshold counts uncached tokens", "[field]") {
  ClusterOptions options;
  options.router.colocate_below_tokens = 64;
  options.decode_blocks = 64;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  CHECK(AskAndWait(cluster, {.prompt_tokens = 63}).over->path == Path::kColocated);
  CHECK(AskAndWait(cluster, {.prompt_tokens = 64}).over->path == Path::kDisaggregated);
  const Ask long_one{.prompt_tokens = 200, .content = 5};
  CHECK(AskAndWait(cluster, long_one).over->path == Path::kDisaggregated);
  CHECK(AskAndWait(cluster, long_one).over->path == Path::kColocated);  // 8 are new
  CheckEnd(cluster);
}

TEST_CASE("C45 a short prompt takes no longer where prefill is apart", "[field]") {
  absl::Duration apart, alone;
  for (const bool disaggregated : {true, false}) {
    ClusterOptions options;
    options.prefill = disaggregated ? 1 : 0;
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    absl::Duration& sum = disaggregated ? apart : alone;
    for (int i = 0; i < 20; ++i) {
      const Reply& reply = AskAndWait(cluster, kShort);
      sum += reply.first_token_at - reply.received;
    }
    CheckEnd(cluster);
  }
  CHECK(apart <= 1.05 * alone);
}

TEST_CASE("C47 a client that leaves before its first token stops the prompt", "[field]") {
  ClusterOptions options;
  options.engine.step = absl::Milliseconds(50);
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 250});
  cluster.Run(absl::Milliseconds(200));
  const uint64_t computed = cluster.prefill(0).prefill_metrics().prompt_tokens_computed;
  CHECK(computed > 0);
  cluster.Cancel(reply);
  CheckIdleSoon(cluster);
  CHECK(cluster.prefill(0).prefill_metrics().prompt_tokens_computed <=
        computed + options.prefill_options.chunk_tokens);
  CheckEnd(cluster);
}

TEST_CASE("C48 a cancel between prefill and decode leaves nothing behind", "[field]") {
  for (const bool dies : {false, true}) {
    Cluster cluster({});
    REQUIRE(cluster.Ready());
    Reply& reply = cluster.Submit(kLong);
    REQUIRE(cluster.Until([&] { return cluster.fabric().writes_out() > 0; }));
    cluster.decode(0).SetWedged(true);  // it cannot admit the sequence
    cluster.Until([&] { return cluster.prefill(0).prefill_metrics().committed > 0; });
    if (dies) {
      cluster.frontend(0).Crash();
    } else {
      cluster.Cancel(reply);
    }
    cluster.Until([&] { return cluster.prefill(0).Status().attempts == 0; }, absl::Seconds(1));
    const engine::BlockCounts blocks = cluster.prefill(0).blocks();
    CHECK(blocks.free + blocks.cached == blocks.total());
    cluster.decode(0).SetWedged(false);
    CheckIdleSoon(cluster);
    if (dies) cluster.frontend(0).Restart();
    CheckEnd(cluster);
  }
}

TEST_CASE("C50 cancelled in every phase and twice, every gauge falls to zero", "[field]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  for (const Ask& ask : {kShort, kLong}) {
    for (int us = 0; us < 60000; us += 3000) {
      Reply& reply = cluster.Submit(ask);
      cluster.Run(absl::Microseconds(us));
      cluster.Cancel(reply);
      cluster.Cancel(reply);
      cluster.Run(absl::Milliseconds(5));
      CHECK(reply.done());
    }
  }
  CheckIdleSoon(cluster);
  const router::Snapshot snapshot = cluster.frontend(0).snapshot();
  CHECK(snapshot.running == 0);
  CHECK(std::count(snapshot.waiting.begin(), snapshot.waiting.end(), 0u) == 4);
  CheckEnd(cluster);
}

TEST_CASE("C53 what decode refuses, prefill never computes", "[field]") {
  ClusterOptions options;
  options.decode_options.queue_requests = 0;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Ask ask = kLong;
  ask.deadline = absl::Milliseconds(500);
  const Reply& reply = AskAndWait(cluster, ask);
  CHECK(!reply.ok());
  CHECK(cluster.prefill(0).prefill_metrics().requests == 0);
  CheckIdleSoon(cluster);
}

TEST_CASE("C55 a lease that ends under a transfer never becomes another's text", "[field]") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.decode_blocks = 32;
    options.links.late_chance = 1;
    options.links.late_max = absl::Seconds(2);
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    Ask ask = kLong;
    ask.deadline = absl::Milliseconds(100);
    cluster.Submit(ask);  // ends while its writes are out
    cluster.Run(absl::Milliseconds(1200));
    std::vector<Reply*> others;
    for (int i = 0; i < 4; ++i) others.push_back(&cluster.Submit(kLong));
    CheckEnd(cluster);
    for (const Reply* reply : others) CHECK(Right(cluster, *reply));
  }
}

TEST_CASE("C56 an abort on one side ends the other within a second", "[field]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit(kLong);
  REQUIRE(cluster.Until([&] { return cluster.fabric().writes_out() > 0; }));
  cluster.net().Break(cluster.frontend(0).calls(), cluster.prefill(0).index());
  CHECK(cluster.Until([&] { return cluster.decode(0).decode_metrics().landing == 0; },
                      absl::Seconds(1)));
  cluster.Until([&] { return reply.done(); });
  CHECK(Right(cluster, reply));
  CheckEnd(cluster);
}

TEST_CASE("C57 a decode that dies mid-stream is noticed, and the answer goes on or ends",
          "[field]") {
  for (const bool resume : {true, false}) {
    for (const bool stopped : {true, false}) {
      ClusterOptions options;
      options.decode = 2;
      options.router.resume = resume;
      Cluster cluster(options);
      REQUIRE(cluster.Ready());
      Reply& reply = cluster.Submit({.prompt_tokens = 150, .new_tokens = 50});
      cluster.Until([&] { return reply.tokens.size() >= 5; });
      WorkerProcess& busy = cluster.decode(cluster.decode(0).Status().attempts > 0 ? 0 : 1);
      if (stopped) {
        busy.SetStopped(true);
      } else {
        busy.Crash();
      }
      CHECK(cluster.Until([&] { return reply.done(); }, absl::Seconds(4)));
      if (resume) {
        CHECK(Right(cluster, reply));
      } else {
        CHECK(reply.over->status.code() == absl::StatusCode::kUnavailable);
      }
      if (stopped) busy.SetStopped(false);
      CheckEnd(cluster);
    }
  }
}

TEST_CASE("C58 a resumed answer draws what it would have drawn", "[field]") {
  ClusterOptions options;
  options.decode = 2;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  for (uint32_t at = 1; at < 40; at += 6) {
    Reply& reply = cluster.Submit({.prompt_tokens = 60, .new_tokens = 40});
    cluster.Until([&] { return reply.tokens.size() >= at || reply.done(); });
    const uint32_t busy = cluster.decode(0).Status().attempts > 0 ? 0 : 1;
    cluster.decode(busy).Crash();
    cluster.Until([&] { return reply.done(); });
    CHECK(Right(cluster, reply));
    cluster.decode(busy).Restart();
    REQUIRE(cluster.Ready());
  }
  CheckEnd(cluster);
}

TEST_CASE("C59 a prefill that restarts under its name is used again", "[field]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  const Incarnation decode = cluster.decode(0).Status().self.incarnation;
  for (int i = 0; i < 5; ++i) {
    CHECK(AskAndWait(cluster, kLong).over->path == Path::kDisaggregated);
    cluster.prefill(0).Crash();
    cluster.prefill(0).Restart();
    cluster.Run(absl::Milliseconds(500));  // until the front end does not ask its old life any more
    REQUIRE(cluster.Ready());
  }
  CHECK(cluster.decode(0).Status().self.incarnation == decode);
  CheckEnd(cluster);
}

TEST_CASE("C60 a worker whose loop stands still is given up", "[field]") {
  ClusterOptions options;
  options.decode = 2;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 60, .new_tokens = 60});
  cluster.Until([&] { return reply.tokens.size() >= 5; });
  WorkerProcess& busy = cluster.decode(cluster.decode(0).Status().attempts > 0 ? 0 : 1);
  busy.SetWedged(true);
  CHECK(cluster.Until([&] { return reply.done(); }, absl::Seconds(4)));
  CHECK(Right(cluster, reply));
  busy.SetWedged(false);
  REQUIRE(cluster.Ready());        // it is trusted again
  cluster.Run(absl::Minutes(10));  // idle is not wedged
  REQUIRE(cluster.Ready());
  CheckEnd(cluster);
}

TEST_CASE("C61 KV that did not arrive is computed again and counted as such", "[field]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit(kLong);
  REQUIRE(cluster.Until([&] { return cluster.fabric().writes_out() > 0; }));
  cluster.fabric().Break(cluster.prefill(0).process(), cluster.decode(0).process());
  cluster.Until([&] { return reply.done(); });
  CHECK(Right(cluster, reply));
  CHECK(reply.over->path == Path::kFallback);
  CHECK(reply.over->prompt.cached_tokens + reply.over->prompt.computed_tokens == 150);
  CHECK(reply.over->prompt.cached_tokens == 0);
  CheckEnd(cluster);
}

TEST_CASE("C65 many at once, with transfers that end in any order, are all right", "[field]") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.prefill = options.decode = 2;
    options.links.write_jitter = absl::Milliseconds(20);
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    std::vector<Reply*> replies;
    for (uint32_t i = 0; i < 64; ++i) {
      replies.push_back(&cluster.Submit({.prompt_tokens = 40 + i, .temperature = 0}));
    }
    CheckEnd(cluster);
    for (const Reply* reply : replies) CHECK(Right(cluster, *reply));
  }
}

TEST_CASE("C66 a prefill of another model is refused, and answers come without it", "[field]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  cluster.prefill(0).Crash();
  cluster.fabric().config(cluster.prefill(0).process()).model_fingerprint = 77;
  cluster.prefill(0).Restart();
  cluster.Run(absl::Seconds(3));
  CHECK(cluster.decode(0).Status().links.empty());
  const Reply& reply = AskAndWait(cluster, kLong);
  CHECK(Right(cluster, reply));
  CHECK(reply.over->path == Path::kFallback);
  CHECK(cluster.prefill(0).prefill_metrics().requests == 0);
  CheckEnd(cluster);
}

TEST_CASE("C67 a prefill that joins disturbs no stream", "[field]") {
  ClusterOptions options;
  options.prefill = 2;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  cluster.prefill(1).Crash();
  Reply& reply = cluster.Submit({.prompt_tokens = 60, .new_tokens = 200});
  absl::Time last;
  absl::Duration longest, sum;
  size_t heard = 0;
  const auto listen = [&](size_t until) {
    cluster.Until([&] {
      if (reply.tokens.size() > heard) {
        if (heard > 0) {
          longest = std::max(longest, cluster.now() - last);
          sum += cluster.now() - last;
        }
        heard = reply.tokens.size();
        last = cluster.now();
      }
      return heard >= until || reply.done();
    });
  };
  listen(50);
  const absl::Duration usual = sum / 49;
  cluster.prefill(1).Restart();
  listen(200);
  CHECK(longest < 2 * usual);
  CheckEnd(cluster);
}

TEST_CASE("C72 cached tokens are those that the prefix cache gave", "[field]") {
  for (const uint32_t tokens : {32u, 150u}) {  // colocated, disaggregated
    Cluster cluster({});
    REQUIRE(cluster.Ready());
    const Ask ask{.prompt_tokens = tokens, .content = 9};
    CHECK(AskAndWait(cluster, ask).over->prompt.cached_tokens == 0);
    CHECK(AskAndWait(cluster, ask).over->prompt.cached_tokens == (tokens - 1) / 16 * 16);
    CheckEnd(cluster);
  }
}

TEST_CASE("C75 a cancel of one of two equal requests leaves the other", "[field]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  const Ask ask{.prompt_tokens = 150, .new_tokens = 20, .content = 3};
  Reply& one = cluster.Submit(ask);
  Reply& other = cluster.Submit(ask);
  cluster.Run(absl::Milliseconds(20));
  cluster.Cancel(one);
  cluster.Until([&] { return other.done(); });
  CHECK(Right(cluster, other));
  CheckEnd(cluster);
}

TEST_CASE("C76 nothing is sent to a dead worker", "[field]") {
  ClusterOptions options;
  options.prefill = 2;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  cluster.prefill(1).Crash();
  cluster.Run(2 * kHeartbeatInterval);
  for (int i = 0; i < 10; ++i) {
    const Reply& reply = AskAndWait(cluster, kLong);
    CHECK(Right(cluster, reply));
    CHECK(reply.over->attempts == 1);
    CHECK(reply.over->path == Path::kDisaggregated);
  }
  CheckEnd(cluster);
}

TEST_CASE("C77 with all workers of a role gone, requests take the other path or end at once",
          "[field]") {
  ClusterOptions options;
  options.prefill = options.decode = 2;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  for (uint32_t i = 0; i < 2; ++i) cluster.prefill(i).Crash();
  cluster.Run(absl::Seconds(1));
  CHECK(AskAndWait(cluster, kLong).over->path == Path::kFallback);
  for (uint32_t i = 0; i < 2; ++i) cluster.decode(i).Crash();
  cluster.Run(absl::Milliseconds(500));
  Reply& refused = cluster.Submit(kShort);
  CHECK(cluster.Until([&] { return refused.done(); }, absl::Seconds(1)));
  CHECK(refused.over->status.code() == absl::StatusCode::kUnavailable);
  for (uint32_t i = 0; i < cluster.workers(); ++i) cluster.worker(i).Restart();
  REQUIRE(cluster.Ready());
  CHECK(Right(cluster, AskAndWait(cluster, kLong)));
  CheckEnd(cluster);
}

TEST_CASE("C86 after a mass abort every gauge is zero", "[field]") {
  ClusterOptions options;
  options.router.queue_requests = 300;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  for (int i = 0; i < 200; ++i) cluster.Submit(i % 2 == 0 ? kLong : kShort);
  cluster.Run(absl::Milliseconds(60));
  for (Reply& reply : cluster.replies()) cluster.Cancel(reply);
  cluster.Run(absl::Seconds(1));
  CHECK(cluster.Owned() == "");
  const decode::Metrics decode = cluster.decode(0).decode_metrics();
  CHECK(decode.waiting + decode.landing + decode.running + decode.blocks.used == 0);
  const prefill::Metrics prefill = cluster.prefill(0).prefill_metrics();
  CHECK(prefill.waiting + prefill.computing + prefill.pushing + prefill.blocks.used == 0);
  CheckEnd(cluster);
}

TEST_CASE("C97 a drain lets streams end and takes nothing new", "[field]") {
  for (const char role : {'f', 'p', 'd'}) {
    ClusterOptions options;
    options.prefill = options.decode = 2;
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    std::vector<Reply*> replies;
    for (int i = 0; i < 10; ++i) {
      replies.push_back(&cluster.Submit({.prompt_tokens = 100, .new_tokens = 60}));
    }
    cluster.Run(absl::Milliseconds(100));
    if (role == 'f') cluster.frontend(0).Drain();
    if (role == 'p') cluster.prefill(0).Drain();
    if (role == 'd') cluster.decode(0).Drain();
    cluster.Run(absl::Milliseconds(1));
    if (role == 'f') {
      const Reply& late = AskAndWait(cluster, kShort);
      CHECK(late.over->status.code() == absl::StatusCode::kUnavailable);
    } else {  // the front end does not know yet
      for (int i = 0; i < 4; ++i) replies.push_back(&cluster.Submit(kLong));
    }
    CheckEnd(cluster);
    for (const Reply* reply : replies) CHECK(Right(cluster, *reply));
    if (role == 'p') CHECK(!cluster.prefill(0).alive());
    if (role == 'd') CHECK(!cluster.decode(0).alive());
  }
}

TEST_CASE("C98 a prefill that drains leaves after its pushes have landed", "[field]") {
  ClusterOptions options;
  options.links.late_chance = 1;
  options.links.late_max = absl::Milliseconds(800);
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit(kLong);
  REQUIRE(cluster.Until([&] { return cluster.fabric().writes_out() > 0; }));
  cluster.prefill(0).Drain();
  cluster.Until([&] { return !cluster.prefill(0).alive(); });
  CHECK(cluster.fabric().writes_out() == 0);
  cluster.Until([&] { return reply.done(); });
  CHECK(Right(cluster, reply));
  CHECK(reply.over->path == Path::kDisaggregated);  // its Commit was not lost with it
  CHECK(reply.over->attempts == 1);
  CheckEnd(cluster);
}

TEST_CASE("C117 a prefill that stands still slows down nobody else", "[field]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  const Reply& before = AskAndWait(cluster, kShort);
  const absl::Duration usual = before.first_token_at - before.received;
  cluster.prefill(0).SetStopped(true);
  std::vector<Reply*> replies;
  for (int i = 0; i < 200; ++i) replies.push_back(&cluster.Submit(kLong));
  cluster.Run(absl::Seconds(4));
  const router::Snapshot snapshot = cluster.frontend(0).snapshot();
  CHECK(snapshot.prefill_peers[static_cast<size_t>(router::PeerMetric::kDead)] == 1);
  for (Reply* reply : replies) cluster.Cancel(*reply);
  cluster.Run(absl::Milliseconds(100));
  const Reply& meanwhile = AskAndWait(cluster, kShort);
  CHECK(meanwhile.first_token_at - meanwhile.received <= 2 * usual);
  cluster.prefill(0).SetStopped(false);
  CheckEnd(cluster);
  REQUIRE(cluster.Ready());
  CHECK(AskAndWait(cluster, kLong).over->path == Path::kDisaggregated);
}

}  // namespace
}  // namespace baton::sim
