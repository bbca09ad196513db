// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// UcxTransport keeps the contract of every Transport, on both data paths, with the writer in
// another process that is stopped, woken and killed for real.
#include <csignal>
#include <cstring>
#include <memory>

#include "tests/kv_transfer/transport_contract.h"
#include "tests/kv_transfer_ucx/forked_writer.h"
#include "tests/kv_transfer_ucx/relay.h"
#include "tests/kv_transfer_ucx/transport_pair.h"

namespace baton::kv {
namespace {

class UcxPair final : public contract::TransportPair {
 public:
  explicit UcxPair(TransportChoice choice, const Place& place = {})
      : writer_(WriterTo(choice, place)),
        owner_options_(OwnerOptions(choice, SmallLayout(12), place)) {
    StartOwner();
    owner_options_.listen = absl::StrCat(place.host, ":", owner_->port());
    relay_ = std::make_unique<Relay>(owner_->port(), place.host);
    writer_.Start(relay_->port());
  }

  OwnerTransport& owner() override { return *owner_; }
  WriterTransport& writer() override { return writer_; }
  Layout owner_layout() const override { return owner_options_.layout; }
  Layout writer_layout() const override { return SmallLayout(9); }
  uint8_t* owner_pool() override { return owner_->PoolBase(); }
  uint8_t* writer_pool() override { return writer_.pool(); }
  void Step() override { absl::SleepFor(absl::Milliseconds(2)); }
  int steps_in_30_seconds() const override { return 15000; }

  bool Cause(contract::Fault fault) override {
    switch (fault) {
      case contract::Fault::kBreakLink:
        relay_->Break();
        break;
      case contract::Fault::kStopWriter:
        writer_.Signal(SIGSTOP);
        break;
      case contract::Fault::kWakeWriter:
        writer_.Signal(SIGCONT);
        break;
      case contract::Fault::kKillWriter:
        writer_.Kill();
        break;
      case contract::Fault::kRestartOwner:
        owner_.reset();
        owner_options_.self.incarnation = Incarnation(owner_options_.self.incarnation.value() + 1);
        StartOwner();
        break;
    }
    return true;
  }

 private:
  static UcxTransportOptions WriterTo(TransportChoice choice, const Place& place) {
    UcxTransportOptions options = WriterOptions(choice, SmallLayout(9), 0, place);
    options.peers[0].address = place.host;
    return options;
  }
  void StartOwner() {
    auto made = UcxTransport::Create(owner_options_);
    INFO(made.status());
    REQUIRE(made.ok());
    owner_ = *std::move(made);
  }

  ForkedWriter writer_;  // first: it forks, and there must be no thread yet
  UcxTransportOptions owner_options_;
  std::unique_ptr<UcxTransport> owner_;
  std::unique_ptr<Relay> relay_;
};

TEST_CASE("memory writes keep the contract of a transport") {
  contract::RunContract([] { return std::make_unique<UcxPair>(TransportChoice::kShm); });
}

TEST_CASE("checked messages over TCP keep the contract of a transport") {
  contract::RunContract([] { return std::make_unique<UcxPair>(TransportChoice::kTcp); });
}

TEST_CASE("checked messages over UCX's TCP keep the contract of a transport") {
  contract::RunContract([] { return std::make_unique<UcxPair>(TransportChoice::kUcxTcp); });
}

// These need an RDMA device: tests/rdma runs them.

const Place kRdmaPlace = {"192.0.2.1", "rxe0:1", /*rdma=*/true};

TEST_CASE("memory writes over RDMA keep the contract of a transport", "[.rdma]") {
  contract::RunContract(
      [] { return std::make_unique<UcxPair>(TransportChoice::kAuto, kRdmaPlace); });
}

// On shared memory they would stay in quarantine until it wakes or dies.
TEST_CASE("K2: a stopped writer's blocks come back by closing its endpoint", "[.rdma]") {
  UcxPair pair(TransportChoice::kAuto, kRdmaPlace);
  contract::Scene scene(pair);
  scene.UntilUp();
  scene.Fill(0, 1);
  scene.Fill(1, 1);
  const Ticket ticket = scene.MakeTicket({2, 5});
  pair.owner().Grant(ticket);
  pair.writer().Accept(ticket);
  scene.WriteAll(ticket);
  scene.writer_answers = false;
  REQUIRE(pair.Cause(contract::Fault::kStopWriter));
  scene.Until("declared dead", [&] { return scene.owner_downs() == 1; });
  pair.owner().Revoke(ticket.key.generation);
  scene.Until("quiet", [&] { return scene.quiets(ticket.key.generation) == 1; });
  std::memset(pair.owner_pool(), 0x3c, pair.owner_layout().pool_bytes());
  const std::vector<uint8_t> before = scene.OwnerBytes();
  REQUIRE(pair.Cause(contract::Fault::kWakeWriter));
  scene.writer_answers = true;
  scene.Until("reborn", [&] { return scene.reborn() == 1; });
  scene.Until("the writes' end", [&] { return scene.done() == scene.writes; });
  CHECK(scene.OwnerBytes() == before);
  scene.Until("up again", [&] { return scene.owner_ups() == 2; });
}

}  // namespace
}  // namespace baton::kv
