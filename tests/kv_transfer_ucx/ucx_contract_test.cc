// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// UcxTransport keeps the contract of every Transport, on both data paths, with the writer in
// another process that is stopped, woken and killed for real.
#include <csignal>
#include <memory>

#include "tests/kv_transfer/transport_contract.h"
#include "tests/kv_transfer_ucx/forked_writer.h"
#include "tests/kv_transfer_ucx/relay.h"
#include "tests/kv_transfer_ucx/transport_pair.h"

namespace baton::kv {
namespace {

class UcxPair final : public contract::TransportPair {
 public:
  explicit UcxPair(TransportChoice choice)
      : choice_(choice),
        writer_(SmallLayout(9)),
        owner_options_(OwnerOptions(choice, SmallLayout(12))) {
    StartOwner();
    owner_options_.listen = absl::StrCat("127.0.0.1:", owner_->port());
    relay_ = std::make_unique<Relay>(owner_->port());
    writer_.Start(choice, relay_->port());
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
  void StartOwner() {
    auto made = UcxTransport::Create(owner_options_);
    INFO(made.status());
    REQUIRE(made.ok());
    owner_ = *std::move(made);
  }

  const TransportChoice choice_;
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

}  // namespace
}  // namespace baton::kv
