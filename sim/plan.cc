// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The fields of a plan by name; printing and parsing are loops over them.
#include "sim/plan.h"

#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "sim/faults.h"

namespace baton::sim {
namespace {

struct Field {
  const char* name;
  std::variant<uint32_t*, uint64_t*, bool*, float*, double*, char*, absl::Duration*, Party*> at;
};
using Fields = std::vector<Field>;

Fields FieldsOf(ClusterOptions& o) {
  router::Dispatcher::Options& r = o.router;
  prefill::Options& p = o.prefill_options;
  decode::Options& d = o.decode_options;
  return {{"seed", &o.seed},
          {"frontends", &o.frontends},
          {"prefill", &o.prefill},
          {"decode", &o.decode},
          {"prefill_blocks", &o.prefill_blocks},
          {"decode_blocks", &o.decode_blocks},
          {"layers", &o.layers},
          {"kv_scales", &o.kv_scales},
          {"converts", &o.converts},
          {"path", &o.path},
          {"close_fences", &o.close_fences},
          {"several_hosts", &o.several_hosts},
          {"check_one_in", &o.check_one_in},
          {"step", &o.engine.step},
          {"token", &o.engine.token},
          {"context", &o.engine.context_max},
          {"router.colocate_below", &r.colocate_below_tokens},
          {"router.attempts", &r.attempts_max},
          {"router.resume", &r.resume},
          {"router.queue", &r.queue_requests},
          {"router.progress_timeout", &r.progress_timeout},
          {"router.reserving", &r.reserving_max},
          {"prefill.chunk", &p.chunk_tokens},
          {"prefill.pipelining", &p.pipelining},
          {"prefill.sequences", &p.sequences_max},
          {"prefill.queue", &p.queue_requests},
          {"prefill.drain", &p.drain_max},
          {"prefill.cache", &p.prefix_cache.enabled},
          {"decode.batch", &d.batch_tokens},
          {"decode.sequences", &d.sequences_max},
          {"decode.queue", &d.queue_requests},
          {"decode.recompute_here", &d.recompute_here_max},
          {"decode.drain", &d.drain_max},
          {"decode.cache", &d.prefix_cache.enabled},
          {"links.delay_min", &o.links.delay_min},
          {"links.delay_max", &o.links.delay_max},
          {"links.jitter", &o.links.write_jitter},
          {"links.late_chance", &o.links.late_chance},
          {"links.late_max", &o.links.late_max},
          {"calls.delay_min", &o.calls.delay_min},
          {"calls.delay_max", &o.calls.delay_max},
          {"clocks.offset_max", &o.clocks.offset_max},
          {"clocks.drift_ppm_max", &o.clocks.drift_ppm_max}};
}

Fields FieldsOf(PlannedRequest& r) {
  return {{"at", &r.at},
          {"prompt", &r.ask.prompt_tokens},
          {"new", &r.ask.new_tokens},
          {"frontend", &r.ask.frontend},
          {"content", &r.ask.content},
          {"shared", &r.ask.shared_tokens},
          {"extends", &r.extends},
          {"choices", &r.ask.choices},
          {"temperature", &r.ask.temperature},
          {"stop_ids", &r.ask.stop_ids},
          {"deadline", &r.ask.deadline},
          {"cancel_after", &r.ask.cancel_after},
          {"cancel_at", &r.ask.cancel_at},
          {"complete_at", &r.ask.complete_at},
          {"reads_every", &r.ask.reads_every}};
}

Fields FieldsOf(Fault& f) {
  return {{"who", &f.who},           {"whom", &f.whom},   {"at", &f.at},
          {"at_event", &f.at_event}, {"lasts", &f.lasts}, {"how", &f.how}};
}

struct Shown {
  std::string operator()(const uint32_t* v) const { return absl::StrCat(*v); }
  std::string operator()(const uint64_t* v) const { return absl::StrCat(*v); }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const float* v) const { return absl::StrFormat("%.9g", *v); }
  std::string operator()(const double* v) const { return absl::StrFormat("%.17g", *v); }
  std::string operator()(const char* v) const { return std::string(1, *v); }
  std::string operator()(const absl::Duration* v) const { return absl::FormatDuration(*v); }
  std::string operator()(const Party* v) const {
    return absl::StrCat(std::string(1, v->role), v->index);
  }
};

struct Taken {
  absl::string_view text;
  bool operator()(uint32_t* v) const { return absl::SimpleAtoi(text, v); }
  bool operator()(uint64_t* v) const { return absl::SimpleAtoi(text, v); }
  bool operator()(bool* v) const { return absl::SimpleAtob(text, v); }
  bool operator()(float* v) const { return absl::SimpleAtof(text, v); }
  bool operator()(double* v) const { return absl::SimpleAtod(text, v); }
  bool operator()(char* v) const {
    if (text.size() != 1) return false;
    *v = text[0];
    return true;
  }
  bool operator()(absl::Duration* v) const { return absl::ParseDuration(text, v); }
  bool operator()(Party* v) const {
    if (text.size() < 2 || absl::string_view("fpd").find(text[0]) == text.npos) return false;
    v->role = text[0];
    return absl::SimpleAtoi(text.substr(1), &v->index);
  }
};

// Values that differ from `standard`'s.
template <typename Thing>
std::string Line(absl::string_view word, Thing thing, Thing standard) {
  std::string line(word);
  const Fields fields = FieldsOf(thing), defaults = FieldsOf(standard);
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string shown = std::visit(Shown{}, fields[i].at);
    if (shown == std::visit(Shown{}, defaults[i].at)) continue;
    absl::StrAppend(&line, " ", fields[i].name, "=", shown);
  }
  return line + "\n";
}

absl::Status TakeWords(absl::Span<const absl::string_view> words, const Fields& fields) {
  for (const absl::string_view word : words) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    bool taken = false;
    for (const Field& field : fields) {
      if (pair.first == field.name) taken = std::visit(Taken{pair.second}, field.at);
    }
    if (!taken) return absl::InvalidArgumentError(absl::StrCat("plan: '", word, "'"));
  }
  return absl::OkStatus();
}

absl::Status TakeLine(absl::string_view line, Plan& plan) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.empty() || words[0][0] == '#') return absl::OkStatus();
  const absl::Span<const absl::string_view> rest = absl::MakeSpan(words).subspan(1);
  if (words[0] == "cluster") return TakeWords(rest, FieldsOf(plan.cluster));
  if (words[0] == "run") return TakeWords(rest, {{"heal_at", &plan.heal_at}});
  if (words[0] == "request") return TakeWords(rest, FieldsOf(plan.requests.emplace_back()));
  if (words[0] == "fault" && !rest.empty() && FindFault(rest[0]) != nullptr) {
    Fault& fault = plan.faults.emplace_back();
    fault.kind = std::string(rest[0]);
    return TakeWords(rest.subspan(1), FieldsOf(fault));
  }
  return absl::InvalidArgumentError(absl::StrCat("plan: '", line, "'"));
}

}  // namespace

std::string Print(const Plan& plan) {
  std::string text = Line<ClusterOptions>("cluster", plan.cluster, {});
  if (plan.heal_at != Plan{}.heal_at) {
    absl::StrAppend(&text, "run heal_at=", absl::FormatDuration(plan.heal_at), "\n");
  }
  for (const PlannedRequest& request : plan.requests) {
    text += Line<PlannedRequest>("request", request, {});
  }
  for (const Fault& fault : plan.faults) {
    text += Line<Fault>(absl::StrCat("fault ", fault.kind), fault, {});
  }
  return text;
}

absl::StatusOr<Plan> ParsePlan(absl::string_view text) {
  Plan plan;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    RETURN_IF_ERROR(TakeLine(line, plan));
  }
  return plan;
}

absl::Status CheckPlan(const Plan& plan) {
  const ClusterOptions& o = plan.cluster;
  const auto need = [](bool holds, const char* what) {
    return holds ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrCat("plan: ", what));
  };
  RETURN_IF_ERROR(need(o.frontends > 0 && o.decode > 0, "a front end and a decode at least"));
  RETURN_IF_ERROR(need(o.prefill_blocks > 0 && o.decode_blocks > 0 && o.layers > 0, "no memory"));
  RETURN_IF_ERROR(need(o.path == 'A' || o.path == 'B', "path is A or B"));
  RETURN_IF_ERROR(need(o.path == 'B' || o.close_fences || !o.several_hosts,
                       "path A on several hosts needs close_fences"));
  RETURN_IF_ERROR(need(o.links.delay_min <= o.links.delay_max, "links.delay_min is the smaller"));
  RETURN_IF_ERROR(need(o.calls.delay_min <= o.calls.delay_max, "calls.delay_min is the smaller"));
  RETURN_IF_ERROR(need(o.router.attempts_max > 0 && o.router.reserving_max > 0, "router limits"));
  RETURN_IF_ERROR(need(o.prefill_options.chunk_tokens > 0 &&
                           o.prefill_options.chunk_tokens % kBlockTokens == 0 &&
                           o.prefill_options.sequences_max > 0,
                       "prefill limits"));
  RETURN_IF_ERROR(need(o.decode_options.batch_tokens > 0 && o.decode_options.sequences_max > 0,
                       "decode limits"));
  for (const PlannedRequest& request : plan.requests) {
    RETURN_IF_ERROR(need(request.ask.frontend < o.frontends, "no such front end"));
    RETURN_IF_ERROR(need(request.ask.prompt_tokens > 0 && request.ask.new_tokens > 0 &&
                             request.ask.choices > 0 && request.at >= absl::ZeroDuration(),
                         "a request asks for something"));
  }
  for (const Fault& fault : plan.faults) {
    const FaultKind& kind = *FindFault(fault.kind);
    RETURN_IF_ERROR(need(fault.kind != "damage_link" || o.check_one_in == 1,
                         "damage_link needs check_one_in=1"));
    RETURN_IF_ERROR(
        need(absl::string_view(kind.who).find(fault.who.role) != absl::string_view::npos &&
                 fault.who.index < o.count(fault.who.role),
             "no such party"));
    if (kind.whom[0] == '\0') continue;
    RETURN_IF_ERROR(
        need(absl::string_view(kind.whom).find(fault.whom.role) != absl::string_view::npos &&
                 fault.whom.index < o.count(fault.whom.role),
             "no such other party"));
  }
  return absl::OkStatus();
}

}  // namespace baton::sim
