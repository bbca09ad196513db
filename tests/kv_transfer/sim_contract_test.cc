// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// SimTransport keeps the transport's contract, on each kind of data path, for many seeds.
#include <catch2/catch.hpp>
#include <memory>

#include "base/random.h"
#include "sim/sim_transport.h"
#include "tests/kv_transfer/transport_contract.h"

namespace baton::sim {
namespace {

using kv::contract::Fault;

constexpr kv::Layout Pool(uint32_t blocks) {
  return {.layers = 3, .kv_heads = 2, .head_dim = 4, .block_tokens = 16, .blocks = blocks};
}

// Rows in an order that no owner has.
kv::Layout OtherPool(uint32_t blocks) {
  kv::Layout layout = Pool(blocks);
  layout.kv_order = kv::KvOrder::kInner;
  layout.row_order = kv::RowOrder::kTokenMajor;
  return layout;
}

class SimPair final : public kv::contract::TransportPair {
 public:
  SimPair(uint64_t seed, const SimPairConfig& config, bool converts)
      : random_(seed), writer_layout_(converts ? OtherPool(8) : Pool(8)) {
    SimProcessConfig owner{.worker = "decode-0", .role = Role::kDecode, .layout = Pool(12)};
    SimProcessConfig writer{
        .worker = "prefill-0", .role = Role::kPrefill, .layout = writer_layout_};
    owner.owner.link.pair.allow_conversion = writer.writer.link.pair.allow_conversion = converts;
    writer.writer.staging = {.piece_bytes = 2 * Pool(8).block_bytes(), .per_link = 1};
    owner_ = fabric_.Add(owner);
    writer_ = fabric_.Add(writer);
    fabric_.Pair(writer_, owner_, config);
  }
  kv::OwnerTransport& owner() override { return fabric_.owner(owner_); }
  kv::WriterTransport& writer() override { return fabric_.writer(writer_); }
  kv::Layout owner_layout() const override { return Pool(12); }
  kv::Layout writer_layout() const override { return writer_layout_; }
  uint8_t* owner_pool() override { return fabric_.pool(owner_); }
  uint8_t* writer_pool() override { return fabric_.pool(writer_); }
  void Step() override { queue_.RunFor(absl::Microseconds(2500)); }
  int steps_in_30_seconds() const override { return 12000; }
  bool Cause(Fault fault) override {
    switch (fault) {
      case Fault::kBreakLink:
        fabric_.Break(writer_, owner_);
        break;
      case Fault::kStopWriter:
        fabric_.Pause(writer_);
        break;
      case Fault::kWakeWriter:
        fabric_.Resume(writer_);
        break;
      case Fault::kKillWriter:
        fabric_.Crash(writer_);
        break;
      case Fault::kRestartOwner:
        fabric_.Crash(owner_);
        fabric_.Restart(owner_);
        break;
    }
    return true;
  }

 private:
  Random random_;
  const kv::Layout writer_layout_;
  EventQueue queue_;
  SimFabric fabric_{random_, queue_, {.late_chance = 0.2, .late_max = absl::Milliseconds(100)}};
  SimFabric::Index owner_ = 0, writer_ = 0;
};

void RunOn(const SimPairConfig& config, bool converts = false) {
  for (uint64_t seed = 1; seed <= (converts ? 20 : 50); ++seed) {
    DYNAMIC_SECTION("seed " << seed) {
      kv::contract::RunContract([&] { return std::make_unique<SimPair>(seed, config, converts); });
    }
  }
}

TEST_CASE("SimTransport keeps the contract with memory writes (path A)", "[sim][kv]") {
  RunOn({.path = 'A'});
}

TEST_CASE("SimTransport keeps the contract where a closed endpoint is the fence", "[sim][kv]") {
  RunOn({.path = 'A', .close_fences = true});
}

TEST_CASE("SimTransport keeps the contract with checked messages (path B)", "[sim][kv]") {
  RunOn({.path = 'B'});
}

TEST_CASE("SimTransport keeps the contract where memory writes are converted", "[sim][kv]") {
  RunOn({.path = 'A'}, true);
}

TEST_CASE("SimTransport keeps the contract where checked messages are converted", "[sim][kv]") {
  RunOn({.path = 'B'}, true);
}

}  // namespace
}  // namespace baton::sim
