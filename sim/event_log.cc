// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/event_log.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/random.h"

namespace baton::sim {
namespace {

struct Words {
  std::string operator()(const Reserve& m) const {
    return absl::StrFormat("Reserve(%s, %d+%d tokens%s)", Name(m.attempt), m.sequence.prompt.size(),
                           m.sequence.outputs.size(),
                           m.writer ? ", writer " + m.writer->worker : std::string());
  }
  std::string operator()(const Revoke&) const { return "Revoke"; }
  std::string operator()(const Prefill& m) const {
    return absl::StrFormat("Prefill(%s, %d tokens)", Name(m.attempt), m.sequence.size());
  }
  std::string operator()(const Reserved& m) const {
    return absl::StrFormat("Reserved(%d uncached, %s)", m.uncached_tokens,
                           m.ticket.empty() ? "colocated" : "ticket");
  }
  std::string operator()(const PromptStats& m) const {
    return absl::StrFormat("PromptStats(%s, %d computed)", m.pushed ? "pushed" : "own",
                           m.computed_tokens);
  }
  std::string operator()(const Token& m) const {
    return absl::StrFormat("Token(%d: %d)", m.index, m.token.id);
  }
  std::string operator()(const Settled& m) const {
    return m.committed ? "Settled(committed)" : "Settled(revoked)";
  }
  std::string operator()(const Progress&) const { return "Progress"; }
  std::string operator()(const PrefillDone&) const { return "PrefillDone"; }
  std::string operator()(const Finished&) const { return "Finished"; }
  std::string operator()(const Ended& m) const {
    return absl::StrFormat("Ended(%s%s)", m.why.ToString(), m.preempted ? ", preempted" : "");
  }
  std::string operator()(const StreamOpened& m) const {
    return absl::StrFormat("#%d open %s", m.stream.value(), std::visit(*this, m.first));
  }
  std::string operator()(const StreamMessage& m) const {
    return absl::StrFormat("#%d %s", m.stream.value(), std::visit(*this, m.message));
  }
  std::string operator()(const StreamClosed& m) const {
    return absl::StrFormat("#%d closed", m.stream.value());
  }
  std::string operator()(const FrontendAlive&) const { return "heartbeat"; }
  std::string operator()(const StartDrain&) const { return "StartDrain"; }

  static std::string Name(const AttemptId& id) {
    return absl::StrFormat("%d/%d", id.request.number, id.attempt);
  }
};

}  // namespace

void EventLog::AddLine(const std::string& text) {
  std::string line = absl::StrFormat(
      "%9.3f ms  %s", absl::FDivDuration(queue_.Now() - absl::UnixEpoch(), absl::Milliseconds(1)),
      text);
  for (const char c : line) hash_ = SplitMix64(hash_ ^ static_cast<uint8_t>(c));
  ++count_;
  lines_.push_back(std::move(line));
  if (lines_.size() > lines_max_) lines_.pop_front();
}

std::string EventLog::Tail() const { return absl::StrJoin(lines_, "\n"); }

std::string Describe(const WorkerInput& input) { return std::visit(Words{}, input); }
std::string Describe(const WorkerOutput& output) {
  return absl::StrFormat("#%d %s", output.stream.value(), std::visit(Words{}, output.message));
}

}  // namespace baton::sim
