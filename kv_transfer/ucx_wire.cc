// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_wire.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/random.h"

namespace baton::kv {
namespace {

constexpr uint32_t kAddressBytesMax = 16u << 10;
constexpr uint32_t kKeyBytesMax = 4u << 10;
constexpr uint32_t kTextBytesMax = 1u << 10;

void PutBlob(ByteWriter& out, const std::vector<uint8_t>& blob) {
  out.Put<uint32_t>(static_cast<uint32_t>(blob.size()));
  out.PutBytes(blob);
}

// Empty where there are more than `bytes_max` or fewer than announced.
std::vector<uint8_t> GetBlob(ByteReader& in, uint32_t bytes_max) {
  const uint32_t size = in.Get<uint32_t>();
  if (size > bytes_max) return {};
  const auto bytes = in.GetBytes(size);
  return {bytes.begin(), bytes.end()};
}

bool Inside(uint64_t offset, uint64_t bytes, uint64_t total) {
  return offset <= total && bytes <= total - offset;
}

absl::Status Malformed(const char* what) {
  return absl::InvalidArgumentError(std::string("malformed ") + what);
}

}  // namespace

std::vector<uint8_t> Encode(const MemoryOffer& offer) {
  ByteWriter out;
  PutBlob(out, offer.worker_address);
  PutBlob(out, offer.key);
  for (const uint64_t word : {offer.base, offer.bytes, offer.nonce, offer.probe_offset,
                              offer.probe_bytes, offer.pool_offset, offer.pool_bytes}) {
    out.Put(word);
  }
  return std::move(out).Take();
}

absl::StatusOr<MemoryOffer> DecodeMemoryOffer(absl::Span<const uint8_t> bytes) {
  ByteReader in(bytes);
  MemoryOffer offer;
  offer.worker_address = GetBlob(in, kAddressBytesMax);
  offer.key = GetBlob(in, kKeyBytesMax);
  for (uint64_t* word : {&offer.base, &offer.bytes, &offer.nonce, &offer.probe_offset,
                         &offer.probe_bytes, &offer.pool_offset, &offer.pool_bytes}) {
    *word = in.Get<uint64_t>();
  }
  if (!in.done() || offer.worker_address.empty() || offer.key.empty() ||
      offer.base + offer.bytes < offer.base ||
      !Inside(offer.probe_offset, offer.probe_bytes, offer.bytes) ||
      !Inside(offer.pool_offset, offer.pool_bytes, offer.bytes)) {
    return Malformed("memory offer");
  }
  return offer;
}

std::vector<uint8_t> RdmaAddress(uint16_t port) {
  ByteWriter out;
  out.Put(port);
  return std::move(out).Take();
}

absl::StatusOr<uint16_t> RdmaPort(const MemoryOffer& offer) {
  ByteReader in(offer.worker_address);
  const uint16_t port = in.Get<uint16_t>();
  if (!in.done() || port == 0) return Malformed("RDMA offer");
  return port;
}

std::vector<uint8_t> Encode(const PathMessage& message) {
  ByteWriter out;
  out.Put(static_cast<uint8_t>(message.step));
  out.Put(message.path);
  out.Put<uint8_t>(message.ok ? 1 : 0);
  out.Put(message.number);
  out.Put(message.seed);
  out.Put(message.bytes);
  Put(out, message.cost);
  out.PutString(message.text.substr(0, kTextBytesMax));
  return std::move(out).Take();
}

absl::StatusOr<PathMessage> DecodePathMessage(absl::Span<const uint8_t> bytes) {
  ByteReader in(bytes);
  PathMessage message;
  const uint8_t step = in.Get<uint8_t>();
  message.step = static_cast<PathStep>(step);
  message.path = in.Get<char>();
  message.ok = in.Get<uint8_t>() == 1;
  message.number = in.Get<uint64_t>();
  message.seed = in.Get<uint64_t>();
  message.bytes = in.Get<uint64_t>();
  message.cost = GetLinkCost(in);
  message.text = in.GetString(kTextBytesMax);
  const bool known = step >= static_cast<uint8_t>(PathStep::kPropose) &&
                     step <= static_cast<uint8_t>(PathStep::kMeasured);
  if (!in.done() || !known) {
    return Malformed("data path message");
  }
  return message;
}

std::vector<uint8_t> Encode(const MessageHeader& header) {
  ByteWriter out;
  out.Put(static_cast<uint8_t>(header.kind));
  for (const uint64_t word : {header.token, header.write, header.offset, header.total}) {
    out.Put(word);
  }
  out.PutBytes(header.data_header);
  return std::move(out).Take();
}

absl::StatusOr<MessageHeader> DecodeMessageHeader(absl::Span<const uint8_t> bytes) {
  ByteReader in(bytes);
  MessageHeader header;
  const uint8_t kind = in.Get<uint8_t>();
  header.kind = static_cast<MessageHeader::Kind>(kind);
  for (uint64_t* word : {&header.token, &header.write, &header.offset, &header.total}) {
    *word = in.Get<uint64_t>();
  }
  const auto rest = in.GetBytes(in.remaining());
  header.data_header.assign(rest.begin(), rest.end());
  const bool data = header.kind == MessageHeader::Kind::kData;
  const bool runs = !data && header.offset != 0;
  if (!in.done() || (!data && header.kind != MessageHeader::Kind::kProbe) ||
      (data && header.offset == 0) == header.data_header.empty() ||
      (runs && (header.offset < kProbeRunMin || header.total != 0))) {
    return Malformed("message header");
  }
  return header;
}

void FillPattern(uint64_t seed, absl::Span<uint8_t> bytes) {
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = SplitMix64(seed ^ at);
    std::memcpy(bytes.data() + at, &word, std::min<size_t>(8, bytes.size() - at));
  }
}

bool HasPattern(uint64_t seed, absl::Span<const uint8_t> bytes) {
  for (size_t at = 0; at < bytes.size(); at += 8) {
    const uint64_t word = SplitMix64(seed ^ at);
    if (std::memcmp(bytes.data() + at, &word, std::min<size_t>(8, bytes.size() - at)) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace baton::kv
