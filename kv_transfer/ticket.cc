// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Tickets and Commits as bytes: magic, version, fields, checksum (docs/kv_transfer.md).
//
// The checksum is against damage and version skew, not against malice: peers trust each other
// (design: writers obey tickets, strangers never get a key).
#include "kv_transfer/ticket.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/ensure.h"

namespace baton::kv {
namespace {

constexpr uint32_t kTicketMagic = 0x3154'4b42;  // "BKT1"
constexpr uint32_t kCommitMagic = 0x3143'4b42;  // "BKC1"
constexpr uint16_t kTicketVersion = 1;
constexpr uint16_t kCommitVersion = 3;
constexpr size_t kChecksumBytes = 8;
constexpr uint32_t kTicketBlocksMax = 1u << 16;  // a million tokens
constexpr uint32_t kFirstTokensMax = 128;        // choices of one request
constexpr uint32_t kTopMax = 256;                // alternatives of one token

// FNV-1a, 64 bits, with a final mix.
uint64_t Checksum(absl::Span<const uint8_t> bytes) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) sum = (sum ^ byte) * 0x100000001b3u;
  return sum ^ (sum >> 32);
}

void PutAttempt(ByteWriter& out, const AttemptId& attempt) {
  out.Put<uint64_t>(attempt.request.frontend.value());
  out.Put<uint64_t>(attempt.request.number);
  out.Put<uint32_t>(attempt.attempt);
}

AttemptId GetAttempt(ByteReader& in) {
  AttemptId attempt;
  attempt.request.frontend = Incarnation(in.Get<uint64_t>());
  attempt.request.number = in.Get<uint64_t>();
  attempt.attempt = in.Get<uint32_t>();
  return attempt;
}

void PutDuration(ByteWriter& out, absl::Duration duration) {
  out.Put<int64_t>(absl::ToInt64Nanoseconds(duration));
}

absl::Duration GetDuration(ByteReader& in) { return absl::Nanoseconds(in.Get<int64_t>()); }

std::vector<uint8_t> Seal(ByteWriter out) {
  std::vector<uint8_t> bytes = std::move(out).Take();
  ByteWriter sum;
  sum.Put<uint64_t>(Checksum(bytes));
  const std::vector<uint8_t> tail = std::move(sum).Take();
  ENSURE(tail.size() == kChecksumBytes);
  bytes.insert(bytes.end(), tail.begin(), tail.end());
  return bytes;
}

// Checks checksum, magic and version; the rest of `bytes` is the body.
absl::StatusOr<absl::Span<const uint8_t>> Open(absl::Span<const uint8_t> bytes, uint32_t magic,
                                               uint16_t version, absl::string_view what) {
  constexpr size_t kHead = sizeof(uint32_t) + sizeof(uint16_t);
  if (bytes.size() < kHead + kChecksumBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": too short"));
  }
  ByteReader head(bytes.first(kHead));
  if (head.Get<uint32_t>() != magic) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": wrong magic"));
  }
  if (const uint16_t found = head.Get<uint16_t>(); found != version) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": unknown version ", found));
  }
  const auto covered = bytes.first(bytes.size() - kChecksumBytes);
  ByteReader tail(bytes.last(kChecksumBytes));
  if (tail.Get<uint64_t>() != Checksum(covered)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": wrong checksum"));
  }
  return covered.subspan(kHead);
}

bool HasDuplicate(std::vector<BlockIndex> blocks) {
  std::sort(blocks.begin(), blocks.end());
  return std::adjacent_find(blocks.begin(), blocks.end()) != blocks.end();
}

absl::Status Check(const Ticket& ticket) {
  if (ticket.key.owner == Incarnation() || ticket.writer == Incarnation() ||
      ticket.key.generation == Generation()) {
    return absl::InvalidArgumentError("ticket: an incarnation or generation of 0");
  }
  if (ticket.first_position % kBlockTokens != 0) {
    return absl::InvalidArgumentError("ticket: first position is inside a block");
  }
  if (ticket.first_position >= ticket.tokens ||
      ticket.blocks.size() != BlocksFor(ticket.tokens - ticket.first_position)) {
    return absl::InvalidArgumentError("ticket: blocks do not match the positions");
  }
  if (HasDuplicate(ticket.blocks)) {
    return absl::InvalidArgumentError("ticket: a block is named twice");
  }
  return absl::OkStatus();
}

OutputToken GetToken(ByteReader& in) {
  OutputToken token;
  token.id = in.Get<int32_t>();
  token.logprob = in.Get<float>();
  const uint32_t top = in.Get<uint16_t>();
  for (uint32_t i = 0; i < std::min(top, kTopMax) && in.ok(); ++i) {
    const TokenId id = in.Get<int32_t>();
    token.top.push_back({.id = id, .logprob = in.Get<float>()});
  }
  if (top > kTopMax) in.GetBytes(in.remaining() + 1);  // makes `in` not ok
  return token;
}

}  // namespace

std::vector<uint8_t> Encode(const Ticket& ticket) {
  ENSURE(ticket.blocks.size() <= kTicketBlocksMax);
  ENSURE(Check(ticket).ok());
  ByteWriter out;
  out.Put(kTicketMagic);
  out.Put(kTicketVersion);
  out.Put<uint64_t>(ticket.key.owner.value());
  out.Put<uint64_t>(ticket.key.generation.value());
  out.Put<uint64_t>(ticket.writer.value());
  PutAttempt(out, ticket.attempt);
  out.Put<uint32_t>(ticket.first_position);
  out.Put<uint32_t>(ticket.tokens);
  out.Put<uint32_t>(static_cast<uint32_t>(ticket.blocks.size()));
  for (const BlockIndex block : ticket.blocks) out.Put<uint32_t>(block);
  return Seal(std::move(out));
}

absl::StatusOr<Ticket> DecodeTicket(absl::Span<const uint8_t> bytes) {
  auto body = Open(bytes, kTicketMagic, kTicketVersion, "ticket");
  if (!body.ok()) return body.status();
  ByteReader in(*body);
  Ticket ticket;
  ticket.key.owner = Incarnation(in.Get<uint64_t>());
  ticket.key.generation = Generation(in.Get<uint64_t>());
  ticket.writer = Incarnation(in.Get<uint64_t>());
  ticket.attempt = GetAttempt(in);
  ticket.first_position = in.Get<uint32_t>();
  ticket.tokens = in.Get<uint32_t>();
  const uint32_t count = in.Get<uint32_t>();
  if (!in.ok() || count > kTicketBlocksMax || in.remaining() != count * sizeof(uint32_t)) {
    return absl::InvalidArgumentError("ticket: length does not match the number of blocks");
  }
  ticket.blocks.reserve(count);
  for (uint32_t i = 0; i < count; ++i) ticket.blocks.push_back(in.Get<uint32_t>());
  if (absl::Status status = Check(ticket); !status.ok()) return status;
  return ticket;
}

std::vector<uint8_t> Encode(const Commit& commit) {
  ENSURE(commit.first_tokens.size() <= kFirstTokensMax);
  ByteWriter out;
  out.Put(kCommitMagic);
  out.Put(kCommitVersion);
  out.Put<uint64_t>(commit.key.owner.value());
  out.Put<uint64_t>(commit.key.generation.value());
  out.Put<uint64_t>(commit.writer.value());
  PutAttempt(out, commit.attempt);
  out.Put<uint32_t>(commit.blocks);
  out.Put<uint32_t>(commit.layers);
  out.Put<uint64_t>(commit.bytes);
  out.Put<uint8_t>(commit.summed ? 1 : 0);
  out.Put<uint32_t>(commit.first_index);
  out.Put<uint32_t>(commit.cached_tokens);
  out.Put<uint32_t>(commit.computed_tokens);
  PutDuration(out, commit.queued);
  PutDuration(out, commit.compute);
  PutDuration(out, commit.transfer);
  PutDuration(out, commit.exposed);
  PutDuration(out, commit.predicted);
  out.Put<uint16_t>(static_cast<uint16_t>(commit.first_tokens.size()));
  for (const OutputToken& token : commit.first_tokens) {
    ENSURE(token.top.size() <= kTopMax);
    out.Put<int32_t>(token.id);
    out.Put<float>(token.logprob);
    out.Put<uint16_t>(static_cast<uint16_t>(token.top.size()));
    for (const TokenLogprob& top : token.top) {
      out.Put<int32_t>(top.id);
      out.Put<float>(top.logprob);
    }
  }
  return Seal(std::move(out));
}

absl::StatusOr<Commit> DecodeCommit(absl::Span<const uint8_t> bytes) {
  auto body = Open(bytes, kCommitMagic, kCommitVersion, "commit");
  if (!body.ok()) return body.status();
  ByteReader in(*body);
  Commit commit;
  commit.key.owner = Incarnation(in.Get<uint64_t>());
  commit.key.generation = Generation(in.Get<uint64_t>());
  commit.writer = Incarnation(in.Get<uint64_t>());
  commit.attempt = GetAttempt(in);
  commit.blocks = in.Get<uint32_t>();
  commit.layers = in.Get<uint32_t>();
  commit.bytes = in.Get<uint64_t>();
  const uint8_t summed = in.Get<uint8_t>();
  commit.summed = summed == 1;
  commit.first_index = in.Get<uint32_t>();
  commit.cached_tokens = in.Get<uint32_t>();
  commit.computed_tokens = in.Get<uint32_t>();
  commit.queued = GetDuration(in);
  commit.compute = GetDuration(in);
  commit.transfer = GetDuration(in);
  commit.exposed = GetDuration(in);
  commit.predicted = GetDuration(in);
  const uint32_t tokens = in.Get<uint16_t>();
  if (!in.ok() || summed > 1 || tokens > kFirstTokensMax) {
    return absl::InvalidArgumentError("commit: truncated, or a field out of its range");
  }
  for (uint32_t i = 0; i < tokens && in.ok(); ++i) commit.first_tokens.push_back(GetToken(in));
  if (!in.done()) return absl::InvalidArgumentError("commit: length does not match its tokens");
  return commit;
}

}  // namespace baton::kv
