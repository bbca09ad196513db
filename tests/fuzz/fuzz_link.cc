// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a stranger, or a peer gone wrong, may send on a link: any bytes, cut anywhere, to either
// half of the protocol, before and after a proper Hello.  Nothing may crash or grow.
// DEPS: kv_core
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ensure.h"
#include "kv_transfer/frame.h"
#include "kv_transfer/owner_core.h"
#include "kv_transfer/writer_core.h"

namespace {

using namespace baton;      // NOLINT: a fuzz target of one file
using namespace baton::kv;  // NOLINT

class SilentIo final : public LinkIo {
 public:
  void Send(LinkId, std::vector<uint8_t> frame) override { ENSURE(DecodeFrame(frame).ok()); }
  void Close(LinkId, const absl::Status&) override { closed = true; }
  void Prepare(LinkId, const Hello&) override {}
  void Post(LinkId, DataWrite) override {}
  absl::Time Now() const override { return absl::UnixEpoch(); }
  bool closed = false;
};

Hello MakeHello(Role role, uint64_t incarnation) {
  Hello hello;
  hello.self = {role == Role::kDecode ? "decode-0" : "prefill-0", Incarnation(incarnation)};
  hello.role = role;
  hello.process.pid = static_cast<uint32_t>(incarnation);
  hello.layout = {.layers = 2, .kv_heads = 1, .head_dim = 2, .block_tokens = 16, .blocks = 4};
  return hello;
}

Ticket MakeTicket() {
  Ticket ticket;
  ticket.key = {Incarnation(1), Generation(1)};
  ticket.writer = Incarnation(2);
  ticket.tokens = kBlockTokens;
  ticket.blocks = {1};
  return ticket;
}

// `bytes` as one connection's stream: `how` says whether a Hello was said before, on
// which data path, and how the stream is cut.
void Converse(LinkCore& core, const SilentIo& io, const Hello& peer, uint8_t how,
              absl::Span<const uint8_t> bytes) {
  const absl::Time now = absl::UnixEpoch();
  core.LinkOpened(LinkId(1), "", now);
  if (how & 1) {
    core.FrameArrived(LinkId(1), EncodeFrame(peer), now);
    core.DataReady(LinkId(1), {.transport = "fuzz", .data_path = how & 2 ? 'A' : 'B'});
    core.FrameArrived(
        LinkId(1), EncodeFrame(Ready{.transport = "fuzz", .data_path = how & 2 ? 'A' : 'B'}), now);
  }
  FrameCutter cutter;
  const size_t step = 1 + (how >> 4);
  for (size_t at = 0; at < bytes.size() && !io.closed; at += step) {
    std::vector<std::vector<uint8_t>> frames;
    if (!cutter.Feed(bytes.subspan(at, step), frames).ok()) break;
    for (const auto& frame : frames) core.FrameArrived(LinkId(1), frame, now);
  }
  core.Tick(now + absl::Milliseconds(300), 1);
  std::vector<TransportEvent> events;
  core.Poll(events);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t how = data[0];
  const absl::Span<const uint8_t> bytes(data + 1, size - 1);
  (void)DecodeFrame(bytes);
  if (const auto header = DecodeDataHeader(bytes); header.ok()) ENSURE(Encode(*header) == bytes);
  std::vector<uint8_t> pool(MakeHello(Role::kDecode, 1).layout.pool_bytes());
  {
    SilentIo io;
    OwnerCore owner({}, MakeHello(Role::kDecode, 1), pool, io);
    Converse(owner, io, MakeHello(Role::kPrefill, 2), how, bytes);
    owner.Grant(MakeTicket());
    if (const auto header = DecodeDataHeader(bytes); header.ok()) {
      if (owner.CheckArrival(LinkId(1), *header, size).ok()) {
        owner.Landed(LinkId(1), header->write);
      }
    }
    owner.Revoke(Generation(1));
  }
  {
    SilentIo io;
    WriterCore writer({}, MakeHello(Role::kPrefill, 2), 3, absl::MakeSpan(pool), io);
    Converse(writer, io, MakeHello(Role::kDecode, 1), how, bytes);
    writer.Accept(MakeTicket());
  }
  return 0;
}
