// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/flow_wire.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/ensure.h"

namespace baton::kv {
namespace {

constexpr uint32_t kFlowVersion = 1;
constexpr uint64_t kPayloadBytesMax = uint64_t{1} << 40;  // nothing is allocated for it

}  // namespace

std::vector<uint8_t> EncodeFlowPreamble(uint64_t token) {
  ByteWriter out;
  out.Put(kFlowMagic);
  out.Put(kFlowVersion);
  out.Put(token);
  return std::move(out).Take();
}

std::optional<bool> BeginsFlow(absl::Span<const uint8_t> bytes) {
  ByteWriter magic;
  magic.Put(kFlowMagic);
  const std::vector<uint8_t> want = std::move(magic).Take();
  const size_t count = std::min(bytes.size(), want.size());
  if (!std::equal(bytes.begin(), bytes.begin() + count, want.begin())) return false;
  if (count < want.size()) return std::nullopt;
  return true;
}

absl::StatusOr<uint64_t> DecodeFlowPreamble(absl::Span<const uint8_t> bytes) {
  ENSURE(bytes.size() == kFlowPreambleBytes);
  ByteReader in(bytes);
  ENSURE(in.Get<uint32_t>() == kFlowMagic);
  const uint32_t version = in.Get<uint32_t>();
  if (version != kFlowVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("flow: version ", version, ", this is ", kFlowVersion));
  }
  return in.Get<uint64_t>();
}

std::vector<uint8_t> EncodeFlowMessage(absl::Span<const uint8_t> header, uint64_t payload_bytes) {
  ENSURE(header.size() <= kFlowHeaderBytesMax);
  ByteWriter out;
  out.Put(static_cast<uint32_t>(header.size()));
  out.Put(payload_bytes);
  out.PutBytes(header);
  return std::move(out).Take();
}

absl::StatusOr<FlowPrefix> DecodeFlowPrefix(absl::Span<const uint8_t> bytes) {
  ENSURE(bytes.size() == kFlowPrefixBytes);
  ByteReader in(bytes);
  FlowPrefix prefix;
  prefix.header_bytes = in.Get<uint32_t>();
  prefix.payload_bytes = in.Get<uint64_t>();
  if (prefix.header_bytes == 0 || prefix.header_bytes > kFlowHeaderBytesMax ||
      prefix.payload_bytes == 0 || prefix.payload_bytes > kPayloadBytesMax) {
    return absl::InvalidArgumentError("flow: the lengths of a message make no sense");
  }
  return prefix;
}

}  // namespace baton::kv
