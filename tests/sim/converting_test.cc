// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Prefill pools with rows in another order than decode's: all that is pushed is converted, and the
// engine, whose next token hashes every byte, must not see it.
#include <catch2/catch.hpp>

#include "sim/cluster.h"
#include "tests/sim/scenario.h"

namespace baton::sim {
namespace {

using router::Path;

// The ways on which KV travels: shared memory, rc, TCP.
ClusterOptions Converting(int way) {
  ClusterOptions options;
  options.converts = true;
  options.path = way == 2 ? 'B' : 'A';
  options.close_fences = way == 1;
  options.several_hosts = way != 0;
  return options;
}

TEST_CASE("K8: what is pushed between pools of other orders is converted, on every way", "[sim]") {
  for (const int way : {0, 1, 2}) {
    for (const bool scales : {false, true}) {
      ClusterOptions options = Converting(way);
      options.kv_scales = scales;
      Cluster cluster(options);
      REQUIRE(cluster.Ready());
      Reply& first = cluster.Submit(kLong);
      cluster.Until([&] { return first.done(); });
      Reply& warm = cluster.Submit(kLong);  // a part of it is in decode's cache by then
      cluster.Until([&] { return warm.done(); });
      for (const Reply* reply : {&first, &warm}) CHECK(Right(cluster, *reply));
      CHECK(first.over->path == Path::kDisaggregated);
      CheckEnd(cluster);
    }
  }
}

// A piece of the staging area is used again as soon as its write has ended; a write that still
// read it would carry another's bytes.
TEST_CASE("K8: many pushes at once share the staging area of a slow link", "[sim]") {
  for (const int way : {0, 2}) {
    ClusterOptions options = Converting(way);
    options.prefill_blocks = options.decode_blocks = 200;
    options.links.write_jitter = absl::Milliseconds(5);
    options.links.late_chance = 0.2;
    options.links.late_max = absl::Milliseconds(100);
    Cluster cluster(options);
    REQUIRE(cluster.Ready());
    for (uint64_t i = 0; i < 8; ++i) {
      Ask ask = kLong;
      ask.content = i;
      cluster.Submit(ask);
    }
    for (const Reply& reply : cluster.replies()) {
      cluster.Until([&] { return reply.done(); });
      CHECK(Right(cluster, reply));
    }
    CheckEnd(cluster);
  }
}

}  // namespace
}  // namespace baton::sim
