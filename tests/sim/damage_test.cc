// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// KV that arrives other than it was sent: with sums it is never used, without them it would be.
#include <catch2/catch.hpp>

#include "sim/cluster.h"
#include "tests/sim/scenario.h"

namespace baton::sim {
namespace {

using router::Path;

// The ways on which KV travels: shared memory, rc, TCP.
void SetWay(ClusterOptions& options, int way) {
  options.path = way == 2 ? 'B' : 'A';
  options.close_fences = way == 1;
  options.several_hosts = way != 0;
}

// From now on half of what passes from the one prefill to the one decode arrives wrong.
void SetDamage(Cluster& cluster, bool tears) {
  const SimFabric::Index prefill = cluster.prefill(0).process();
  const SimFabric::Index decode = cluster.decode(0).process();
  LinkWeather weather = cluster.fabric().weather(prefill, decode);
  weather.damage_chance = 0.5;
  weather.tears = tears;
  cluster.fabric().SetWeather(prefill, decode, weather);
}

bool HasViolation(const Cluster& cluster, const char* checker) {
  for (const std::string& violation : cluster.violations()) {
    if (violation.rfind(checker, 0) == 0) return true;
  }
  return false;
}

TEST_CASE("K3: a push that arrives damaged is never used; decode computes it, on every way",
          "[sim]") {
  for (const int way : {0, 1, 2}) {
    for (const bool tears : {false, true}) {
      ClusterOptions options;
      SetWay(options, way);
      Cluster cluster(options);
      REQUIRE(cluster.Ready());
      SetDamage(cluster, tears);
      Reply& reply = cluster.Submit(kLong);
      cluster.Until([&] { return reply.done(); });
      CHECK(cluster.fabric().damaged() > 0);
      CHECK(Right(cluster, reply));
      CHECK(reply.over->path == Path::kFallback);
      const auto damaged = static_cast<size_t>(decode::Failure::kDamaged);
      CHECK(cluster.decode(0).decode_metrics().failures[damaged] == 1);
      CheckEnd(cluster);
    }
  }
}

TEST_CASE("K3, K8: without sums damaged bytes are used, and the checkers see it", "[sim]") {
  for (const bool tears : {false, true}) {
    ClusterOptions options;
    options.check_one_in = 0;
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    SetDamage(cluster, tears);
    Reply& reply = cluster.Submit(kLong);
    cluster.Until([&] { return reply.done(); });
    CHECK(!Right(cluster, reply));
    CHECK(HasViolation(cluster, "K3"));
    CHECK(HasViolation(cluster, "K8"));
  }
}

}  // namespace
}  // namespace baton::sim
