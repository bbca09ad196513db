// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Path B from the writer's side: checked messages over TCP.
//
// A write travels as messages of at most kPayloadBytesMax, gathered from the pool by UCX; the
// first carries the DataHeader that the owner checks before a byte lands.  WriteEnded says only
// that the source may be reused; the owner's WriteResult frame says whether it landed.
#pragma once

#include <deque>
#include <memory>

#include "absl/container/btree_map.h"
#include "kv_transfer/message_probe.h"
#include "kv_transfer/ucx_endpoint.h"
#include "kv_transfer/ucx_path.h"

namespace baton::kv {

inline constexpr uint16_t kMessageId = 1;  // of UCX's active messages
// With the largest header still one segment of UCX's TCP transport: received whole, copied once.
inline constexpr uint64_t kPayloadBytesMax = 224u << 10;

class UcxMessagePath final : public UcxPath {
 public:
  // `address`: of the owner's message worker.  `pool` and `probe` (message_probe.h) are the
  // writer's own.
  static absl::StatusOr<std::unique_ptr<UcxMessagePath>> Open(UcxWorker& worker,
                                                              absl::Span<const uint8_t> address,
                                                              absl::Span<const uint8_t> pool,
                                                              absl::Span<uint8_t> probe,
                                                              PathHost& host);

  void Begin(uint64_t token, absl::Time now) override;
  void OnMessage(const PathMessage& message, absl::Time now) override;
  bool Step(absl::Time now) override;
  bool Handle(const ReadyFd&) override { return false; }
  const std::optional<absl::StatusOr<PathMeasure>>& result() const override {
    return probe_.result();
  }
  void Post(DataWrite write) override;
  bool busy() const override;
  void Close() override;
  std::optional<bool> closed() const override;

  // For the factory.
  UcxMessagePath(absl::Span<const uint8_t> pool, absl::Span<uint8_t> probe, PathHost& host)
      : pool_(pool),
        host_(host),
        probe_(
            kPayloadBytesMax, probe,
            [this](const auto& header, auto payload) { SendProbe(header, payload); },
            [this] { return TransportName(); }) {}

 private:
  struct Active {
    DataWrite write;
    size_t copy = 0;        // next
    uint64_t done = 0;      // of it
    uint64_t sent = 0;      // bytes of the write in messages made so far
    uint32_t messages = 0;  // that UCX still holds
    absl::Status status;
  };

  void SendProbe(const MessageHeader& header, MessageProbe::Pieces payload);
  std::string TransportName() const;
  bool StepWrites();
  void SendNext(Active& active);
  void OnSent(uint64_t write, uint64_t bytes, const absl::Status& status);

  const absl::Span<const uint8_t> pool_;
  PathHost& host_;
  UcxEndpoint endpoint_;
  uint64_t token_ = 0;

  MessageProbe probe_;
  absl::btree_map<uint64_t, Active> active_;  // by write
  std::deque<uint64_t> unsent_;               // writes with messages not yet made
  uint64_t held_bytes_ = 0;                   // by UCX
  size_t held_ = 0;                           // messages by UCX, probes included
  bool closing_ = false;
  bool closed_ = false;
};

}  // namespace baton::kv
