// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What is predicted of a link against what its pushes take: real sockets, real UCX, two
// transports in one process.  Medians, since the machine may be busy; a whole measurement that was
// disturbed is repeated.
#include <algorithm>
#include <cmath>

#include "base/bell.h"
#include "base/clock.h"
#include "tests/kv_transfer_ucx/transport_pair.h"

namespace baton::kv {
namespace {

constexpr uint32_t kBlocks = 1024;  // of a pool: 192 MiB, of which no cache holds much
constexpr double kWithin = 0.25;
constexpr int kTries = 6;

// As SmolLM2-135M has it, with half its layers: blocks of 12 KiB.
Layout KvLayout() {
  Layout layout = SmallLayout(kBlocks);
  layout.layers = 16;
  layout.kv_heads = 3;
  layout.head_dim = 64;
  return layout;
}

constexpr uint32_t SourceBlock(uint64_t i) { return (37 * i + 5) % kBlocks; }
constexpr uint32_t TargetBlock(uint64_t i) { return (53 * i + 11) % kBlocks; }

absl::Duration MedianOf(std::vector<absl::Duration> times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

class Pushes {
 public:
  Pushes(TransportChoice choice, bool sums) {
    owner_.Open(OwnerOptions(choice, KvLayout()));
    UcxTransportOptions options = WriterOptions(choice, KvLayout(), owner_.transport->port());
    options.check_one_in = sums ? 1 : 0;
    options.bell = &bell_;
    writer_.Open(options);
    for (End* end : {&owner_, &writer_}) {  // a first touch is no part of a push
      std::memset(end->transport->PoolBase(), 1, KvLayout().pool_bytes());
    }
    REQUIRE(WaitFor(absl::Seconds(10), [&] {
      return owner_.Find<PeerUp>() != nullptr && writer_.Find<PeerUp>() != nullptr;
    }));
    probed_ = writer_.Find<PeerUp>()->link;
    sums_ = sums;
  }

  const LinkInfo& probed() const { return probed_; }
  // As the writer knows it now.
  LinkCost cost() const { return writer_.transport->Links().at(0).view.info.cost; }
  LinkWork WorkOf(uint32_t blocks) const {
    const Layout layout = KvLayout();
    const uint64_t runs = uint64_t{blocks} * layout.layers;
    const uint64_t bytes = runs * layout.block_bytes();
    return {.bytes = bytes, .operations = runs, .summed_bytes = sums_ ? bytes : 0};
  }

  // From the first write to the end of the last.  Of blocks that were not touched for long: what a
  // cache still holds of the last push would go faster than any prompt's.
  absl::Duration Push(uint32_t blocks) {
    Ticket ticket;
    ticket.key = {Incarnation(0xd0), Generation(++generation_)};
    ticket.writer = Incarnation(0xf0);
    ticket.attempt = {{Incarnation(1), generation_}, 1};
    ticket.tokens = blocks * kBlockTokens;
    std::vector<WritePiece> pieces;
    for (uint32_t i = 0; i < blocks; ++i) {
      ticket.blocks.push_back(TargetBlock(next_block_ + i));
      pieces.push_back({SourceBlock(next_block_ + i), i});
    }
    next_block_ += blocks;
    owner_.transport->Grant(ticket);
    writer_.transport->Accept(ticket);
    writer_.events.clear();
    const absl::Time start = clock_.Now();
    for (uint32_t layer = 0; layer < KvLayout().layers; ++layer) {
      writer_.transport->Write(WriteId(++last_write_), ticket.key, layer, pieces);
    }
    AwaitDone();
    const absl::Duration took = clock_.Now() - start;
    SendCommit(ticket);
    return took;
  }
  absl::Duration Median(uint32_t blocks, int pushes) {
    std::vector<absl::Duration> times;
    for (int i = 0; i < pushes; ++i) times.push_back(Push(blocks));
    return MedianOf(std::move(times));
  }

 private:
  void AwaitDone() {
    const absl::Time give_up = clock_.Now() + absl::Seconds(20);
    uint32_t done = 0;
    size_t seen = 0;
    while (done < KvLayout().layers) {
      writer_.transport->Poll(writer_.events);
      for (; seen < writer_.events.size(); ++seen) {
        const auto* one = std::get_if<WriteDone>(&writer_.events[seen]);
        if (one == nullptr) continue;
        REQUIRE(one->status.ok());
        ++done;
      }
      if (done == KvLayout().layers) return;
      REQUIRE(clock_.Now() < give_up);
      bell_.Wait(absl::Milliseconds(10));
    }
  }
  void SendCommit(const Ticket& ticket) {
    kv::Commit commit;
    commit.key = ticket.key;
    commit.writer = ticket.writer;
    commit.attempt = ticket.attempt;
    commit.blocks = static_cast<uint32_t>(ticket.blocks.size());
    commit.layers = KvLayout().layers;
    commit.bytes = WorkOf(commit.blocks).bytes;
    commit.first_tokens.emplace_back();
    writer_.transport->SendCommit(commit);
    owner_.events.clear();
    REQUIRE(WaitFor(absl::Seconds(10), [&] { return owner_.Find<CommitArrived>() != nullptr; }));
  }

  const RealClock clock_;
  Bell bell_;  // outlives the writer
  End owner_, writer_;
  LinkInfo probed_;
  bool sums_ = false;
  uint64_t generation_ = 0;
  uint64_t next_block_ = 0;
  uint64_t last_write_ = 0;
};

std::string Describe(const LinkCost& cost) {
  return absl::StrCat("α ", absl::FormatDuration(cost.latency), ", o ",
                      absl::FormatDuration(cost.per_operation), ", β ", cost.bandwidth * 1e-9,
                      " GB/s, sums ", cost.sums_bandwidth * 1e-9, " GB/s");
}

// The ratio of measured to predicted that is farthest from 1, over prompts of 256 to 3,072 tokens.
double Worst(Pushes& pushes, std::string& report) {
  double worst = 1;
  for (const uint32_t blocks : {16u, 48u, 192u}) {
    const absl::Duration predicted = pushes.cost().Predict(pushes.WorkOf(blocks));
    const absl::Duration took = pushes.Median(blocks, 9);
    const double ratio = absl::FDivDuration(took, predicted);
    absl::StrAppend(&report, "\n  ", blocks, " blocks: predicted ", absl::FormatDuration(predicted),
                    ", took ", absl::FormatDuration(took));
    if (std::abs(std::log(ratio)) > std::abs(std::log(worst))) worst = ratio;
  }
  return worst;
}

void PredictionsHold(TransportChoice choice, const std::string& link_class, bool sums) {
  std::string report;
  for (int i = 0; i < kTries; ++i) {
    Pushes pushes(choice, sums);
    REQUIRE(pushes.probed().link_class == link_class);
    absl::StrAppend(&report, "\n probed: ", Describe(pushes.probed().cost));
    const absl::Duration first = pushes.probed().cost.Predict(pushes.WorkOf(48));
    absl::StrAppend(&report, "\n  48 blocks: predicted ", absl::FormatDuration(first), ", took ",
                    absl::FormatDuration(pushes.Median(48, 5)));
    for (const uint32_t blocks : {16u, 96u, 32u, 192u, 24u, 64u, 128u, 48u}) pushes.Push(blocks);
    absl::SleepFor(absl::Milliseconds(120));  // until Links() shows what was learnt
    const double worst = Worst(pushes, report);
    absl::StrAppend(&report, "\n kept fresh: ", Describe(pushes.cost()));
    if (worst < 1 + kWithin && worst > 1 / (1 + kWithin)) {
      WARN(pushes.probed().transport << (sums ? ", sums" : "") << report);
      return;
    }
  }
  FAIL("predictions do not hold:" << report);
}

TEST_CASE("predictions hold on shared memory") {
  PredictionsHold(TransportChoice::kShm, "shm", false);
  PredictionsHold(TransportChoice::kShm, "shm", true);
}

TEST_CASE("predictions hold over TCP sockets") {
  PredictionsHold(TransportChoice::kTcp, "tcp", false);
  PredictionsHold(TransportChoice::kTcp, "tcp", true);
}

TEST_CASE("predictions hold over UCX's TCP") {
  PredictionsHold(TransportChoice::kUcxTcp, "tcp", false);
  PredictionsHold(TransportChoice::kUcxTcp, "tcp", true);
}

}  // namespace
}  // namespace baton::kv
