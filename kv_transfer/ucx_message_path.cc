// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_message_path.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/status_macros.h"

namespace baton::kv {
namespace {

constexpr uint64_t kHeldBytesMax = 4u << 20;  // more than TCP's buffers hold gains nothing

}  // namespace

absl::StatusOr<std::unique_ptr<UcxMessagePath>> UcxMessagePath::Open(
    UcxWorker& worker, absl::Span<const uint8_t> address, absl::Span<const uint8_t> pool,
    absl::Span<uint8_t> probe, PathHost& host) {
  auto path = std::make_unique<UcxMessagePath>(pool, probe, host);
  ASSIGN_OR_RETURN(path->endpoint_, UcxEndpoint::Connect(worker, address));
  return path;
}

void UcxMessagePath::Begin(uint64_t token, absl::Time) {
  token_ = token;
  probe_.Start(token);
}

void UcxMessagePath::SendProbe(const MessageHeader& header, MessageProbe::Pieces payload) {
  std::vector<ucp_dt_iov_t> pieces;
  for (const absl::Span<const uint8_t> piece : payload) {
    // UCX's type for sources is not const; it only reads them.
    pieces.push_back({const_cast<uint8_t*>(piece.data()), piece.size()});
  }
  ++held_;
  endpoint_.Send(kMessageId, Encode(header), pieces, [this](const absl::Status& status) {
    --held_;
    if (!status.ok()) probe_.Fail(status);
  });
}

void UcxMessagePath::OnMessage(const PathMessage& message, absl::Time now) {
  if (!closing_) probe_.OnMessage(message, now);
}

std::string UcxMessagePath::TransportName() const {
  for (const UcxLane& lane : endpoint_.Lanes()) {
    if (!lane.wireup_only) return absl::StrCat("ucx_", lane.transport);
  }
  return "";
}

bool UcxMessagePath::Step(absl::Time) {
  if (closing_) return false;
  if (!endpoint_.failure().ok()) probe_.Fail(endpoint_.failure());
  if (probe_.under_way()) return probe_.Step();
  return StepWrites();
}

void UcxMessagePath::Post(DataWrite write) {
  for (const Copy& copy : write.copies) {
    ENSURE(copy.source_offset + copy.size_bytes <= pool_.size());
  }
  const uint64_t number = write.header.write;
  const bool fresh = active_.emplace(number, Active{std::move(write)}).second;
  ENSURE(fresh);
  unsent_.push_back(number);
}

bool UcxMessagePath::StepWrites() {
  bool sent = false;
  while (!unsent_.empty() && held_bytes_ < kHeldBytesMax) {
    sent = true;
    Active& active = active_.find(unsent_.front())->second;
    if (active.sent + kPayloadBytesMax >= active.write.bytes) unsent_.pop_front();
    SendNext(active);
  }
  return sent;
}

// The next message of the write.  `active` may be gone after it.
void UcxMessagePath::SendNext(Active& active) {
  MessageHeader header{.kind = MessageHeader::Kind::kData, .token = token_};
  const uint64_t number = header.write = active.write.header.write;
  header.offset = active.sent;
  header.total = active.write.bytes;
  if (active.sent == 0) header.data_header = Encode(active.write.header);
  std::vector<ucp_dt_iov_t> pieces;
  uint64_t bytes = 0;
  while (bytes < kPayloadBytesMax && active.copy < active.write.copies.size()) {
    const Copy& copy = active.write.copies[active.copy];
    const uint64_t take = std::min(kPayloadBytesMax - bytes, copy.size_bytes - active.done);
    // UCX's type for sources is not const; it only reads them.
    const uint8_t* from = pool_.data() + copy.source_offset + active.done;
    pieces.push_back({const_cast<uint8_t*>(from), take});
    bytes += take;
    active.done += take;
    if (active.done < copy.size_bytes) continue;
    active.done = 0;
    ++active.copy;
  }
  active.sent += bytes;
  ++active.messages;
  held_bytes_ += bytes;
  ++held_;
  endpoint_.Send(
      kMessageId, Encode(header), pieces,
      [this, number, bytes](const absl::Status& status) { OnSent(number, bytes, status); });
}

void UcxMessagePath::OnSent(uint64_t write, uint64_t bytes, const absl::Status& status) {
  held_bytes_ -= bytes;
  --held_;
  const auto found = active_.find(write);
  Active& active = found->second;
  active.status.Update(status);
  --active.messages;
  if (active.messages > 0 || (active.sent < active.write.bytes && !closing_)) return;
  const absl::Status result = active.status;
  active_.erase(found);
  host_.WriteEnded(write, result);
}

bool UcxMessagePath::busy() const {
  return held_ > 0 || !unsent_.empty() || (closing_ && !closed_) || probe_.under_way();
}

void UcxMessagePath::Close() {
  if (closing_) return;
  closing_ = true;
  const absl::Status why = absl::UnavailableError("the link was closed");
  for (const uint64_t write : std::exchange(unsent_, {})) {
    const auto found = active_.find(write);
    found->second.status.Update(why);
    if (found->second.messages > 0) continue;
    active_.erase(found);
    host_.WriteEnded(write, why);
  }
  endpoint_.Close([this](bool) { closed_ = true; });
}

std::optional<bool> UcxMessagePath::closed() const {
  if (!closed_ || held_ > 0) return std::nullopt;
  return true;
}

}  // namespace baton::kv
