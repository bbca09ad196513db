// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/socket_path.h"

#include <algorithm>
#include <utility>

#include "base/ensure.h"
#include "kv_transfer/socket_connection.h"

namespace baton::kv {
namespace {

constexpr uint64_t kProbeBytes = 512u << 10;
constexpr uint64_t kProbeTag = 0;  // no write's number
constexpr uint64_t kStepBytes = 1u << 20;
constexpr absl::Duration kConnectMax = absl::Seconds(2);

}  // namespace

SocketPath::SocketPath(const SocketAddress& owner, absl::Span<const uint8_t> pool,
                       absl::Span<uint8_t> probe, uint64_t key, SocketPoller& poller,
                       PathHost& host)
    : owner_(owner),
      pool_(pool),
      key_(key),
      poller_(poller),
      host_(host),
      probe_(
          kProbeBytes, probe,
          [this](const MessageHeader& header, MessageProbe::Pieces payload) {
            Queue(header, payload, kProbeTag);
          },
          [] { return "tcp"; }) {}

SocketPath::~SocketPath() {
  for (size_t i = 0; i < flows_.size(); ++i) Poll(i, false);
}

void SocketPath::Begin(uint64_t token, absl::Time now) {
  token_ = token;
  connect_until_ = now + kConnectMax;
  for (size_t i = 0; i < kFlows; ++i) {
    absl::StatusOr<Fd> fd = StartConnect(owner_);
    if (!fd.ok()) return probe_.Fail(fd.status());
    flows_.push_back(Flow{FlowSender(*std::move(fd))});
    Poll(i, true);
  }
}

// Reading is of no interest: an owner says nothing here, and a break shows in both.
void SocketPath::Poll(size_t index, bool want) {
  Flow& flow = flows_[index];
  if (flow.polls == want) return;
  flow.polls = want;
  if (want) {
    poller_.Add(flow.sender.fd(), key_ + index, false, true);
  } else {
    poller_.Remove(flow.sender.fd());
  }
}

bool SocketPath::Handle(const ReadyFd& ready) {
  const uint64_t index = ready.key - key_;
  if (ready.key < key_ || index >= flows_.size() || !flows_[index].polls) return false;
  if (flows_[index].connected) {
    Flush(index);
  } else {
    Connected(index);
  }
  return true;
}

void SocketPath::Connected(size_t index) {
  Flow& flow = flows_[index];
  Poll(index, false);
  const absl::Status connected = ConnectResult(flow.sender.fd());
  if (!connected.ok()) return probe_.Fail(connected);
  flow.connected = true;
  flow.sender.QueuePreamble(token_);
  Flush(index);
  if (++connected_ < kFlows || result().has_value()) return;
  connect_until_ = absl::InfiniteFuture();
  probe_.Start(token_);
}

void SocketPath::OnMessage(const PathMessage& message, absl::Time now) {
  if (!closed_) probe_.OnMessage(message, now);
}

bool SocketPath::Step(absl::Time now) {
  if (closed_) return false;
  if (now >= connect_until_) probe_.Fail(absl::UnavailableError("no answer to a data connection"));
  return probe_.Step();
}

void SocketPath::Queue(const MessageHeader& header,
                       absl::Span<const absl::Span<const uint8_t>> payload, uint64_t tag) {
  size_t best = 0;
  for (size_t i = 1; i < flows_.size(); ++i) {
    if (flows_[i].sender.queued_bytes() < flows_[best].sender.queued_bytes()) best = i;
  }
  flows_[best].sender.Queue(header, payload, tag);
  if (!flows_[best].polls) Flush(best);
}

void SocketPath::Flush(size_t index) {
  Flow& flow = flows_[index];
  sent_.clear();
  const absl::Status flushed = flow.sender.Flush(kStepBytes, sent_);
  for (const uint64_t tag : sent_) {
    if (tag == kProbeTag) continue;
    unsent_.erase(tag);
    host_.WriteEnded(tag, absl::OkStatus());
  }
  if (!flushed.ok()) probe_.Fail(flushed);
  Poll(index, flushed.ok() && flow.sender.queued_bytes() > 0);
}

void SocketPath::Post(DataWrite write) {
  MessageHeader header{.kind = MessageHeader::Kind::kData, .token = token_};
  header.write = write.header.write;
  header.total = write.bytes;
  header.data_header = Encode(write.header);
  ENSURE(header.write != kProbeTag);
  std::vector<absl::Span<const uint8_t>> pieces;
  for (const Copy& copy : write.copies) {
    ENSURE(copy.source_offset + copy.size_bytes <= pool_.size());
    pieces.push_back(pool_.subspan(copy.source_offset, copy.size_bytes));
  }
  const bool fresh = unsent_.insert(header.write).second;
  ENSURE(fresh);
  Queue(header, pieces, header.write);
}

bool SocketPath::busy() const { return probe_.under_way() || !unsent_.empty(); }

void SocketPath::Close() {
  if (closed_) return;
  closed_ = true;
  for (size_t i = 0; i < flows_.size(); ++i) Poll(i, false);
  flows_.clear();
  for (const uint64_t write : std::exchange(unsent_, {})) {
    host_.WriteEnded(write, absl::UnavailableError("the link was closed"));
  }
}

std::optional<bool> SocketPath::closed() const {
  if (!closed_) return std::nullopt;
  return true;
}

}  // namespace baton::kv
