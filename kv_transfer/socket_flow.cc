// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/socket_flow.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/status_macros.h"

namespace baton::kv {
namespace {

constexpr size_t kPiecesMax = 64;  // of one system call
constexpr size_t kDropBytes = 64u << 10;

absl::Status Broken() {
  return absl::UnavailableError(absl::StrCat("a data connection broke: ", std::strerror(errno)));
}

// The first `bytes` of spans[next…] are done.
template <typename Byte>
void Advance(std::vector<absl::Span<Byte>>& spans, size_t& next, uint64_t& bytes) {
  while (next < spans.size() && bytes >= spans[next].size()) bytes -= spans[next++].size();
  if (bytes == 0 || next == spans.size()) return;
  spans[next].remove_prefix(bytes);
  bytes = 0;
}

}  // namespace

// ── sender ──────────────────────────────────────────────────────────────────────────

void FlowSender::Push(Message message) {
  message.pieces.insert(message.pieces.begin(), absl::MakeConstSpan(message.head));
  for (const auto& piece : message.pieces) queued_bytes_ += piece.size();
  queue_.push_back(std::move(message));
}

void FlowSender::QueuePreamble(uint64_t token) {
  Message message;
  message.head = EncodeFlowPreamble(token);
  Push(std::move(message));
}

void FlowSender::Queue(const MessageHeader& header,
                       absl::Span<const absl::Span<const uint8_t>> payload, uint64_t tag) {
  uint64_t bytes = 0;
  for (const auto& piece : payload) bytes += piece.size();
  Message message;
  message.head = EncodeFlowMessage(Encode(header), bytes);
  message.pieces.assign(payload.begin(), payload.end());
  message.tag = tag;
  message.tagged = true;
  Push(std::move(message));
}

absl::Status FlowSender::Flush(uint64_t budget, std::vector<uint64_t>& sent) {
  uint64_t done = 0;
  while (!queue_.empty() && done < budget) {
    std::array<iovec, kPiecesMax> pieces;
    size_t count = 0;
    uint64_t offered = 0;
    for (const Message& message : queue_) {
      for (size_t i = message.next; i < message.pieces.size() && count < kPiecesMax; ++i) {
        // The system's type for sources is not const; it only reads them.
        pieces[count++] = {const_cast<uint8_t*>(message.pieces[i].data()),
                           message.pieces[i].size()};
        offered += message.pieces[i].size();
      }
      if (count == kPiecesMax) break;
    }
    msghdr message = {};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t got = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (got < 0) return WouldBlock() ? absl::OkStatus() : Broken();
    done += static_cast<uint64_t>(got);
    Taken(static_cast<uint64_t>(got), sent);
    if (static_cast<uint64_t>(got) < offered) break;
  }
  return absl::OkStatus();
}

void FlowSender::Taken(uint64_t bytes, std::vector<uint64_t>& sent) {
  queued_bytes_ -= bytes;
  while (!queue_.empty()) {
    Message& message = queue_.front();
    Advance(message.pieces, message.next, bytes);
    if (message.next < message.pieces.size()) return;
    if (message.tagged) sent.push_back(message.tag);
    queue_.pop_front();
  }
}

// ── receiver ────────────────────────────────────────────────────────────────────────

absl::Status FlowReceiver::Receive(uint64_t budget, Target& target) {
  uint64_t done = 0;
  while (done < budget) {
    std::array<iovec, kPiecesMax + 1> pieces;
    std::array<uint8_t, kAheadBytes> behind;
    static thread_local std::array<uint8_t, kDropBytes> dropped;
    size_t count = 0;
    uint64_t wanted = 0;
    const auto add = [&](uint8_t* at, uint64_t bytes) {
      pieces[count++] = {at, bytes};
      wanted += bytes;
    };
    for (size_t i = next_; i < pieces_.size() && count < kPiecesMax; ++i) {
      add(pieces_[i].data(), pieces_[i].size());
    }
    const uint64_t landing = wanted;
    const bool all = next_ + count == pieces_.size();
    if (drop_ > 0) add(dropped.data(), std::min<uint64_t>(drop_, kDropBytes));
    const uint64_t dropping = wanted - landing;
    // Behind a payload, the next message's header comes along.
    if (all && dropping == drop_) add(behind.data(), behind.size());
    const ssize_t got = ::readv(fd_.get(), pieces.data(), static_cast<int>(count));
    if (got == 0) return absl::UnavailableError("the peer closed a data connection");
    if (got < 0) return WouldBlock() ? absl::OkStatus() : Broken();
    uint64_t bytes = static_cast<uint64_t>(got);
    done += bytes;
    Landed(std::min(bytes, landing));
    bytes -= std::min(bytes, landing);
    drop_ -= std::min(bytes, dropping);
    bytes -= std::min(bytes, dropping);
    EndIfWhole(target);
    ahead_.insert(ahead_.end(), behind.begin(), behind.begin() + bytes);
    RETURN_IF_ERROR(Parse(target));
    if (static_cast<uint64_t>(got) < wanted) break;
  }
  return absl::OkStatus();
}

void FlowReceiver::Landed(uint64_t bytes) { Advance(pieces_, next_, bytes); }

void FlowReceiver::EndIfWhole(Target& target) {
  if (!landing_ || next_ < pieces_.size()) return;
  landing_ = false;
  pieces_.clear();
  next_ = 0;
  target.End(header_, payload_bytes_);
}

absl::Status FlowReceiver::Parse(Target& target) {
  absl::Span<const uint8_t> left = ahead_;
  while (!landing_ && drop_ == 0 && left.size() >= kFlowPrefixBytes) {
    ASSIGN_OR_RETURN(const FlowPrefix prefix, DecodeFlowPrefix(left.subspan(0, kFlowPrefixBytes)));
    if (left.size() < kFlowPrefixBytes + prefix.header_bytes) break;
    ASSIGN_OR_RETURN(header_,
                     DecodeMessageHeader(left.subspan(kFlowPrefixBytes, prefix.header_bytes)));
    left.remove_prefix(kFlowPrefixBytes + prefix.header_bytes);
    ASSIGN_OR_RETURN(pieces_, target.Begin(header_, prefix.payload_bytes));
    next_ = 0;
    payload_bytes_ = prefix.payload_bytes;
    landing_ = !pieces_.empty();
    if (!landing_) drop_ = prefix.payload_bytes;
    uint64_t room = 0;
    for (const auto& piece : pieces_) room += piece.size();
    ENSURE(!landing_ || room == prefix.payload_bytes);
    // What of the payload came with the header.
    while (next_ < pieces_.size() && !left.empty()) {
      const size_t take = std::min(left.size(), pieces_[next_].size());
      std::memcpy(pieces_[next_].data(), left.data(), take);
      Landed(take);
      left.remove_prefix(take);
    }
    const size_t forget = std::min<uint64_t>(drop_, left.size());
    drop_ -= forget;
    left.remove_prefix(forget);
    EndIfWhole(target);
  }
  ahead_.erase(ahead_.begin(), ahead_.end() - static_cast<ptrdiff_t>(left.size()));
  return absl::OkStatus();
}

}  // namespace baton::kv
