// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One failure each, at the moment where it hurts; every checker is on in all of them.
#include <catch2/catch.hpp>

#include "sim/cluster.h"
#include "tests/sim/scenario.h"

namespace baton::sim {
namespace {

using router::Outcome;
using router::Path;

// The ways on which KV travels: shared memory, rc, TCP.
void SetWay(ClusterOptions& options, int way) {
  options.path = way == 2 ? 'B' : 'A';
  options.close_fences = way == 1;
  options.several_hosts = way != 0;
}

// The moments of a request's life, dense where it is short.
std::vector<absl::Duration> Moments() {
  std::vector<absl::Duration> moments;
  for (int us = 0; us < 4000; us += 200) moments.push_back(absl::Microseconds(us));
  for (int ms = 4; ms < 80; ms += 2) moments.push_back(absl::Milliseconds(ms));
  return moments;
}

}  // namespace

// ── nothing fails ───────────────────────────────────────────────────────────────────

TEST_CASE("a short prompt is answered by decode alone", "[sim]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit(kShort);
  cluster.Until([&] { return reply.done(); });
  CHECK(Right(cluster, reply));
  CHECK(reply.over->path == Path::kColocated);
  CHECK(cluster.fabric().bytes_landed() == 0);
  CheckEnd(cluster);
}

TEST_CASE("a long prompt is computed on prefill, pushed, and answered right, on every way",
          "[sim]") {
  for (const int way : {0, 1, 2}) {
    ClusterOptions options;
    SetWay(options, way);
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    Reply& reply = cluster.Submit(kLong);
    cluster.Until([&] { return reply.done(); });
    CHECK(Right(cluster, reply));
    CHECK(reply.over->path == Path::kDisaggregated);
    CHECK(reply.over->prompt.pushed);
    CHECK(reply.over->prompt.kv_blocks == BlocksFor(150));
    CHECK(reply.over->prompt.kv_bytes == cluster.fabric().bytes_landed());
    CHECK(cluster.prefill(0).prefill_metrics().prompt_tokens_computed == 150);
    CheckEnd(cluster);
  }
}

TEST_CASE("a warm prefix is computed once", "[sim]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  const Ask ask{.prompt_tokens = 150, .new_tokens = 5, .content = 7};
  Reply& cold = cluster.Submit(ask);
  cluster.Until([&] { return cold.done(); });
  Reply& warm = cluster.Submit(ask);
  cluster.Until([&] { return warm.done(); });
  CHECK(Right(cluster, cold));
  CHECK(Right(cluster, warm));
  CHECK(warm.over->prompt.cached_tokens >= 144);
  CheckEnd(cluster);
}

TEST_CASE("many requests at once on few blocks are all answered right", "[sim]") {
  ClusterOptions options;
  options.prefill = options.decode = 2;
  options.decode_blocks = 40;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  std::vector<Reply*> replies;
  for (uint32_t i = 0; i < 40; ++i) {
    replies.push_back(&cluster.Submit({.prompt_tokens = 1 + 5 * i, .new_tokens = 1 + i % 30}));
  }
  CheckEnd(cluster);
  for (const Reply* reply : replies) CHECK(Right(cluster, *reply));
}

TEST_CASE("more than the queue holds is refused at once, the rest is answered", "[sim]") {
  ClusterOptions options;
  options.router.queue_requests = 5;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  for (int i = 0; i < 12; ++i) cluster.Submit(kShort);
  cluster.Run(absl::Milliseconds(1));
  size_t refused = 0;
  for (const Reply& reply : cluster.replies()) {
    refused += reply.over && reply.over->outcome == Outcome::kRejected;
  }
  CHECK(refused == 7);
  CheckEnd(cluster);
  size_t right = 0;
  for (const Reply& reply : cluster.replies()) right += Right(cluster, reply);
  CHECK(right == 5);
}

// ── the client ──────────────────────────────────────────────────────────────────────

TEST_CASE("cancelled at any moment, a request ends at once and owns nothing", "[sim]") {
  for (const int way : {0, 2}) {
    for (const Ask& ask : {kShort, kLong}) {
      for (const absl::Duration moment : Moments()) {
        ClusterOptions options;
        SetWay(options, way);
        Cluster cluster(options);
        REQUIRE(cluster.Ready());
        Reply& reply = cluster.Submit(ask);
        cluster.Run(moment);
        cluster.Cancel(reply);
        cluster.Run(absl::Milliseconds(1));
        CHECK(reply.done());
        CheckEnd(cluster);
      }
    }
  }
}

TEST_CASE("cancelled while decode is asked what became of it, a request ends at once", "[sim]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit(kLong);
  REQUIRE(cluster.Until([&] { return cluster.fabric().writes_out() > 0; }));
  cluster.net().SetHeld(cluster.frontend(0).calls(), cluster.decode(0).index(), true);
  cluster.prefill(0).Crash();
  cluster.Run(absl::Milliseconds(20));
  cluster.Cancel(reply);
  cluster.Run(absl::Milliseconds(1));
  CHECK(reply.done());
  cluster.net().SetHeld(cluster.frontend(0).calls(), cluster.decode(0).index(), false);
  CheckEnd(cluster);
}

TEST_CASE("the deadline ends a request whatever it waits for", "[sim]") {
  for (int ms = 1; ms < 60; ms += 3) {
    Cluster cluster({});
    REQUIRE(cluster.Ready());
    Reply& reply = cluster.Submit({.prompt_tokens = 150, .deadline = absl::Milliseconds(ms)});
    cluster.Run(absl::Milliseconds(ms + 1));
    CHECK(reply.done());
    CheckEnd(cluster);
  }
}

TEST_CASE("a front end that was stopped knows its workers when it goes on", "[sim]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  cluster.Run(absl::Milliseconds(50));  // no answer to a heartbeat is on its way
  cluster.frontend(0).SetStopped(true);
  cluster.Run(absl::Seconds(30));
  cluster.frontend(0).SetStopped(false);
  cluster.Run(absl::Milliseconds(1));  // no worker can have answered since
  Reply& reply = cluster.Submit(kLong);
  cluster.Settle();
  CHECK(Right(cluster, reply));
  CHECK(reply.over->attempts == 1);
  CHECK(cluster.frontend(0).snapshot().reconnects == 0);
  CheckEnd(cluster);
}

TEST_CASE("a stop string ends the answer and frees everything", "[sim]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 150, .new_tokens = 200});
  cluster.Until([&] { return reply.tokens.size() > 5; });
  cluster.Complete(reply);
  cluster.Run(absl::Milliseconds(1));
  REQUIRE(reply.done());
  CHECK(reply.over->outcome == Outcome::kStop);
  CheckEnd(cluster);
}

// ── processes die ───────────────────────────────────────────────────────────────────

TEST_CASE("a prefill dies at any moment: the other one takes over and the answer is right",
          "[sim]") {
  for (const int way : {0, 1, 2}) {
    for (const absl::Duration moment : Moments()) {
      ClusterOptions options;
      options.prefill = 2;
      SetWay(options, way);
      Cluster cluster(options);
      REQUIRE(cluster.Ready());
      Reply& reply = cluster.Submit(kLong);
      cluster.Run(moment);
      const uint32_t busy = cluster.prefill(0).Status().attempts > 0 ? 0 : 1;
      cluster.prefill(busy).Crash();
      cluster.Until([&] { return reply.done(); });
      CHECK(Right(cluster, reply));
      CHECK(reply.over->path == Path::kDisaggregated);
      CheckEnd(cluster);
    }
  }
}

TEST_CASE("the only prefill dies at any moment: decode computes the prompt itself", "[sim]") {
  for (const absl::Duration moment : Moments()) {
    Cluster cluster({});
    REQUIRE(cluster.Ready());
    Reply& reply = cluster.Submit(kLong);
    cluster.Run(moment);
    cluster.prefill(0).Crash();
    cluster.Until([&] { return reply.done(); });
    CHECK(Right(cluster, reply));
    CheckEnd(cluster);
  }
}

TEST_CASE("a decode dies at any moment: the answer is resumed on the other one", "[sim]") {
  for (const Ask& ask : {kShort, kLong}) {
    for (const absl::Duration moment : Moments()) {
      ClusterOptions options;
      options.decode = 2;
      Cluster cluster(options);
      REQUIRE(cluster.Ready());
      Reply& reply = cluster.Submit(ask);
      cluster.Run(moment);
      const uint32_t busy = cluster.decode(0).Status().attempts > 0 ? 0 : 1;
      const bool begun = !reply.done() && !reply.tokens.empty();
      cluster.decode(busy).Crash();
      cluster.Until([&] { return reply.done(); });
      CHECK(Right(cluster, reply));
      if (begun && reply.over->attempts > 1) CHECK(reply.over->resumes == 1);
      CheckEnd(cluster);
    }
  }
}

TEST_CASE("the only decode dies: UNAVAILABLE within 5 s, and a right answer when it is back",
          "[sim]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 150, .new_tokens = 300});
  cluster.Until([&] { return !reply.tokens.empty(); });
  cluster.decode(0).Crash();
  CHECK(cluster.Until([&] { return reply.done(); }, absl::Seconds(5)));
  CHECK(reply.over->status.code() == absl::StatusCode::kUnavailable);
  cluster.decode(0).Restart();
  REQUIRE(cluster.Ready());
  Reply& again = cluster.Submit(kLong);
  cluster.Until([&] { return again.done(); });
  CHECK(Right(cluster, again));
  CheckEnd(cluster);
}

TEST_CASE("the only decode is back within its grace: the answer goes on where it was", "[sim]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 150, .new_tokens = 100});
  cluster.Until([&] { return reply.tokens.size() > 3; });
  cluster.decode(0).Crash();
  cluster.Run(absl::Milliseconds(500));
  cluster.decode(0).Restart();
  cluster.Until([&] { return reply.done(); });
  CHECK(Right(cluster, reply));
  CHECK(reply.over->resumes == 1);
  CheckEnd(cluster);
}

// Before the front end hears of it: by what it knows, the other decode has the right weights.
TEST_CASE("an answer is not resumed on a decode that came back with other weights", "[sim]") {
  ClusterOptions options;
  options.decode = 2;
  options.calls.loss_noticed = absl::Milliseconds(10);
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 20, .new_tokens = 40});
  REQUIRE(cluster.Until([&] { return reply.tokens.size() >= 5; }));
  const uint32_t first = cluster.decode(0).Status().attempts > 0 ? 0 : 1;
  WorkerProcess& other = cluster.decode(1 - first);
  cluster.decode(first).Crash();
  cluster.Run(absl::Milliseconds(5));
  other.Crash();
  other.SetMisfit(WorkerProcess::Misfit::kModel);
  other.Restart();
  cluster.Run(absl::Seconds(1));
  cluster.decode(first).Restart();
  REQUIRE(cluster.Until([&] { return reply.done(); }));
  CHECK(Right(cluster, reply));
  CheckEnd(cluster);
}

TEST_CASE("a front end dies at any moment: its workers own nothing afterwards", "[sim]") {
  for (const absl::Duration moment : Moments()) {
    Cluster cluster({});
    REQUIRE(cluster.Ready());
    cluster.Submit(kLong);
    cluster.Submit(kShort);
    cluster.Run(moment);
    cluster.frontend(0).Crash();
    cluster.Run(absl::Milliseconds(500));
    CHECK(cluster.Owned().empty());
    cluster.frontend(0).Restart();
    REQUIRE(cluster.Ready());
    Reply& reply = cluster.Submit(kLong);
    cluster.Until([&] { return reply.done(); });
    CHECK(Right(cluster, reply));
    CheckEnd(cluster);
  }
}

TEST_CASE("a prefill dies just after its Commit left: committed wins, or nothing was lost",
          "[sim]") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    Reply& reply = cluster.Submit(kLong);
    REQUIRE(cluster.Until([&] { return cluster.prefill(0).prefill_metrics().committed > 0; }));
    cluster.prefill(0).Crash();
    cluster.Until([&] { return reply.done(); });
    CHECK(Right(cluster, reply));
    CheckEnd(cluster);
  }
}

TEST_CASE("decode is asked what became of an attempt when its first token is on its way", "[sim]") {
  int crossings = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.engine.step = absl::Milliseconds(200);  // the second token comes late
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    Reply& reply = cluster.Submit(kLong);
    REQUIRE(cluster.Until([&] { return cluster.prefill(0).prefill_metrics().committed > 0; }));
    cluster.net().SetHeld(cluster.frontend(0).calls(), cluster.decode(0).index(), true);
    cluster.prefill(0).Crash();
    cluster.Run(absl::Milliseconds(20));
    crossings += cluster.decode(0).decode_metrics().generation_tokens == 1;
    cluster.net().SetHeld(cluster.frontend(0).calls(), cluster.decode(0).index(), false);
    cluster.Until([&] { return reply.done(); });
    CHECK(Right(cluster, reply));
    CheckEnd(cluster);
  }
  CHECK(crossings > 0);
}

// ── late things ─────────────────────────────────────────────────────────────────────

TEST_CASE("writes that land late, after the cancel, hurt nobody", "[sim]") {
  // The blocks of the cancelled request stay in quarantine until its writer is quiet; if they
  // were given to the next requests at once, those would read the late bytes.
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    ClusterOptions options;
    options.seed = seed;
    options.decode_blocks = 32;
    options.links.late_chance = 0.5;
    options.links.late_max = absl::Milliseconds(300);
    SetWay(options, static_cast<int>(seed % 3));
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    Reply& cancelled = cluster.Submit(kLong);
    cluster.Until([&] { return cluster.fabric().writes_out() > 0 || cancelled.done(); });
    cluster.Cancel(cancelled);
    std::vector<Reply*> next;
    for (int i = 0; i < 4; ++i) next.push_back(&cluster.Submit(kLong));
    CheckEnd(cluster);
    for (const Reply* reply : next) CHECK(Right(cluster, *reply));
  }
}

TEST_CASE("a Prefill that arrives after its ticket was revoked is refused", "[sim]") {
  // Its prompt is in the writer's cache: once accepted, it would be pushed on the spot.
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    for (const int way : {0, 1, 2}) {
      ClusterOptions options;
      options.seed = seed;
      options.router.progress_timeout = absl::Milliseconds(500);
      options.decode_options.prefix_cache.enabled = false;
      SetWay(options, way);
      Cluster cluster(options);
      REQUIRE(cluster.Ready());
      const Ask ask{.prompt_tokens = 150, .new_tokens = 10, .content = 7};
      Reply& first = cluster.Submit(ask);
      cluster.Until([&] { return first.done(); });
      const uint64_t landed = cluster.fabric().bytes_landed();
      cluster.net().SetHeld(cluster.frontend(0).calls(), cluster.prefill(0).index(), true);
      Reply& reply = cluster.Submit(ask);
      cluster.Until([&] { return reply.done(); });
      CHECK(Right(cluster, reply));
      CHECK(reply.over->path == Path::kFallback);
      cluster.net().SetHeld(cluster.frontend(0).calls(), cluster.prefill(0).index(), false);
      CheckEnd(cluster);
      CHECK(cluster.prefill(0).prefill_metrics().committed == 1);
      CHECK(cluster.fabric().bytes_landed() == landed);
    }
  }
}

TEST_CASE(
    "a writer that was stopped, declared dead and woken writes nothing more, is reborn, "
    "and works again",
    "[sim]") {
  for (const int way : {0, 1, 2}) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      ClusterOptions options;
      options.seed = seed;
      options.decode_blocks = 40;
      SetWay(options, way);
      Cluster cluster(options);
      REQUIRE(cluster.Ready());
      Reply& reply = cluster.Submit(kLong);
      cluster.Until([&] { return cluster.fabric().writes_out() > 0 || reply.done(); });
      const Incarnation before = cluster.prefill(0).Status().self.incarnation;
      cluster.prefill(0).SetStopped(true);
      cluster.Until([&] { return reply.done(); });
      CHECK(Right(cluster, reply));
      cluster.Run(absl::Seconds(4));
      std::vector<Reply*> meanwhile;
      for (int i = 0; i < 3; ++i) meanwhile.push_back(&cluster.Submit(kLong));
      cluster.Run(absl::Milliseconds(10));
      cluster.prefill(0).SetStopped(false);
      CheckEnd(cluster);
      for (const Reply* other : meanwhile) CHECK(Right(cluster, *other));
      REQUIRE(cluster.Ready());
      CHECK(cluster.prefill(0).Status().self.incarnation != before);
      Reply& again = cluster.Submit(kLong);
      cluster.Until([&] { return again.done(); });
      CHECK(Right(cluster, again));
      CHECK(again.over->path == Path::kDisaggregated);
      CheckEnd(cluster);
    }
  }
}

TEST_CASE("a reservation whose front end cannot be reached expires by itself", "[sim]") {
  Cluster cluster({});
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 150, .deadline = absl::Milliseconds(200)});
  cluster.Until([&] { return cluster.decode(0).decode_metrics().landing > 0; });
  for (uint32_t i = 0; i < 2; ++i) {
    cluster.net().SetHeld(cluster.frontend(0).calls(), cluster.worker(i).index(), true);
  }
  cluster.Run(absl::Milliseconds(1500));
  CHECK(reply.done());
  CHECK(cluster.decode(0).Status().attempts == 0);
  for (uint32_t i = 0; i < 2; ++i) {
    cluster.net().SetHeld(cluster.frontend(0).calls(), cluster.worker(i).index(), false);
  }
  CheckEnd(cluster);
}

// Neither the cancel nor Revoke reaches it, and its lease is not over.
TEST_CASE("a prefill that is cut off ends what waits in its queue by its back-stop", "[sim]") {
  ClusterOptions options;
  SetWay(options, 2);
  options.decode_blocks = 128;
  options.prefill_options.sequences_max = 1;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  WorkerProcess& prefill = cluster.prefill(0);
  const auto cut = [&](bool off) {
    cluster.net().SetHeld(cluster.frontend(0).calls(), prefill.index(), off);
    cluster.fabric().Cut(prefill.process(), cluster.decode(0).process(), off);
  };
  const Ask ask{.prompt_tokens = 150, .deadline = absl::Milliseconds(200)};
  std::vector<Reply*> replies;
  for (int i = 0; i < 2; ++i) replies.push_back(&cluster.Submit(ask));
  REQUIRE(cluster.Until([&] { return prefill.prefill_metrics().waiting == 1; }));
  cut(true);
  cluster.Run(absl::Milliseconds(1500));
  for (const Reply* reply : replies) CHECK(reply->done());
  CHECK(prefill.Status().attempts == 0);
  cut(false);
  CheckEnd(cluster);
}

TEST_CASE("a front end that goes silent loses its lease, and everything it had at its workers",
          "[sim]") {
  ClusterOptions options;
  options.engine.step = absl::Milliseconds(10);  // the answer takes longer than the lease
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 150, .new_tokens = 800});
  cluster.Until([&] { return !reply.tokens.empty(); });
  cluster.frontend(0).SetStopped(true);
  cluster.Run(absl::Milliseconds(1500));
  CHECK(cluster.decode(0).Status().attempts == 1);
  cluster.Run(absl::Milliseconds(1000));
  CHECK(cluster.decode(0).Status().attempts == 0);
  cluster.frontend(0).SetStopped(false);
  cluster.Until([&] { return reply.done(); });
  CHECK(Right(cluster, reply));  // resumed
  CheckEnd(cluster);
}

// ── loops and drains ────────────────────────────────────────────────────────────────

TEST_CASE("a decode whose loop is wedged is found out, and its answers move", "[sim]") {
  ClusterOptions options;
  options.decode = 2;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  Reply& reply = cluster.Submit({.prompt_tokens = 20, .new_tokens = 200});
  cluster.Until([&] { return !reply.tokens.empty(); });
  const uint32_t busy = cluster.decode(0).Status().attempts > 0 ? 0 : 1;
  cluster.decode(busy).SetWedged(true);
  CHECK(cluster.Until([&] { return reply.done(); }, absl::Seconds(5)));
  CHECK(Right(cluster, reply));
  cluster.decode(busy).SetWedged(false);
  CheckEnd(cluster);
}

TEST_CASE("a draining decode hands its answers back and exits; all are right", "[sim]") {
  ClusterOptions options;
  options.decode = 2;
  options.decode_options.drain_max = absl::Milliseconds(50);
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  std::vector<Reply*> replies;
  for (int i = 0; i < 6; ++i) {
    replies.push_back(&cluster.Submit({.prompt_tokens = 60, .new_tokens = 100}));
  }
  cluster.Until([&] { return replies[0]->tokens.size() > 2 && replies[5]->tokens.size() > 2; });
  cluster.decode(0).Drain();
  CHECK(cluster.Until([&] { return !cluster.decode(0).alive(); }, absl::Seconds(3)));
  CheckEnd(cluster);
  size_t resumed = 0;
  for (const Reply* reply : replies) {
    CHECK(Right(cluster, *reply));
    resumed += reply->over->resumes;
  }
  CHECK(resumed > 0);
}

TEST_CASE("a draining prefill finishes what it has and exits", "[sim]") {
  ClusterOptions options;
  options.prefill = 2;
  Cluster cluster(options);
  REQUIRE(cluster.Ready());
  std::vector<Reply*> replies;
  for (int i = 0; i < 6; ++i) replies.push_back(&cluster.Submit(kLong));
  cluster.Run(absl::Milliseconds(5));
  cluster.prefill(0).Drain();
  CHECK(cluster.Until([&] { return !cluster.prefill(0).alive(); }, absl::Seconds(3)));
  CheckEnd(cluster);
  for (const Reply* reply : replies) CHECK(Right(cluster, *reply));
}

TEST_CASE("a link that is cut while KV is pushed costs a retry, not an answer", "[sim]") {
  for (const int way : {0, 1, 2}) {
    ClusterOptions options;
    options.prefill = 2;
    SetWay(options, way);
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    Reply& reply = cluster.Submit(kLong);
    cluster.Until([&] { return cluster.fabric().writes_out() > 0 || reply.done(); });
    const uint32_t busy = cluster.prefill(0).Status().attempts > 0 ? 0 : 1;
    cluster.fabric().Cut(cluster.prefill(busy).process(), cluster.decode(0).process(), true);
    cluster.Until([&] { return reply.done(); });
    CHECK(Right(cluster, reply));
    cluster.fabric().Cut(cluster.prefill(busy).process(), cluster.decode(0).process(), false);
    CheckEnd(cluster);
  }
}

}  // namespace baton::sim
