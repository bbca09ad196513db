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
        decode_status[i].links.push_back({prefill.self, "sim", {.bandwidth = 1e9}});
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

// KV of 320 KiB a token, as that of a 70B model; `prefill` computes 10,000 tokens a second.
void ShowKv(WorkerStatus& decode, WorkerStatus& prefill) {
  decode.kv_layers = 80;
  decode.kv_block_bytes = 16 * 320 * 1024;
  prefill.prompt_tokens_per_second = 10000;
}

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

TEST_CASE("a link that hides its push behind the computation costs nothing", "[router]") {
  Cluster cluster(1, 1);
  const Question question{.tokens = 4096, .writer_wanted = true};
  const auto exposed = [&] {
    return ExposedTokens(question, cluster.decodes[0], cluster.prefills[0]);
  };
  CHECK(exposed() == 0);  // neither speed nor KV are known
  ShowKv(cluster.decode_status[0], cluster.prefill_status[0]);
  LinkStatus& link = cluster.decode_status[0].links[0];
  link.cost.bandwidth = 50e9;  // 27 ms beside 410 ms of computation
  CHECK(exposed() == 0);
  link.cost.bandwidth = 1.25e9;  // 1074 ms: 664 ms too many are 6640 tokens
  CHECK(exposed() == Approx(6640).epsilon(0.01));
  link.cost.per_operation = absl::Microseconds(10);  // of 256 × 80 runs
  CHECK(exposed() == Approx(6640 + 2048).epsilon(0.01));
  link.cost.per_operation = absl::ZeroDuration();
  link.in_flight_bytes = 125'000'000;  // 100 ms
  CHECK(exposed() == Approx(6640 + 1000).epsilon(0.01));
  link.cost.bandwidth = 0;
  CHECK(exposed() == 0);
}

TEST_CASE("what a writer says of a link counts more than what its owner says", "[router]") {
  Cluster cluster(1, 1);
  ShowKv(cluster.decode_status[0], cluster.prefill_status[0]);
  cluster.decode_status[0].links[0].cost.bandwidth = 1.25e9;
  LinkStatus& own = cluster.prefill_status[0].links.emplace_back();
  own = {cluster.decode_status[0].self, "sim", {.bandwidth = 50e9}};
  const Question question{.tokens = 4096, .writer_wanted = true};
  CHECK(ExposedTokens(question, cluster.decodes[0], cluster.prefills[0]) == 0);
}

TEST_CASE("what is cached at decode is not pushed", "[router]") {
  Cluster cluster(1, 1);
  ShowKv(cluster.decode_status[0], cluster.prefill_status[0]);
  cluster.decode_status[0].links[0].cost.bandwidth = 1.25e9;
  const Question question{.tokens = 4096, .writer_wanted = true};
  cluster.decodes[0].cached_tokens = 4096 - 1024;
  CHECK(ExposedTokens(question, cluster.decodes[0], cluster.prefills[0]) ==
        32);  // the last of 80 layers
}

TEST_CASE("of two writers the one with the faster link is chosen, load apart", "[router]") {
  Cluster cluster(2, 1);
  for (WorkerStatus& prefill : cluster.prefill_status) ShowKv(cluster.decode_status[0], prefill);
  cluster.decode_status[0].links[0].cost.bandwidth = 1.25e9;
  cluster.decode_status[0].links[1].cost.bandwidth = 50e9;
  for (uint64_t rotation = 0; rotation < 4; ++rotation) {
    CHECK(cluster.Ask(4096, true, rotation)->prefill == WorkerIndex(1));
  }
  cluster.prefills[1].load_tokens = 10000;
  CHECK(cluster.Ask(4096, true)->prefill == WorkerIndex(0));
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
