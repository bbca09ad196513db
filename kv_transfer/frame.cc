// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Frames and data headers as bytes.  A frame's type is its place in the variant, plus 1: new
// kinds go at the end of `Frame`.
#include "kv_transfer/frame.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/ensure.h"

namespace baton::kv {
namespace {

constexpr size_t kLengthBytes = sizeof(uint32_t);
constexpr uint32_t kTextMax = 1024;
constexpr uint32_t kDataPathBytesMax = 64u << 10;
constexpr uint32_t kDataHeaderMagic = 0x3244'4b42;  // "BKD2"

std::string Clip(const std::string& text) { return text.substr(0, kTextMax); }

void PutBody(ByteWriter& out, const Hello& hello) { Put(out, hello); }
void PutBody(ByteWriter& out, const HelloRefused& refused) {
  out.PutString(Clip(refused.field));
  out.PutString(Clip(refused.message));
}
void PutBody(ByteWriter& out, const Ready& ready) {
  out.PutString(Clip(ready.transport));
  out.Put<uint8_t>(static_cast<uint8_t>(ready.data_path));
  Put(out, ready.cost);
}
void PutBody(ByteWriter& out, const Heartbeat& heartbeat) {
  out.Put<uint64_t>(heartbeat.ticks);
  out.Put<uint64_t>(heartbeat.lowest_open.value());
  Put(out, heartbeat.link.cost);
  out.Put<int64_t>(absl::ToInt64Nanoseconds(heartbeat.link.age));
  out.Put<uint64_t>(heartbeat.link.in_flight_bytes);
}
void PutBody(ByteWriter& out, const DeclaredDead& dead) {
  out.Put<uint64_t>(dead.incarnation.value());
}
void PutBody(ByteWriter& out, const DataPathMessage& message) {
  ENSURE(message.bytes.size() <= kDataPathBytesMax);
  out.PutBytes(message.bytes);
}
void PutBody(ByteWriter& out, const RevokeFrame& revoke) {
  out.Put<uint64_t>(revoke.generation.value());
  out.Put<uint64_t>(revoke.lowest_open.value());
}
void PutBody(ByteWriter& out, const WriteResult& result) {
  out.Put<uint64_t>(result.write);
  out.Put<uint8_t>(result.landed);
}
void PutBody(ByteWriter& out, const QuietFrame& quiet) {
  out.Put<uint8_t>(quiet.generation.has_value());
  out.Put<uint64_t>(quiet.generation.value_or(Generation()).value());
}
void PutBody(ByteWriter& out, const WriterFailedFrame& failed) {
  out.Put<uint64_t>(failed.generation.value());
  out.Put<uint8_t>(static_cast<uint8_t>(failed.code));
  out.PutString(Clip(failed.message));
}
void PutBody(ByteWriter& out, const Commit& commit) { out.PutBytes(Encode(commit)); }
void PutBody(ByteWriter& out, const WrittenFrame& written) {
  ENSURE(!written.header.sums.empty());
  out.PutBytes(Encode(written.header));
}

HelloRefused GetBody(ByteReader& in, HelloRefused refused) {
  refused.field = in.GetString(kTextMax);
  refused.message = in.GetString(kTextMax);
  return refused;
}
Ready GetBody(ByteReader& in, Ready ready) {
  ready.transport = in.GetString(kTextMax);
  ready.data_path = static_cast<char>(in.Get<uint8_t>());
  ready.cost = GetLinkCost(in);
  const bool sane = ready.data_path == 'A' || ready.data_path == 'B';
  if (!sane) in.GetBytes(in.remaining() + 1);  // makes `in` not ok
  return ready;
}
Heartbeat GetBody(ByteReader& in, Heartbeat heartbeat) {
  heartbeat.ticks = in.Get<uint64_t>();
  heartbeat.lowest_open = Generation(in.Get<uint64_t>());
  heartbeat.link.cost = GetLinkCost(in);
  const int64_t age = in.Get<int64_t>();
  heartbeat.link.age = absl::Nanoseconds(age);
  heartbeat.link.in_flight_bytes = in.Get<uint64_t>();
  if (age < 0) in.GetBytes(in.remaining() + 1);  // makes `in` not ok
  return heartbeat;
}
DataPathMessage GetBody(ByteReader& in, DataPathMessage message) {
  const auto bytes = in.GetBytes(std::min<size_t>(in.remaining(), kDataPathBytesMax));
  message.bytes.assign(bytes.begin(), bytes.end());
  return message;
}
RevokeFrame GetBody(ByteReader& in, RevokeFrame revoke) {
  revoke.generation = Generation(in.Get<uint64_t>());
  revoke.lowest_open = Generation(in.Get<uint64_t>());
  return revoke;
}
WriteResult GetBody(ByteReader& in, WriteResult result) {
  result.write = in.Get<uint64_t>();
  result.landed = in.Get<uint8_t>() != 0;
  return result;
}
QuietFrame GetBody(ByteReader& in, QuietFrame quiet) {
  const bool one = in.Get<uint8_t>() != 0;
  const Generation generation(in.Get<uint64_t>());
  if (one) quiet.generation = generation;
  return quiet;
}
WriterFailedFrame GetBody(ByteReader& in, WriterFailedFrame failed) {
  failed.generation = Generation(in.Get<uint64_t>());
  failed.code = static_cast<absl::StatusCode>(in.Get<uint8_t>());
  failed.message = in.GetString(kTextMax);
  return failed;
}

absl::StatusOr<Frame> DecodeBody(uint8_t type, absl::Span<const uint8_t> body) {
  ByteReader in(body);
  Frame frame;
  switch (type) {
    case 1:
      frame = GetHello(in);
      break;
    case 2:
      frame = GetBody(in, HelloRefused());
      break;
    case 3:
      frame = GetBody(in, Ready());
      break;
    case 4:
      frame = GetBody(in, Heartbeat());
      break;
    case 5:
      frame = DeclaredDead{Incarnation(in.Get<uint64_t>())};
      break;
    case 6:
      frame = GetBody(in, DataPathMessage());
      break;
    case 7:
      frame = GetBody(in, RevokeFrame());
      break;
    case 8:
      frame = GetBody(in, WriteResult());
      break;
    case 9:
      frame = GetBody(in, QuietFrame());
      break;
    case 10:
      frame = GetBody(in, WriterFailedFrame());
      break;
    case 11: {
      auto commit = DecodeCommit(body);
      if (!commit.ok()) return commit.status();
      return Frame(*std::move(commit));
    }
    case 12: {
      auto header = DecodeDataHeader(body);
      if (!header.ok()) return header.status();
      if (header->sums.empty()) return absl::InvalidArgumentError("frame: written without sums");
      return Frame(WrittenFrame{*std::move(header)});
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat("frame: unknown type ", type));
  }
  if (!in.done()) {
    return absl::InvalidArgumentError(absl::StrCat("frame: type ", type, " is malformed"));
  }
  ENSURE(frame.index() + 1 == type);
  return frame;
}

}  // namespace

std::vector<uint8_t> EncodeFrame(const Frame& frame) {
  ByteWriter out;
  out.Put<uint8_t>(static_cast<uint8_t>(frame.index() + 1));
  std::visit([&](const auto& body) { PutBody(out, body); }, frame);
  const std::vector<uint8_t> body = std::move(out).Take();
  ENSURE(body.size() + kLengthBytes <= kFrameBytesMax);
  ByteWriter whole;
  whole.Put<uint32_t>(static_cast<uint32_t>(body.size()));
  whole.PutBytes(body);
  return std::move(whole).Take();
}

absl::StatusOr<Frame> DecodeFrame(absl::Span<const uint8_t> bytes) {
  ByteReader in(bytes);
  const uint32_t length = in.Get<uint32_t>();
  const uint8_t type = in.Get<uint8_t>();
  if (!in.ok() || length != bytes.size() - kLengthBytes || bytes.size() > kFrameBytesMax) {
    return absl::InvalidArgumentError("frame: wrong length");
  }
  return DecodeBody(type, bytes.subspan(kLengthBytes + 1));
}

absl::Status FrameCutter::Feed(absl::Span<const uint8_t> bytes,
                               std::vector<std::vector<uint8_t>>& frames) {
  while (!bytes.empty()) {
    const size_t wanted = [&]() -> size_t {
      if (pending_.size() < kLengthBytes) return kLengthBytes;
      return kLengthBytes + ByteReader(pending_).Get<uint32_t>();
    }();
    ENSURE(wanted > pending_.size());
    const size_t taken = std::min(wanted - pending_.size(), bytes.size());
    pending_.insert(pending_.end(), bytes.begin(), bytes.begin() + taken);
    bytes.remove_prefix(taken);
    if (pending_.size() < kLengthBytes) continue;
    const uint32_t length = ByteReader(pending_).Get<uint32_t>();
    if (length < 1 || length > kFrameBytesMax - kLengthBytes) {
      return absl::InvalidArgumentError(absl::StrCat("frame: a length of ", length));
    }
    if (pending_.size() == kLengthBytes + length) {
      frames.push_back(std::move(pending_));
      pending_.clear();
    }
  }
  return absl::OkStatus();
}

std::vector<uint8_t> Encode(const DataHeader& header) {
  ENSURE(!header.targets.empty());
  ENSURE(header.targets.size() <= kDataTargetsMax);
  ENSURE(header.sums.empty() || header.sums.size() == header.targets.size());
  ByteWriter out;
  out.Put(kDataHeaderMagic);
  out.Put<uint64_t>(header.key.owner.value());
  out.Put<uint64_t>(header.key.generation.value());
  out.Put<uint64_t>(header.writer.value());
  out.Put<uint64_t>(header.attempt.request.frontend.value());
  out.Put<uint64_t>(header.attempt.request.number);
  out.Put<uint32_t>(header.attempt.attempt);
  out.Put<uint64_t>(header.write);
  out.Put<uint32_t>(header.layer);
  out.Put<uint32_t>(static_cast<uint32_t>(header.targets.size()));
  for (const uint32_t target : header.targets) out.Put<uint32_t>(target);
  out.Put<uint32_t>(static_cast<uint32_t>(header.sums.size()));
  for (const uint32_t sum : header.sums) out.Put<uint32_t>(sum);
  return std::move(out).Take();
}

absl::StatusOr<DataHeader> DecodeDataHeader(absl::Span<const uint8_t> bytes) {
  ByteReader in(bytes);
  const uint32_t magic = in.Get<uint32_t>();
  DataHeader header;
  header.key.owner = Incarnation(in.Get<uint64_t>());
  header.key.generation = Generation(in.Get<uint64_t>());
  header.writer = Incarnation(in.Get<uint64_t>());
  header.attempt.request.frontend = Incarnation(in.Get<uint64_t>());
  header.attempt.request.number = in.Get<uint64_t>();
  header.attempt.attempt = in.Get<uint32_t>();
  header.write = in.Get<uint64_t>();
  header.layer = in.Get<uint32_t>();
  const uint32_t count = in.Get<uint32_t>();
  if (!in.ok() || magic != kDataHeaderMagic) {
    return absl::InvalidArgumentError("data header: truncated, or wrong magic");
  }
  if (count == 0 || count > kDataTargetsMax || in.remaining() < count * sizeof(uint32_t)) {
    return absl::InvalidArgumentError("data header: length does not match its targets");
  }
  header.targets.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    header.targets.push_back(in.Get<uint32_t>());
    if (i > 0 && header.targets[i] <= header.targets[i - 1]) {
      return absl::InvalidArgumentError("data header: targets do not rise");
    }
  }
  const uint32_t sums = in.Get<uint32_t>();
  if (!in.ok() || (sums != 0 && sums != count) || in.remaining() != sums * sizeof(uint32_t)) {
    return absl::InvalidArgumentError("data header: not one sum for each target, or none");
  }
  header.sums.reserve(sums);
  for (uint32_t i = 0; i < sums; ++i) header.sums.push_back(in.Get<uint32_t>());
  return header;
}

}  // namespace baton::kv
