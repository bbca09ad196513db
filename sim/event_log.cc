// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/event_log.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "base/ensure.h"
#include "base/random.h"

namespace baton::sim {
namespace {

constexpr char kText = 't', kNumber = 'n';

// The parts of a message, to wherever they go.
struct Words {
  LogLine& line;

  template <typename... Parts>
  void Say(const Parts&... parts) const {
    (line.Add(parts), ...);
  }

  void operator()(const Reserve& m) const {
    Say("Reserve(", m.attempt.request.number, "/", m.attempt.attempt, ", ",
        m.sequence.prompt.size(), "+", m.sequence.outputs.size(), " tokens");
    if (m.writer) Say(", writer ", m.writer->worker);
    Say(")");
  }
  void operator()(const Revoke&) const { Say("Revoke"); }
  void operator()(const Prefill& m) const {
    Say("Prefill(", m.attempt.request.number, "/", m.attempt.attempt, ", ", m.sequence.size(),
        " tokens)");
  }
  void operator()(const Reserved& m) const {
    Say("Reserved(", m.uncached_tokens, " uncached, ", m.ticket.empty() ? "colocated" : "ticket",
        ")");
  }
  void operator()(const PromptStats& m) const {
    Say("PromptStats(", m.pushed ? "pushed" : "own", ", ", m.computed_tokens, " computed)");
  }
  void operator()(const Token& m) const { Say("Token(", m.index, ": ", m.token.id, ")"); }
  void operator()(const Settled& m) const {
    Say(m.committed ? "Settled(committed)" : "Settled(revoked)");
  }
  void operator()(const Progress&) const { Say("Progress"); }
  void operator()(const PrefillDone&) const { Say("PrefillDone"); }
  void operator()(const Finished&) const { Say("Finished"); }
  void operator()(const Ended& m) const {
    Say("Ended(", m.why.ToString(), m.preempted ? ", preempted)" : ")");
  }
  void operator()(const StreamOpened& m) const {
    Say("#", m.stream.value(), " open ");
    std::visit(*this, m.first);
  }
  void operator()(const StreamMessage& m) const {
    Say("#", m.stream.value(), " ");
    std::visit(*this, m.message);
  }
  void operator()(const StreamClosed& m) const { Say("#", m.stream.value(), " closed"); }
  void operator()(const FrontendAlive&) const { Say("heartbeat"); }
  void operator()(const StartDrain&) const { Say("StartDrain"); }
};

uint64_t HashBytes(absl::string_view bytes, uint64_t hash) {
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t size = std::min<size_t>(8, bytes.size());
    std::memcpy(&word, bytes.data(), size);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
    bytes.remove_prefix(size);
  }
  return hash;
}

}  // namespace

// ── a line ────────────────────────────────────────────────────────────────────────────

void LogLine::Add(absl::string_view text) {
  ENSURE(text.size() <= UINT16_MAX);
  const auto size = static_cast<uint16_t>(text.size());
  char head[1 + sizeof(size)] = {kText};
  std::memcpy(head + 1, &size, sizeof(size));
  bytes_.append(head, sizeof(head));
  bytes_.append(text.data(), text.size());
}

void LogLine::AddNumber(uint64_t number) {
  char value[1 + sizeof(number)] = {kNumber};
  std::memcpy(value + 1, &number, sizeof(number));
  bytes_.append(value, sizeof(value));
}

void LogLine::Add(const WorkerInput& input) { std::visit(Words{*this}, input); }
void LogLine::Add(const WorkerOutput& output) {
  Add("#");
  Add(output.stream.value());
  Add(" ");
  std::visit(Words{*this}, output.message);
}

std::string LogLine::Text() const {
  std::string text;
  for (size_t at = 0; at < bytes_.size();) {
    const char kind = bytes_[at++];
    if (kind == kNumber) {
      uint64_t number = 0;
      std::memcpy(&number, bytes_.data() + at, sizeof(number));
      absl::StrAppend(&text, static_cast<int64_t>(number));
      at += sizeof(number);
    } else {
      uint16_t size = 0;
      std::memcpy(&size, bytes_.data() + at, sizeof(size));
      at += sizeof(size);
      text.append(bytes_, at, size);
      at += size;
    }
  }
  return text;
}

// ── the log ───────────────────────────────────────────────────────────────────────────

EventLog::Line& EventLog::Next(ClientNumber client) {
  Line& line = lines_[count_ % lines_.size()];
  line.when = queue_.Now();
  line.client = client;
  line.values.Clear();
  return line;
}

void EventLog::Close(const Line& line) {
  const int64_t at = absl::ToInt64Nanoseconds(line.when - absl::UnixEpoch());
  hash_ = HashBytes(line.values.bytes(), SplitMix64(hash_ ^ static_cast<uint64_t>(at)));
  ++count_;
}

ClientNumber EventLog::ClientOf(const Sequence& sequence) const {
  const auto it = clients_.find({sequence.sampling.seed, sequence.sampling.choice});
  return it == clients_.end() ? 0 : it->second;
}

void EventLog::Keep(size_t lines_max) {
  lines_.assign(lines_max, {});
  kept_from_ = count_;
}

std::string EventLog::Text(const Line& line) const {
  return absl::StrFormat("%9.3f ms  %s\n",
                         absl::FDivDuration(line.when - absl::UnixEpoch(), absl::Milliseconds(1)),
                         line.values.Text());
}

std::string EventLog::Tail() const {
  std::string text;
  const uint64_t kept = std::min<uint64_t>(count_ - kept_from_, lines_.size());
  for (uint64_t i = count_ - kept; i < count_; ++i) text += Text(lines_[i % lines_.size()]);
  return text;
}

std::string EventLog::About(const std::vector<ClientNumber>& clients, size_t count) const {
  std::vector<const Line*> lines;
  const uint64_t kept = std::min<uint64_t>(count_ - kept_from_, lines_.size());
  for (uint64_t i = count_; i > count_ - kept && lines.size() < count; --i) {
    const Line& line = lines_[(i - 1) % lines_.size()];
    if (std::find(clients.begin(), clients.end(), line.client) != clients.end()) {
      lines.push_back(&line);
    }
  }
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) text += Text(**line);
  return text;
}

}  // namespace baton::sim
