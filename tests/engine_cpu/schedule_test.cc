// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// K8 as a property: a random model, a few sequences, two engines, and a random schedule of
// them, in which every row of logits must be the bits that its sequence gets alone, in one
// chunk, on one thread.
//
// A schedule draws: who is in a step, chunk sizes, which rows are wanted, preemption (blocks
// forgotten, the sequence computed again), warm starts from another sequence's blocks, and
// hand-over of copied blocks to the other engine, which has its own threads, pool and table.
//
// One number makes one schedule with its model, instruction set and KV type.  Some dozens run
// by default; BATON_K8_SCHEDULES=N runs N, BATON_K8_SEED=S starts at S (default 1), so
// BATON_K8_SCHEDULES=1 BATON_K8_SEED=S repeats a failure.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/cpu/isa.h"
#include "engine/forward.h"
#include "engine/gguf.h"
#include "engine/model_loader.h"
#include "tests/engine_cpu/random_model.h"

namespace baton::engine::cpu {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::vector<Isa> Machines() {
  std::vector<Isa> machines;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (ChooseKernels(isa).ok()) machines.push_back(isa);
  }
  return machines;
}

template <typename T>
const T& Pick(Random& random, const std::vector<T>& of) {
  return of[random.Below(of.size())];
}

uint64_t HashRow(absl::Span<const float> row) {
  uint64_t hash = row.size();
  for (const float x : row) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    hash = SplitMix64(hash ^ bits);
  }
  return hash;
}

bool AllFinite(absl::Span<const float> row) {
  return std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); });
}

RandomModel DrawModel(Random& random, Isa isa) {
  const std::vector<uint32_t> head_dims = {32, 64, 80, 96, 128};
  const std::vector<TensorType> types = {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0,
                                         TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ4_K,
                                         TensorType::kQ5_K, TensorType::kQ6_K, TensorType::kF16,
                                         TensorType::kBf16, TensorType::kF32};
  ModelSpec spec;
  spec.architecture = "llama";
  spec.layers = static_cast<uint32_t>(random.Between(1, 3));
  spec.head_dim = Pick(random, head_dims);
  const auto group = static_cast<uint32_t>(random.Between(1, isa == Isa::kScalar ? 4 : 16));
  spec.kv_heads = static_cast<uint32_t>(random.Between(1, group > 5 ? 2 : 3));
  spec.heads = spec.kv_heads * group;
  // The kernels take inputs in blocks of 32: an odd number of heads of 80 does not fill them.
  if (spec.heads * spec.head_dim % 32 != 0) spec.head_dim = 96;
  const TensorType type = Pick(random, types);
  // K-quants have rows of multiples of 256.
  const bool wide = SourceBlockColumns(type) == 256 && random.Chance(0.7);
  spec.hidden = wide ? 256 : 32 * static_cast<uint32_t>(random.Between(1, 11));
  spec.ffn = wide ? 512 : 32 * static_cast<uint32_t>(random.Between(1, 13));
  spec.vocab = static_cast<uint32_t>(random.Between(17, 150));
  spec.context = 1024;
  spec.rope_theta = 10000.0f;
  spec.rope_dims = random.Chance(0.8) ? spec.head_dim : spec.head_dim / 2;
  spec.rope_interleaved = random.Chance(0.5);
  const RandomParts parts{.type = type,
                          .mixed = random.Chance(0.3),
                          .biases = random.Chance(0.4),
                          .head_norms = random.Chance(0.3)};
  return MakeRandomModel(spec, parts, random.Next());
}

// What each sequence gets alone.
struct Expected {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> rows;  // hashes of the logits behind each token
};

// Sequences whose first `common` tokens are the same.
std::vector<Expected> DrawSequences(Random& random, uint32_t vocab, uint32_t length_max,
                                    uint32_t common) {
  std::vector<Expected> all(random.Between(1, 5));
  std::vector<TokenId> prefix(common);
  const auto draw = [&] { return static_cast<TokenId>(random.Below(vocab)); };
  for (TokenId& token : prefix) token = draw();
  for (Expected& one : all) {
    one.tokens = prefix;
    const uint64_t tail =
        random.Chance(0.5) ? random.Between(1, 20) : random.Between(1, length_max);
    for (uint64_t i = 0; i < tail; ++i) one.tokens.push_back(draw());
  }
  return all;
}

void RunAlone(Forward& forward, KvType type, Expected& one) {
  const auto blocks = BlocksFor(one.tokens.size());
  NanPool pool(forward.spec(), type, blocks);
  std::vector<BlockIndex> table(blocks);
  for (uint32_t i = 0; i < blocks; ++i) table[i] = i;
  std::vector<float> logits;
  const ForwardSlice slice{one.tokens, 0, table, ForwardSlice::Logits::kAll};
  forward.Run({&slice, 1}, pool.pool, {}, logits);
  REQUIRE(AllFinite(logits));
  const uint32_t vocab = forward.spec().vocab;
  for (size_t at = 0; at < logits.size(); at += vocab) {
    one.rows.push_back(HashRow(absl::MakeConstSpan(logits).subspan(at, vocab)));
  }
}

// An engine with its pool.  Blocks are counted by the sequences that name them.
struct Node {
  Node(Forward* forward, KvType type, uint32_t blocks, Random& random)
      : forward(forward), memory(forward->spec(), type, blocks), readers(blocks) {
    for (uint32_t i = 0; i < blocks; ++i) free.push_back(i);
    for (uint32_t i = blocks; i > 1; --i) std::swap(free[i - 1], free[random.Below(i)]);
  }
  BlockIndex Take() {
    REQUIRE(!free.empty());
    const BlockIndex block = free.front();
    free.pop_front();
    readers[block] = 1;
    return block;
  }
  void Drop(BlockIndex block) {
    if (--readers[block] > 0) return;
    memory.Forget(block);
    free.push_back(block);
  }
  Forward* forward;
  NanPool memory;
  std::vector<uint32_t> readers;
  std::deque<BlockIndex> free;
};

struct Running {
  const Expected* expected = nullptr;
  Node* node = nullptr;
  uint32_t computed = 0;
  std::vector<BlockIndex> table;
  bool done() const { return computed == expected->tokens.size(); }
};

class Schedule {
 public:
  Schedule(Random& random, std::vector<Node*> nodes, std::vector<Running> running, uint32_t common)
      : random_(random), nodes_(std::move(nodes)), running_(std::move(running)), common_(common) {}

  // False: a row had other bits.
  bool Run() {
    const auto all_done = [&] {
      return std::all_of(running_.begin(), running_.end(),
                         [](const Running& r) { return r.done(); });
    };
    for (uint32_t turn = 0; !all_done(); ++turn) {
      // Trouble ends after a while, so that the schedule does.
      for (Running& r : running_) {
        if (turn > 60 || !random_.Chance(0.08)) continue;
        if (random_.Chance(0.5)) {
          Preempt(r);
        } else {
          HandOver(r);
        }
      }
      for (Node* node : nodes_) {
        if (!Step(*node)) return false;
      }
    }
    return true;
  }
  const std::string& what() const { return what_; }

 private:
  void Preempt(Running& r) {
    for (const BlockIndex block : r.table) r.node->Drop(block);
    r.table.clear();
    r.computed = 0;
    if (random_.Chance(0.3)) r.node = nodes_[random_.Below(nodes_.size())];
    if (random_.Chance(0.7)) StartWarm(r);
  }

  // Shares the full blocks of the common prefix that another sequence of the node has.
  void StartWarm(Running& r) {
    for (const Running& other : running_) {
      if (&other == &r || other.node != r.node) continue;
      const uint32_t shared = std::min(other.computed, common_) / kBlockTokens;
      if (shared == 0) continue;
      r.table.assign(other.table.begin(), other.table.begin() + shared);
      for (const BlockIndex block : r.table) ++r.node->readers[block];
      r.computed = shared * kBlockTokens;
      return;
    }
  }

  void HandOver(Running& r) {
    Node* target = nodes_[random_.Below(nodes_.size())];
    std::vector<BlockIndex> table;
    for (const BlockIndex block : r.table) {
      table.push_back(target->Take());
      for (uint32_t layer = 0; layer < r.node->memory.pool.layout.layers; ++layer) {
        std::memcpy(target->memory.pool.at(layer, table.back()),
                    r.node->memory.pool.at(layer, block), target->memory.pool.layout.block_bytes());
      }
    }
    for (const BlockIndex block : r.table) r.node->Drop(block);
    r.table = std::move(table);
    r.node = target;
  }

  uint32_t DrawChunk(const Running& r) {
    const auto left = static_cast<uint32_t>(r.expected->tokens.size()) - r.computed;
    switch (random_.Below(4)) {
      case 0:
        return 1;
      case 1:
        return static_cast<uint32_t>(random_.Between(1, std::min(left, 20u)));
      case 2:
        return static_cast<uint32_t>(random_.Between(1, left));
      default:
        return std::min(left, 64u);
    }
  }

  bool Step(Node& node) {
    std::vector<Running*> in;
    for (Running& r : running_) {
      if (r.node == &node && !r.done() && random_.Chance(0.7)) in.push_back(&r);
    }
    for (size_t i = in.size(); i > 1; --i) std::swap(in[i - 1], in[random_.Below(i)]);
    std::vector<ForwardSlice> slices;
    for (Running* r : in) {
      const uint32_t chunk = DrawChunk(*r);
      while (r->table.size() < BlocksFor(r->computed + chunk)) r->table.push_back(node.Take());
      const auto logits = static_cast<ForwardSlice::Logits>(random_.Below(3));
      slices.push_back({absl::MakeConstSpan(r->expected->tokens).subspan(r->computed, chunk),
                        r->computed, r->table, logits});
    }
    node.forward->Run(slices, node.memory.pool, {}, logits_);
    size_t row = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const auto count = static_cast<uint32_t>(slices[i].tokens.size());
      uint32_t wanted = slices[i].logits == ForwardSlice::Logits::kAll ? count : 1;
      if (slices[i].logits == ForwardSlice::Logits::kNone) wanted = 0;
      for (uint32_t w = count - wanted; w < count; ++w) {
        if (!Check(*in[i], in[i]->computed + w, row++, slices)) return false;
      }
      in[i]->computed += count;
    }
    return true;
  }

  bool Check(const Running& r, uint32_t position, size_t row,
             const std::vector<ForwardSlice>& slices) {
    const uint32_t vocab = r.node->forward->spec().vocab;
    const auto logits = absl::MakeConstSpan(logits_).subspan(row * vocab, vocab);
    if (HashRow(logits) == r.expected->rows[position]) return true;
    what_ = "position " + std::to_string(position) + " in a step of";
    for (const ForwardSlice& slice : slices) {
      what_ +=
          " [" + std::to_string(slice.position) + ", +" + std::to_string(slice.tokens.size()) + ")";
    }
    return false;
  }

  Random& random_;
  const std::vector<Node*> nodes_;
  std::vector<Running> running_;
  const uint32_t common_;
  std::vector<float> logits_;
  std::string what_;
};

struct Engines {
  std::unique_ptr<Forward> alone, first, second;
};

Engines MakeEngines(const ModelWeights& weights, Isa isa, uint32_t first, uint32_t second) {
  Engines engines;
  const auto make = [&](uint32_t threads) {
    auto forward = Forward::Create(weights, {.threads = threads, .isa = isa});
    REQUIRE(forward.status().ToString() == "OK");
    return *std::move(forward);
  };
  engines.alone = make(1);
  engines.first = make(first);
  engines.second = make(second);
  return engines;
}

// Empty, or what was different.
std::string RunSchedule(Engines& engines, KvType type, uint32_t length_max, Random& random) {
  const auto common = static_cast<uint32_t>(random.Chance(0.6) ? random.Between(1, 80) : 0);
  const uint32_t vocab = engines.alone->spec().vocab;
  std::vector<Expected> expected = DrawSequences(random, vocab, length_max, common);
  uint32_t blocks = 8;
  for (Expected& one : expected) {
    RunAlone(*engines.alone, type, one);
    blocks += 2 * BlocksFor(one.tokens.size());
  }
  Node first(engines.first.get(), type, blocks, random);
  Node second(engines.second.get(), type, blocks, random);
  std::vector<Running> running;
  for (const Expected& one : expected) {
    running.push_back({.expected = &one, .node = random.Chance(0.5) ? &first : &second});
  }
  Schedule schedule(random, {&first, &second}, std::move(running), common);
  return schedule.Run() ? std::string() : schedule.what();
}

TEST_CASE("K8: any schedule gives each row the bits that it gets alone") {
  const std::vector<Isa> machines = Machines();
  const std::vector<KvType> types(std::begin(kKvTypes), std::end(kKvTypes));
  const uint64_t first = FromEnvironment("BATON_K8_SEED", 1);
  const uint64_t count = FromEnvironment("BATON_K8_SCHEDULES", 48);
  for (uint64_t seed = first; seed < first + count; ++seed) {
    // Neighbouring seeds cover all pairs of instruction set and KV type.
    const Isa isa = machines[seed % machines.size()];
    const KvType type = types[seed / machines.size() % types.size()];
    Random random(seed);
    const RandomModel model = DrawModel(random, isa);
    Engines engines = MakeEngines(model.weights, isa, 1 + static_cast<uint32_t>(random.Below(2)),
                                  1 + static_cast<uint32_t>(random.Below(4)));
    const std::string what = RunSchedule(engines, type, isa == Isa::kScalar ? 100 : 400, random);
    INFO("BATON_K8_SEED=" << seed << " " << engines.alone->isa_name() << " " << KvTypeName(type));
    if (!what.empty()) FAIL_CHECK(what);
  }
}

TEST_CASE("K8: the same for the default model") {
  const auto file =
      Gguf::Open(std::string(BATON_SOURCE_DIR) + "/models/smollm2-135m-instruct-q4_1.gguf");
  if (!file.ok()) {
    WARN("SKIPPED: " << file.status().message() << " (run deploy/get_model.sh)");
    return;
  }
  const auto weights = LoadModel(*file);
  REQUIRE(weights.ok());
  const uint64_t first = FromEnvironment("BATON_K8_SEED", 1);
  const uint64_t count = FromEnvironment("BATON_K8_SCHEDULES", 20) / 20;  // each takes seconds
  for (const Isa isa : Machines()) {
    if (isa == Isa::kScalar) continue;  // minutes
    Engines engines = MakeEngines(*weights, isa, 1, 2);
    for (uint64_t seed = first; seed < first + count; ++seed) {
      Random random(seed);
      const KvType type = kKvTypes[random.Below(std::size(kKvTypes))];
      INFO("BATON_K8_SEED=" << seed << " " << engines.alone->isa_name() << " " << KvTypeName(type));
      const std::string what = RunSchedule(engines, type, count == 1 ? 60 : 400, random);
      if (!what.empty()) FAIL_CHECK(what);
    }
  }
}

}  // namespace
}  // namespace baton::engine::cpu
