// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/convert.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/worker.pb.h"

namespace baton::server {
namespace {

namespace pb = worker::v1;

constexpr int64_t kRemainingMax = int64_t{366} * 24 * 3600 * 1000000000;
constexpr int kStopIdsMax = 1024;
constexpr int kLogitBiasMax = 4096;
constexpr int kTicketBytesMax = 16 << 20;
constexpr int kLinksMax = 4096;
constexpr int kAlternativesMax = 21;
constexpr size_t kTextMax = 4096;

template <typename... Part>
absl::Status Invalid(const Part&... part) {
  return absl::InvalidArgumentError(absl::StrCat(part...));
}

// ── to protobuf ─────────────────────────────────────────────────────────────────────

void PutAttempt(const AttemptId& from, pb::AttemptId* to) {
  to->set_frontend(from.request.frontend.value());
  to->set_request(from.request.number);
  to->set_attempt(from.attempt);
}

void PutRef(const WorkerRef& from, pb::WorkerRef* to) {
  to->set_worker(from.worker);
  to->set_incarnation(from.incarnation.value());
}

void PutSampling(const SamplingParams& from, pb::Sampling* to) {
  to->set_temperature(from.temperature);
  to->set_top_p(from.top_p);
  to->set_top_k(from.top_k);
  to->set_min_p(from.min_p);
  to->set_repetition_penalty(from.repetition_penalty);
  to->set_presence_penalty(from.presence_penalty);
  to->set_frequency_penalty(from.frequency_penalty);
  to->set_seed(from.seed);
  to->set_choice(from.choice);
  to->set_logprobs(from.logprobs);
  for (const auto& [id, bias] : from.logit_bias) (*to->mutable_logit_bias())[id] = bias;
}

void PutSequence(const Sequence& from, pb::Sequence* to) {
  to->mutable_prompt()->Add(from.prompt.begin(), from.prompt.end());
  to->mutable_outputs()->Add(from.outputs.begin(), from.outputs.end());
  to->set_remaining_tokens(from.remaining_tokens);
  to->set_min_tokens(from.min_tokens);
  to->mutable_stop_ids()->Add(from.stop_ids.begin(), from.stop_ids.end());
  PutSampling(from.sampling, to->mutable_sampling());
  to->set_cache_salt(from.cache_salt);
}

void PutStats(const PromptStats& from, pb::PromptStats* to) {
  to->set_pushed(from.pushed);
  to->set_cached_tokens(from.cached_tokens);
  to->set_computed_tokens(from.computed_tokens);
  to->set_kv_bytes(from.kv_bytes);
  to->set_kv_blocks(from.kv_blocks);
  to->set_transport(from.transport);
  to->set_queued_ns(absl::ToInt64Nanoseconds(from.queued));
  to->set_compute_ns(absl::ToInt64Nanoseconds(from.compute));
  to->set_transfer_ns(absl::ToInt64Nanoseconds(from.transfer));
  to->set_exposed_ns(absl::ToInt64Nanoseconds(from.exposed));
  to->set_predicted_ns(absl::ToInt64Nanoseconds(from.predicted));
}

struct PutToWorker {
  pb::ToWorker* to;
  void operator()(const Reserve& from) const {
    pb::Reserve* reserve = to->mutable_reserve();
    PutAttempt(from.attempt, reserve->mutable_attempt());
    reserve->set_decode(from.decode.value());
    PutSequence(from.sequence, reserve->mutable_sequence());
    reserve->set_remaining_ns(absl::ToInt64Nanoseconds(from.remaining));
    if (from.writer.has_value()) PutRef(*from.writer, reserve->mutable_writer());
    reserve->set_colocate_below(from.colocate_below);
  }
  void operator()(const Revoke&) const { to->mutable_revoke(); }
  void operator()(const Prefill& from) const {
    pb::Prefill* prefill = to->mutable_prefill();
    PutAttempt(from.attempt, prefill->mutable_attempt());
    PutSequence(from.sequence, prefill->mutable_sequence());
    prefill->set_remaining_ns(absl::ToInt64Nanoseconds(from.remaining));
    prefill->set_ticket(from.ticket.data(), from.ticket.size());
  }
};

struct PutFromWorker {
  pb::FromWorker* to;
  void operator()(const Reserved& from) const {
    pb::Reserved* reserved = to->mutable_reserved();
    reserved->set_cached_tokens(from.cached_tokens);
    reserved->set_uncached_tokens(from.uncached_tokens);
    reserved->set_first_pushed_position(from.first_pushed_position);
    reserved->set_ticket(from.ticket.data(), from.ticket.size());
  }
  void operator()(const PromptStats& from) const { PutStats(from, to->mutable_stats()); }
  void operator()(const Token& from) const {
    pb::Token* token = to->mutable_token();
    token->set_index(from.index);
    token->set_id(from.token.id);
    token->set_logprob(from.token.logprob);
    for (const TokenLogprob& one : from.token.top) {
      pb::TokenLogprob* top = token->add_top();
      top->set_id(one.id);
      top->set_logprob(one.logprob);
    }
  }
  void operator()(const Settled& from) const {
    to->mutable_settled()->set_committed(from.committed);
  }
  void operator()(const Progress& from) const {
    to->mutable_progress()->set_tokens_done(from.tokens_done);
  }
  void operator()(const PrefillDone& from) const {
    PutStats(from.stats, to->mutable_prefill_done()->mutable_stats());
  }
  void operator()(const Finished& from) const {
    to->mutable_finished()->set_reason(static_cast<uint32_t>(from.reason));
  }
  void operator()(const Ended& from) const {
    pb::Ended* ended = to->mutable_ended();
    ended->set_code(static_cast<uint32_t>(from.why.code()));
    ended->set_message(std::string(from.why.message()));
    ended->set_preempted(from.preempted);
  }
};

// ── from protobuf ───────────────────────────────────────────────────────────────────

absl::StatusOr<AttemptId> GetAttempt(const pb::AttemptId& from) {
  if (from.frontend() == 0) return Invalid("attempt.frontend is 0");
  if (from.attempt() == 0) return Invalid("attempt.attempt is 0");
  return AttemptId{{Incarnation(from.frontend()), from.request()}, from.attempt()};
}

absl::StatusOr<WorkerRef> GetRef(const pb::WorkerRef& from) {
  if (from.worker().empty() || from.worker().size() > kTextMax) return Invalid("worker's name");
  if (from.incarnation() == 0) return Invalid("worker's incarnation is 0");
  return WorkerRef{from.worker(), Incarnation(from.incarnation())};
}

absl::Status GetIds(const google::protobuf::RepeatedField<int32_t>& from, const char* field,
                    uint32_t vocab_size, std::vector<TokenId>* to) {
  for (const int32_t id : from) {
    if (id < 0 || (vocab_size > 0 && static_cast<uint32_t>(id) >= vocab_size)) {
      return Invalid(field, ": token id ", id, " is not in the vocabulary");
    }
  }
  to->assign(from.begin(), from.end());
  return absl::OkStatus();
}

absl::StatusOr<SamplingParams> GetSampling(const pb::Sampling& from, uint32_t vocab_size) {
  SamplingParams to;
  to.temperature = from.temperature();
  to.top_p = from.top_p();
  to.top_k = from.top_k();
  to.min_p = from.min_p();
  to.repetition_penalty = from.repetition_penalty();
  to.presence_penalty = from.presence_penalty();
  to.frequency_penalty = from.frequency_penalty();
  to.seed = from.seed();
  to.choice = from.choice();
  to.logprobs = from.logprobs();
  to.logit_bias.assign(from.logit_bias().begin(), from.logit_bias().end());
  std::sort(to.logit_bias.begin(), to.logit_bias.end());
  RETURN_IF_ERROR(CheckSampling(to, vocab_size));
  return to;
}

absl::StatusOr<Sequence> GetSequence(const pb::Sequence& from, const ConvertLimits& limits) {
  Sequence to;
  const uint64_t size = uint64_t(from.prompt_size()) + from.outputs_size();
  if (from.prompt_size() == 0) return Invalid("sequence.prompt is empty");
  if (from.remaining_tokens() == 0) return Invalid("sequence.remaining_tokens is 0");
  if (size + from.remaining_tokens() > limits.sequence_max) {
    return Invalid("sequence: ", size, " + ", from.remaining_tokens(), " tokens exceed ",
                   limits.sequence_max);
  }
  if (from.stop_ids_size() > kStopIdsMax) return Invalid("sequence.stop_ids: too many");
  RETURN_IF_ERROR(GetIds(from.prompt(), "sequence.prompt", limits.vocab_size, &to.prompt));
  RETURN_IF_ERROR(GetIds(from.outputs(), "sequence.outputs", limits.vocab_size, &to.outputs));
  RETURN_IF_ERROR(GetIds(from.stop_ids(), "sequence.stop_ids", limits.vocab_size, &to.stop_ids));
  to.remaining_tokens = from.remaining_tokens();
  to.min_tokens = from.min_tokens();
  ASSIGN_OR_RETURN(to.sampling, GetSampling(from.sampling(), limits.vocab_size));
  to.cache_salt = from.cache_salt();
  return to;
}

absl::StatusOr<absl::Duration> GetRemaining(int64_t nanoseconds) {
  if (nanoseconds <= 0 || nanoseconds > kRemainingMax) {
    return Invalid("remaining_ns: ", nanoseconds, " is out of range");
  }
  return absl::Nanoseconds(nanoseconds);
}

absl::StatusOr<std::vector<uint8_t>> GetTicket(const std::string& from) {
  if (from.size() > kTicketBytesMax) return Invalid("ticket: ", from.size(), " bytes");
  return std::vector<uint8_t>(from.begin(), from.end());
}

absl::StatusOr<PromptStats> GetStats(const pb::PromptStats& from) {
  if (from.transport().size() > kTextMax) return Invalid("stats.transport is too long");
  for (const int64_t time : {from.queued_ns(), from.compute_ns(), from.transfer_ns(),
                             from.exposed_ns(), from.predicted_ns()}) {
    if (time < 0 || time > kRemainingMax) return Invalid("stats: a duration is out of range");
  }
  PromptStats to;
  to.pushed = from.pushed();
  to.cached_tokens = from.cached_tokens();
  to.computed_tokens = from.computed_tokens();
  to.kv_bytes = from.kv_bytes();
  to.kv_blocks = from.kv_blocks();
  to.transport = from.transport();
  to.queued = absl::Nanoseconds(from.queued_ns());
  to.compute = absl::Nanoseconds(from.compute_ns());
  to.transfer = absl::Nanoseconds(from.transfer_ns());
  to.exposed = absl::Nanoseconds(from.exposed_ns());
  to.predicted = absl::Nanoseconds(from.predicted_ns());
  return to;
}

// What is no rate is not known.
double RateOf(double said) { return std::isfinite(said) && said > 0 ? said : 0; }

absl::StatusOr<LinkStatus> GetLink(const pb::LinkStatus& from) {
  LinkStatus to;
  ASSIGN_OR_RETURN(to.peer, GetRef(from.peer()));
  if (from.transport().size() > kTextMax) return Invalid("status.links: transport");
  for (const int64_t time : {from.latency_ns(), from.per_operation_ns()}) {
    if (time < 0 || time > kRemainingMax) return Invalid("status.links: a time is out of range");
  }
  to.transport = from.transport();
  to.cost.latency = absl::Nanoseconds(from.latency_ns());
  to.cost.per_operation = absl::Nanoseconds(from.per_operation_ns());
  to.cost.bandwidth = RateOf(from.bandwidth());
  to.cost.sums_bandwidth = RateOf(from.sums_bandwidth());
  to.in_flight_bytes = from.in_flight_bytes();
  return to;
}

absl::StatusOr<FromWorker> GetToken(const pb::Token& from) {
  if (from.id() < 0) return Invalid("token.id is negative");
  if (from.top_size() > kAlternativesMax) return Invalid("token.top: too many");
  Token to;
  to.index = from.index();
  to.token.id = from.id();
  to.token.logprob = from.logprob();
  for (const pb::TokenLogprob& top : from.top()) {
    if (top.id() < 0) return Invalid("token.top: a negative id");
    to.token.top.push_back({top.id(), top.logprob()});
  }
  return to;
}

absl::StatusOr<FromWorker> GetEnded(const pb::Ended& from) {
  if (from.code() > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return Invalid("ended.code: ", from.code());
  }
  Ended to;
  to.why = absl::Status(static_cast<absl::StatusCode>(from.code()),
                        absl::string_view(from.message()).substr(0, kTextMax));
  to.preempted = from.preempted();
  return to;
}

absl::StatusOr<ToWorker> GetReserve(const pb::Reserve& from, const ConvertLimits& limits) {
  if (from.decode() == 0) return Invalid("reserve.decode: the incarnation is 0");
  Reserve to;
  ASSIGN_OR_RETURN(to.attempt, GetAttempt(from.attempt()));
  to.decode = Incarnation(from.decode());
  ASSIGN_OR_RETURN(to.sequence, GetSequence(from.sequence(), limits));
  ASSIGN_OR_RETURN(to.remaining, GetRemaining(from.remaining_ns()));
  if (from.has_writer()) {
    ASSIGN_OR_RETURN(to.writer, GetRef(from.writer()));
  }
  to.colocate_below = from.colocate_below();
  return to;
}

absl::StatusOr<ToWorker> GetPrefill(const pb::Prefill& from, const ConvertLimits& limits) {
  Prefill to;
  ASSIGN_OR_RETURN(to.attempt, GetAttempt(from.attempt()));
  ASSIGN_OR_RETURN(to.sequence, GetSequence(from.sequence(), limits));
  ASSIGN_OR_RETURN(to.remaining, GetRemaining(from.remaining_ns()));
  ASSIGN_OR_RETURN(to.ticket, GetTicket(from.ticket()));
  return to;
}

}  // namespace

void ToProto(const ToWorker& from, pb::ToWorker* to) { std::visit(PutToWorker{to}, from); }
void ToProto(const FromWorker& from, pb::FromWorker* to) { std::visit(PutFromWorker{to}, from); }

void ToProto(const WorkerStatus& from, pb::WorkerStatus* to) {
  PutRef(from.self, to->mutable_self());
  to->set_role(static_cast<uint32_t>(from.role));
  to->set_ticks(from.ticks);
  to->set_ready(from.ready);
  to->set_draining(from.draining);
  to->set_context_max(from.context_max);
  to->set_model_fingerprint(from.model_fingerprint);
  to->set_blocks_total(from.blocks_total);
  to->set_blocks_available(from.blocks_available);
  to->set_attempts(from.attempts);
  to->set_waiting_tokens(from.waiting_tokens);
  for (const LinkStatus& one : from.links) {
    pb::LinkStatus* link = to->add_links();
    PutRef(one.peer, link->mutable_peer());
    link->set_transport(one.transport);
    link->set_bandwidth(one.cost.bandwidth);
    link->set_latency_ns(absl::ToInt64Nanoseconds(one.cost.latency));
    link->set_per_operation_ns(absl::ToInt64Nanoseconds(one.cost.per_operation));
    link->set_sums_bandwidth(one.cost.sums_bandwidth);
    link->set_in_flight_bytes(one.in_flight_bytes);
  }
  to->set_kv_layers(from.kv_layers);
  to->set_kv_block_bytes(from.kv_block_bytes);
  to->set_prompt_tokens_per_second(from.prompt_tokens_per_second);
}

absl::StatusOr<ToWorker> FromProto(const pb::ToWorker& from, const ConvertLimits& limits) {
  switch (from.kind_case()) {
    case pb::ToWorker::kReserve:
      return GetReserve(from.reserve(), limits);
    case pb::ToWorker::kRevoke:
      return Revoke{};
    case pb::ToWorker::kPrefill:
      return GetPrefill(from.prefill(), limits);
    case pb::ToWorker::KIND_NOT_SET:
      break;
  }
  return Invalid("a message of no known kind");
}

absl::StatusOr<FromWorker> FromProto(const pb::FromWorker& from) {
  switch (from.kind_case()) {
    case pb::FromWorker::kReserved: {
      Reserved to{from.reserved().cached_tokens(),
                  from.reserved().uncached_tokens(),
                  from.reserved().first_pushed_position(),
                  {}};
      ASSIGN_OR_RETURN(to.ticket, GetTicket(from.reserved().ticket()));
      return to;
    }
    case pb::FromWorker::kStats:
      return GetStats(from.stats());
    case pb::FromWorker::kToken:
      return GetToken(from.token());
    case pb::FromWorker::kSettled:
      return Settled{from.settled().committed()};
    case pb::FromWorker::kProgress:
      return Progress{from.progress().tokens_done()};
    case pb::FromWorker::kPrefillDone: {
      PrefillDone to;
      ASSIGN_OR_RETURN(to.stats, GetStats(from.prefill_done().stats()));
      return to;
    }
    case pb::FromWorker::kFinished:
      if (from.finished().reason() > 1) return Invalid("finished.reason");
      return Finished{static_cast<Finished::Reason>(from.finished().reason())};
    case pb::FromWorker::kEnded:
      return GetEnded(from.ended());
    case pb::FromWorker::KIND_NOT_SET:
      break;
  }
  return Invalid("a message of no known kind");
}

absl::StatusOr<WorkerStatus> FromProto(const pb::WorkerStatus& from) {
  WorkerStatus to;
  ASSIGN_OR_RETURN(to.self, GetRef(from.self()));
  if (from.role() != static_cast<uint32_t>(Role::kPrefill) &&
      from.role() != static_cast<uint32_t>(Role::kDecode)) {
    return Invalid("status.role: ", from.role());
  }
  if (from.links_size() > kLinksMax) return Invalid("status.links: too many");
  to.role = static_cast<Role>(from.role());
  to.ticks = from.ticks();
  to.ready = from.ready();
  to.draining = from.draining();
  to.context_max = from.context_max();
  to.model_fingerprint = from.model_fingerprint();
  to.blocks_total = from.blocks_total();
  to.blocks_available = from.blocks_available();
  to.attempts = from.attempts();
  to.waiting_tokens = from.waiting_tokens();
  for (const pb::LinkStatus& one : from.links()) {
    ASSIGN_OR_RETURN(LinkStatus link, GetLink(one));
    to.links.push_back(std::move(link));
  }
  to.kv_layers = from.kv_layers();
  to.kv_block_bytes = from.kv_block_bytes();
  to.prompt_tokens_per_second = RateOf(from.prompt_tokens_per_second());
  return to;
}

absl::Status CheckSampling(const SamplingParams& params, uint32_t vocab_size) {
  auto in = [](float value, float low, float high) { return value >= low && value <= high; };
  if (!in(params.temperature, 0, 2)) return Invalid("temperature must be from 0 to 2");
  if (!(params.top_p > 0 && params.top_p <= 1)) return Invalid("top_p must be above 0, up to 1");
  if (params.top_k < 0) return Invalid("top_k must be 0 (off) or more");
  if (!in(params.min_p, 0, 1)) return Invalid("min_p must be from 0 to 1");
  if (!(params.repetition_penalty > 0 && params.repetition_penalty <= 100)) {
    return Invalid("repetition_penalty must be above 0, up to 100");
  }
  if (!in(params.presence_penalty, -2, 2)) return Invalid("presence_penalty must be from -2 to 2");
  if (!in(params.frequency_penalty, -2, 2)) {
    return Invalid("frequency_penalty must be from -2 to 2");
  }
  if (params.logprobs < -1 || params.logprobs > 20) return Invalid("logprobs must be from 0 to 20");
  if (params.logit_bias.size() > kLogitBiasMax) return Invalid("logit_bias has too many entries");
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || (vocab_size > 0 && static_cast<uint32_t>(id) >= vocab_size)) {
      return Invalid("logit_bias: token id ", id, " is not in the vocabulary");
    }
    if (!in(bias, -100, 100)) return Invalid("logit_bias: values must be from -100 to 100");
  }
  return absl::OkStatus();
}

}  // namespace baton::server
