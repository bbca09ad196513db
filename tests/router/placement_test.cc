// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "router/placement.h"

#include <catch2/catch.hpp>

namespace baton::router {
namespace {

// Decodes 10.. and prefills 0.., all linked, all idle, with memory.
struct Cluster {
  Cluster(size_t prefill_count, size_t decode_count)
      : prefill_status(prefill_count), decode_status(decode_count) {
    for (size_t i = 0; i < prefill_count; ++i) {
      prefill_status[i].self = {"prefill", Incarnation(1 + i)};
    }
    for (size_t i = 0; i < decode_count; ++i) {
      decode_status[i].self = {"decode", Incarnation(101 + i)};
      decode_status[i].blocks_available = 1000;
      for (const WorkerStatus& prefill : prefill_status) {
        decode_status[i].links.push_back({prefill.self, "sim", 1e9, {}});
      }
    }
    for (size_t i = 0; i < prefill_count; ++i) {
      prefills.push_back({WorkerIndex(static_cast<uint32_t>(i)), &prefill_status[i]});
    }
    for (size_t i = 0; i < decode_count; ++i) {
      decodes.push_back({WorkerIndex(static_cast<uint32_t>(10 + i)), &decode_status[i]});
    }
  }
  std::optional<Placement> Ask(uint32_t tokens, bool writer, uint64_t rotation = 0) const {
    return Place({tokens, writer, rotation}, decodes, prefills);
  }

  std::vector<WorkerStatus> prefill_status, decode_status;
  std::vector<Candidate> prefills, decodes;
};

}  // namespace

TEST_CASE("without a decode worker there is no placement", "[router]") {
  const Cluster cluster(2, 0);
  CHECK_FALSE(cluster.Ask(100, true).has_value());
}

TEST_CASE("a short prompt gets no writer", "[router]") {
  const Cluster cluster(1, 1);
  CHECK(cluster.Ask(100, false)->decode == WorkerIndex(10));
  CHECK_FALSE(cluster.Ask(100, false)->prefill.has_value());
}

TEST_CASE("an idle cluster is used in turn", "[router]") {
  const Cluster cluster(2, 2);
  CHECK(cluster.Ask(600, true, 0)->decode == WorkerIndex(10));
  CHECK(cluster.Ask(600, true, 1)->decode == WorkerIndex(11));
  CHECK(cluster.Ask(600, true, 0)->prefill == WorkerIndex(0));
  CHECK(cluster.Ask(600, true, 1)->prefill == WorkerIndex(1));
}

TEST_CASE("the least loaded pair is chosen", "[router]") {
  Cluster cluster(2, 2);
  cluster.decodes[0].load_tokens = 64;
  cluster.prefills[1].load_tokens = 2000;
  for (uint64_t rotation = 0; rotation < 4; ++rotation) {
    CHECK(cluster.Ask(600, true, rotation)->decode == WorkerIndex(11));
    CHECK(cluster.Ask(600, true, rotation)->prefill == WorkerIndex(0));
  }
}

TEST_CASE("a cached prefix outweighs a little load but not a lot", "[router]") {
  Cluster cluster(2, 1);
  cluster.prefills[1].cached_tokens = 500;
  cluster.prefills[1].load_tokens = 400;
  CHECK(cluster.Ask(600, true)->prefill == WorkerIndex(1));
  cluster.prefills[1].load_tokens = 600;
  CHECK(cluster.Ask(600, true)->prefill == WorkerIndex(0));
}

TEST_CASE("only writers with a live link to this life of decode are considered", "[router]") {
  Cluster cluster(2, 2);
  cluster.decode_status[0].links.clear();
  cluster.decode_status[1].links.erase(cluster.decode_status[1].links.begin());
  const Placement placement = *cluster.Ask(600, true);
  CHECK(placement.decode == WorkerIndex(11));
  CHECK(placement.prefill == WorkerIndex(1));
  // The other writer restarted: the link that decode reports is to its earlier life (K7).
  cluster.prefill_status[1].self.incarnation = Incarnation(99);
  CHECK_FALSE(cluster.Ask(600, true)->prefill.has_value());
}

TEST_CASE("pairs with different model fingerprints are not made", "[router]") {
  Cluster cluster(1, 1);
  cluster.prefill_status[0].model_fingerprint = 5;
  CHECK_FALSE(cluster.Ask(600, true)->prefill.has_value());
  cluster.decode_status[0].model_fingerprint = 5;
  CHECK(cluster.Ask(600, true)->prefill.has_value());
}

TEST_CASE("a decode without memory for the sequence is chosen last", "[router]") {
  Cluster cluster(1, 2);
  cluster.decode_status[0].blocks_available = 3;
  CHECK(cluster.Ask(600, false)->decode == WorkerIndex(11));
}

TEST_CASE("a last resort is taken only when nothing else is there", "[router]") {
  Cluster cluster(0, 2);
  cluster.decodes[0].last_resort = true;
  cluster.decodes[1].load_tokens = 1000000;
  CHECK(cluster.Ask(10, false)->decode == WorkerIndex(11));
  cluster.decodes.pop_back();
  CHECK(cluster.Ask(10, false)->decode == WorkerIndex(10));
}

}  // namespace baton::router
