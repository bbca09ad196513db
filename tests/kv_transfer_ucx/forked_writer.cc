// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "tests/kv_transfer_ucx/forked_writer.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/ensure.h"
#include "tests/kv_transfer_ucx/transport_pair.h"

namespace baton::kv {
namespace {

enum class Ask : uint8_t { kStart = 1, kAccept, kWrite, kCommit, kAbandon };
enum class Said : uint8_t { kUp = 1, kDown, kWriteDone, kPushEnded, kReborn, kMeasured };

void PutBlob(ByteWriter& out, const std::vector<uint8_t>& bytes) {
  out.Put<uint32_t>(static_cast<uint32_t>(bytes.size()));
  out.PutBytes(bytes);
}
std::vector<uint8_t> GetBlob(ByteReader& in) {
  const auto bytes = in.GetBytes(in.Get<uint32_t>());
  return {bytes.begin(), bytes.end()};
}
void PutStatus(ByteWriter& out, const absl::Status& status) {
  out.Put<int32_t>(static_cast<int32_t>(status.code()));
  out.PutString(std::string(status.message()));
}
absl::Status GetStatus(ByteReader& in) {
  const auto code = static_cast<absl::StatusCode>(in.Get<int32_t>());
  return absl::Status(code, in.GetString(1u << 16));
}
void PutKey(ByteWriter& out, const GrantKey& key) {
  out.Put(key.owner.value());
  out.Put(key.generation.value());
}
GrantKey GetKey(ByteReader& in) {
  const Incarnation owner(in.Get<uint64_t>());
  return {owner, Generation(in.Get<uint64_t>())};
}

void SendAll(int fd, const std::vector<uint8_t>& message) {
  ByteWriter framed;
  PutBlob(framed, message);
  const std::vector<uint8_t> bytes = std::move(framed).Take();
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;  // the other process is gone
    sent += static_cast<size_t>(n);
  }
}

// Appends what is there; cuts off whole messages.  False: the other process is gone.
bool ReceiveSome(int fd, std::vector<uint8_t>& pending,
                 std::vector<std::vector<uint8_t>>& messages) {
  uint8_t buffer[65536];
  while (true) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0) return false;
    if (n < 0) break;
    pending.insert(pending.end(), buffer, buffer + n);
  }
  while (pending.size() >= 4) {
    uint32_t size = 0;
    std::memcpy(&size, pending.data(), 4);
    if (pending.size() < 4 + size) break;
    messages.emplace_back(pending.begin() + 4, pending.begin() + 4 + size);
    pending.erase(pending.begin(), pending.begin() + 4 + size);
  }
  return true;
}

std::vector<uint8_t> EncodeEvent(const TransportEvent& event) {
  ByteWriter out;
  const auto put_ref = [&](Said what, const WorkerRef& peer) {
    out.Put(static_cast<uint8_t>(what));
    out.PutString(peer.worker);
    out.Put(peer.incarnation.value());
  };
  if (const auto* up = std::get_if<PeerUp>(&event)) {
    put_ref(Said::kUp, up->peer);
    out.PutString(up->link.transport);
    out.Put(up->link.data_path);
    Put(out, up->link.cost);
  } else if (const auto* measured = std::get_if<PeerMeasured>(&event)) {
    put_ref(Said::kMeasured, measured->peer);
    out.PutString(measured->link.transport);
    Put(out, measured->link.cost);
  } else if (const auto* down = std::get_if<PeerDown>(&event)) {
    put_ref(Said::kDown, down->peer);
    PutStatus(out, down->why);
  } else if (const auto* done = std::get_if<WriteDone>(&event)) {
    out.Put(static_cast<uint8_t>(Said::kWriteDone));
    out.Put(done->id.value());
    PutStatus(out, done->status);
  } else if (const auto* ended = std::get_if<PushEnded>(&event)) {
    out.Put(static_cast<uint8_t>(Said::kPushEnded));
    PutKey(out, ended->key);
    PutStatus(out, ended->why);
  } else if (const auto* reborn = std::get_if<Reborn>(&event)) {
    out.Put(static_cast<uint8_t>(Said::kReborn));
    out.Put(reborn->incarnation.value());
  }
  return std::move(out).Take();
}

TransportEvent DecodeEvent(const std::vector<uint8_t>& bytes) {
  ByteReader in(bytes);
  switch (static_cast<Said>(in.Get<uint8_t>())) {
    case Said::kUp: {
      PeerUp up;
      up.peer.worker = in.GetString(256);
      up.peer.incarnation = Incarnation(in.Get<uint64_t>());
      up.link.transport = in.GetString(256);
      up.link.data_path = in.Get<char>();
      up.link.cost = GetLinkCost(in);
      return up;
    }
    case Said::kMeasured: {
      PeerMeasured measured;
      measured.peer.worker = in.GetString(256);
      measured.peer.incarnation = Incarnation(in.Get<uint64_t>());
      measured.link.transport = in.GetString(256);
      measured.link.cost = GetLinkCost(in);
      return measured;
    }
    case Said::kDown: {
      PeerDown down;
      down.peer.worker = in.GetString(256);
      down.peer.incarnation = Incarnation(in.Get<uint64_t>());
      down.why = GetStatus(in);
      return down;
    }
    case Said::kWriteDone: {
      const WriteId id(in.Get<uint64_t>());
      return WriteDone{id, GetStatus(in)};
    }
    case Said::kPushEnded: {
      const GrantKey key = GetKey(in);
      return PushEnded{key, GetStatus(in)};
    }
    case Said::kReborn:
      return Reborn{Incarnation(in.Get<uint64_t>())};
  }
  ENSURE(false);
}

// The child's whole life.
class Child {
 public:
  Child(int channel, const UcxTransportOptions& options, const uint8_t* mirror)
      : channel_(channel), options_(options), mirror_(mirror) {}

  int Run() {
    std::vector<uint8_t> pending;
    std::vector<TransportEvent> events;
    while (true) {
      pollfd wait = {channel_, POLLIN, 0};
      ::poll(&wait, 1, 1);
      std::vector<std::vector<uint8_t>> messages;
      if (!ReceiveSome(channel_, pending, messages)) return 0;
      for (const auto& message : messages) Do(message);
      if (transport_ == nullptr) continue;
      transport_->Poll(events);
      for (const TransportEvent& event : events) SendAll(channel_, EncodeEvent(event));
      events.clear();
    }
  }

 private:
  void Do(const std::vector<uint8_t>& message) {
    ByteReader in(message);
    switch (static_cast<Ask>(in.Get<uint8_t>())) {
      case Ask::kStart: {
        options_.peers[0].address += absl::StrCat(":", in.Get<uint16_t>());
        auto made = UcxTransport::Create(options_);
        if (!made.ok()) std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
        ENSURE(made.ok());
        transport_ = *std::move(made);
        return;
      }
      case Ask::kAccept: {
        const auto ticket = DecodeTicket(GetBlob(in));
        ENSURE(ticket.ok());
        return transport_->Accept(*ticket);
      }
      case Ask::kWrite: {
        const WriteId id(in.Get<uint64_t>());
        const GrantKey key = GetKey(in);
        const uint32_t layer = in.Get<uint32_t>();
        std::vector<WritePiece> pieces(in.Get<uint32_t>());
        for (WritePiece& piece : pieces) {
          piece.source = in.Get<uint32_t>();
          piece.target_index = in.Get<uint32_t>();
        }
        std::memcpy(transport_->PoolBase(), mirror_, options_.layout.pool_bytes());
        return transport_->Write(id, key, layer, pieces);
      }
      case Ask::kCommit: {
        const auto commit = DecodeCommit(GetBlob(in));
        ENSURE(commit.ok());
        return transport_->SendCommit(*commit);
      }
      case Ask::kAbandon: {
        const GrantKey key = GetKey(in);
        return transport_->Abandon(key, GetStatus(in));
      }
    }
  }

  const int channel_;
  UcxTransportOptions options_;
  const uint8_t* const mirror_;
  std::unique_ptr<UcxTransport> transport_;
};

}  // namespace

ForkedWriter::ForkedWriter(const UcxTransportOptions& options) : layout_(options.layout) {
  void* mapped = ::mmap(nullptr, layout_.pool_bytes(), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ENSURE(mapped != MAP_FAILED);
  mirror_ = static_cast<uint8_t*>(mapped);
  int ends[2];
  ENSURE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  child_ = ::fork();
  ENSURE(child_ >= 0);
  if (child_ == 0) {
    ::close(ends[0]);
    ::_exit(Child(ends[1], options, mirror_).Run());
  }
  ::close(ends[1]);
  channel_ = Fd(ends[0]);
}

ForkedWriter::~ForkedWriter() {
  Kill();
  ::munmap(mirror_, layout_.pool_bytes());
}

void ForkedWriter::Signal(int signal) { ENSURE(::kill(child_, signal) == 0); }

void ForkedWriter::Kill() {
  if (child_ < 0) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
  child_ = -1;
}

void ForkedWriter::Request(std::vector<uint8_t> request) { SendAll(channel_.get(), request); }

void ForkedWriter::Start(uint16_t port) {
  ByteWriter out;
  out.Put(static_cast<uint8_t>(Ask::kStart));
  out.Put(port);
  Request(std::move(out).Take());
}

void ForkedWriter::Accept(const Ticket& ticket) {
  ByteWriter out;
  out.Put(static_cast<uint8_t>(Ask::kAccept));
  PutBlob(out, Encode(ticket));
  Request(std::move(out).Take());
}

void ForkedWriter::Write(WriteId id, GrantKey key, uint32_t layer,
                         absl::Span<const WritePiece> pieces) {
  ByteWriter out;
  out.Put(static_cast<uint8_t>(Ask::kWrite));
  out.Put(id.value());
  PutKey(out, key);
  out.Put(layer);
  out.Put<uint32_t>(static_cast<uint32_t>(pieces.size()));
  for (const WritePiece& piece : pieces) {
    out.Put(piece.source);
    out.Put(piece.target_index);
  }
  Request(std::move(out).Take());
}

void ForkedWriter::SendCommit(const Commit& commit) {
  ByteWriter out;
  out.Put(static_cast<uint8_t>(Ask::kCommit));
  PutBlob(out, Encode(commit));
  Request(std::move(out).Take());
}

void ForkedWriter::Abandon(GrantKey key, const absl::Status& why) {
  ByteWriter out;
  out.Put(static_cast<uint8_t>(Ask::kAbandon));
  PutKey(out, key);
  PutStatus(out, why);
  Request(std::move(out).Take());
}

void ForkedWriter::Poll(std::vector<TransportEvent>& events) {
  std::vector<std::vector<uint8_t>> messages;
  (void)ReceiveSome(channel_.get(), received_, messages);
  for (const auto& message : messages) events.push_back(DecodeEvent(message));
}

}  // namespace baton::kv
