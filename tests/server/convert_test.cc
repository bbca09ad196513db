// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/convert.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "proto/worker.pb.h"

namespace baton::server {
namespace {

namespace pb = worker::v1;

Reserve SomeReserve() {
  Reserve reserve;
  reserve.attempt = {{Incarnation(7), 5}, 2};
  reserve.decode = Incarnation(UINT64_MAX - 1);
  reserve.sequence.prompt = {1, 2, 3};
  reserve.sequence.outputs = {4};
  reserve.sequence.remaining_tokens = 10;
  reserve.sequence.sampling.seed = UINT64_MAX;
  reserve.remaining = absl::Seconds(3);
  reserve.writer = WorkerRef{"prefill-0", Incarnation(9)};
  return reserve;
}

TEST_CASE("a Reserve survives the wire", "[convert]") {
  pb::ToWorker wire;
  ToProto(ToWorker(SomeReserve()), &wire);
  const auto back = FromProto(wire, {.vocab_size = 100, .sequence_max = 100});
  REQUIRE(back.ok());
  const auto& reserve = std::get<Reserve>(*back);
  CHECK(reserve.attempt == SomeReserve().attempt);
  CHECK(reserve.decode == SomeReserve().decode);
  CHECK(reserve.sequence == SomeReserve().sequence);
  CHECK(reserve.remaining == absl::Seconds(3));
  CHECK(reserve.writer == SomeReserve().writer);
}

TEST_CASE("a foreign Reserve that breaks a rule is refused by name", "[convert]") {
  const auto refuse = [](void (*spoil)(pb::Reserve*), const char* field) {
    pb::ToWorker wire;
    ToProto(ToWorker(SomeReserve()), &wire);
    spoil(wire.mutable_reserve());
    const auto back = FromProto(wire, {.vocab_size = 100, .sequence_max = 100});
    INFO(field);
    REQUIRE_FALSE(back.ok());
    CHECK(back.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(back.status().message().find(field) != absl::string_view::npos);
  };
  refuse([](pb::Reserve* r) { r->mutable_attempt()->set_frontend(0); }, "frontend");
  refuse([](pb::Reserve* r) { r->clear_decode(); }, "decode");
  refuse([](pb::Reserve* r) { r->mutable_sequence()->clear_prompt(); }, "prompt");
  refuse([](pb::Reserve* r) { r->mutable_sequence()->add_prompt(-1); }, "prompt");
  refuse([](pb::Reserve* r) { r->mutable_sequence()->add_prompt(100); }, "prompt");
  refuse([](pb::Reserve* r) { r->mutable_sequence()->set_remaining_tokens(0); }, "remaining");
  refuse([](pb::Reserve* r) { r->mutable_sequence()->set_remaining_tokens(97); }, "exceed");
  refuse([](pb::Reserve* r) { r->set_remaining_ns(0); }, "remaining_ns");
  refuse([](pb::Reserve* r) { r->set_remaining_ns(INT64_MAX); }, "remaining_ns");
  refuse([](pb::Reserve* r) { r->mutable_writer()->set_incarnation(0); }, "incarnation");
  refuse(
      [](pb::Reserve* r) {
        r->mutable_sequence()->mutable_sampling()->set_temperature(std::nanf(""));
      },
      "temperature");
  refuse([](pb::Reserve* r) { r->mutable_sequence()->mutable_sampling()->set_top_p(0); }, "top_p");
  refuse([](pb::Reserve* r) { r->mutable_sequence()->mutable_sampling()->set_logprobs(99); },
         "logprobs");
}

TEST_CASE("messages of no known kind and broken answers are refused", "[convert]") {
  CHECK_FALSE(FromProto(pb::ToWorker(), ConvertLimits()).ok());
  CHECK_FALSE(FromProto(pb::FromWorker()).ok());
  pb::FromWorker ended;
  ended.mutable_ended()->set_code(99);
  CHECK_FALSE(FromProto(ended).ok());
  pb::FromWorker token;
  token.mutable_token()->set_id(-4);
  CHECK_FALSE(FromProto(token).ok());
  pb::FromWorker stats;
  stats.mutable_stats()->set_compute_ns(-1);
  CHECK_FALSE(FromProto(stats).ok());
  pb::WorkerStatus status;
  CHECK_FALSE(FromProto(status).ok());
}

}  // namespace
}  // namespace baton::server
