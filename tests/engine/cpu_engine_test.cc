// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The engine's own part: events and their order, what is sampled from which row, steps
// that must be refused.  The forward pass is a fake that likes the token after the last one.
#include "engine/cpu_engine.h"

#include <catch2/catch.hpp>
#include <utility>

#include "absl/strings/match.h"

namespace baton::engine {
namespace {

constexpr uint32_t kVocab = 20;

class FakeForward final : public Forward {
 public:
  FakeForward() {
    spec_.layers = 3;
    spec_.kv_heads = 1;
    spec_.head_dim = 2;
    spec_.vocab = kVocab;
    spec_.context = 64;
  }
  const ModelSpec& spec() const override { return spec_; }
  std::string isa_name() const override { return "fake"; }
  uint64_t weight_bytes() const override { return 0; }
  void Run(absl::Span<const ForwardSlice> slices, const KvPool&,
           const std::function<void(uint32_t)>& layer_done, std::vector<float>& logits) override {
    for (uint32_t layer = 0; layer < spec_.layers; ++layer) {
      if (layer_done) layer_done(layer);
    }
    logits.clear();
    for (const ForwardSlice& slice : slices) {
      if (slice.logits == ForwardSlice::Logits::kNone) continue;
      std::vector<float> row(kVocab);
      row[(slice.tokens.back() + 1) % kVocab] = 5;
      logits.insert(logits.end(), row.begin(), row.end());
    }
  }

 private:
  ModelSpec spec_;
};

struct Fixture {
  std::vector<uint8_t> memory = std::vector<uint8_t>(1 << 16);
  Bell bell;
  CpuEngine engine;

  explicit Fixture(std::vector<TokenId> holes = {})
      : engine(std::make_unique<FakeForward>(), Pool(), std::move(holes), &bell) {}
  KvPool Pool() {
    KvPool pool;
    pool.base = memory.data();
    pool.layout = {3, 1, 2, 8, KvType::kF16};
    return pool;
  }
  // Submits and waits, by the bell, until the step is done.
  std::vector<Event> Run(Step step) {
    engine.Submit(std::move(step));
    std::vector<Event> events;
    while (events.empty() || !std::holds_alternative<StepDone>(events.back())) {
      REQUIRE(bell.Wait(absl::Seconds(30)));
      engine.Poll(events);
    }
    return events;
  }
  absl::Status StatusOf(Slice slice) {
    Step step;
    step.slices = {std::move(slice)};
    const std::vector<Event> events = Run(std::move(step));
    REQUIRE(events.size() == 1);
    return std::get<StepDone>(events[0]).status;
  }
};

Slice SliceOf(std::vector<TokenId> tokens, bool sample = true) {
  Slice slice;
  slice.tokens = std::move(tokens);
  slice.block_table = {1, 2};
  if (sample) {
    slice.sample.emplace();
    slice.sample->params.temperature = 0;
  }
  return slice;
}

}  // namespace

TEST_CASE("the engine tells the model's size") {
  Fixture fixture;
  CHECK(fixture.engine.info().layers == 3);
  CHECK(fixture.engine.info().vocab_size == kVocab);
  CHECK(fixture.engine.info().context_max == 64);
}

TEST_CASE("each slice that samples gets the token of its own last row, in slice order") {
  Fixture fixture;
  Step step;
  step.id = 7;
  step.slices = {SliceOf({1, 2}), SliceOf({9}, false), SliceOf({4}), SliceOf({19})};
  for (size_t i = 0; i < step.slices.size(); ++i) step.slices[i].tag = 100 + i;
  const std::vector<Event> events = fixture.Run(std::move(step));
  REQUIRE(events.size() == 1);
  const StepDone& done = std::get<StepDone>(events[0]);
  CHECK(done.step == 7);
  CHECK(done.status.ok());
  REQUIRE(done.sampled.size() == 3);
  CHECK(done.sampled[0].tag == 100);
  CHECK(done.sampled[0].token.id == 3);
  CHECK(done.sampled[1].tag == 102);
  CHECK(done.sampled[1].token.id == 5);
  CHECK(done.sampled[2].token.id == 0);
}

TEST_CASE("layers are reported in order and before the step, if asked for") {
  Fixture fixture;
  Step step;
  step.id = 1;
  step.slices = {SliceOf({1})};
  step.layer_events = true;
  const std::vector<Event> events = fixture.Run(std::move(step));
  REQUIRE(events.size() == 4);
  for (uint32_t layer = 0; layer < 3; ++layer) {
    CHECK(std::get<LayerDone>(events[layer]).step == 1);
    CHECK(std::get<LayerDone>(events[layer]).layer == layer);
  }
}

TEST_CASE("holes and bans are not drawn") {
  Fixture fixture({3});
  Step step;
  step.slices = {SliceOf({2}), SliceOf({4})};
  step.slices[1].sample->banned = {5};
  const std::vector<Event> events = fixture.Run(std::move(step));
  const StepDone& done = std::get<StepDone>(events[0]);
  CHECK(done.sampled[0].token.id == 0);
  CHECK(done.sampled[1].token.id == 0);
}

TEST_CASE("a step that names what does not exist is refused, and the engine lives on") {
  Fixture fixture;
  const auto refused = [&](Slice slice, const char* why) {
    const absl::Status status = fixture.StatusOf(std::move(slice));
    INFO(status.ToString());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(absl::StrContains(status.message(), why));
  };
  refused(SliceOf({}), "no tokens");
  refused(SliceOf({20}), "token 20 in a vocabulary of 20");
  refused(SliceOf({-1}), "token -1");
  Slice far = SliceOf({1});
  far.position = 64;
  refused(far, "position 64 in a context of 64");
  far.position = UINT32_MAX;
  refused(far, "in a context of 64");
  Slice table = SliceOf({1});
  table.position = 32;
  refused(table, "2 blocks for 33 positions");
  Slice block = SliceOf({1});
  block.block_table = {8};
  refused(block, "block 8 in a pool of 8");
  CHECK(fixture.StatusOf(SliceOf({1})).ok());
}

TEST_CASE("an engine may be destroyed at any moment") {
  { Fixture idle; }
  {
    Fixture busy;
    Step step;
    step.slices = {SliceOf({1})};
    busy.engine.Submit(std::move(step));
  }
}

}  // namespace baton::engine
