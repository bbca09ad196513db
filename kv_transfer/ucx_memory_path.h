// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Path A from the writer's side: bytes go straight into the owner's memory.
//
// Where UCX can map that memory here (shared memory), a write is one memcpy per run, done
// in slices by Step; nothing of a write is in flight between two Steps.  Over RDMA it is puts
// and a flush.  Either way a write has ended only when all of it is visible to the owner.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>

#include "kv_transfer/hello.h"
#include "kv_transfer/ucx_endpoint.h"
#include "kv_transfer/ucx_path.h"

namespace baton::kv {

class UcxMemoryPath final : public UcxPath {
 public:
  // Shared memory.  `pool` is the writer's own; what is written to measure comes from `probe`,
  // which has memory from Begin to the result.  An error: this path cannot be had.  All outlive
  // the path.
  static absl::StatusOr<std::unique_ptr<UcxMemoryPath>> Open(UcxWorker& worker,
                                                             const MemoryOffer& offer,
                                                             absl::Span<const uint8_t> pool,
                                                             absl::Span<uint8_t> probe, LinkId link,
                                                             PathHost& host);
  // RDMA: connects to the owner's listener when the owner has agreed, so that the owner knows
  // whose connection it is.
  static std::unique_ptr<UcxMemoryPath> OverRdma(UcxWorker& worker, const SocketAddress& listener,
                                                 const MemoryOffer& offer,
                                                 absl::Span<const uint8_t> pool,
                                                 absl::Span<uint8_t> probe, LinkId link,
                                                 PathHost& host);

  void Begin(uint64_t token, absl::Time now) override;
  void OnMessage(const PathMessage& message, absl::Time now) override;
  bool Step(absl::Time now) override;
  bool Handle(const ReadyFd&) override { return false; }
  const std::optional<absl::StatusOr<PathMeasure>>& result() const override { return result_; }
  void Post(DataWrite write) override;
  bool busy() const override;
  void Close() override;
  std::optional<bool> closed() const override;

  // For the factory.
  UcxMemoryPath(const MemoryOffer& offer, absl::Span<const uint8_t> pool, absl::Span<uint8_t> probe,
                LinkId link, PathHost& host)
      : offer_(offer),
        pool_(pool),
        probe_(probe.first(std::min<uint64_t>(probe.size(), offer.probe_bytes))),
        link_(link),
        host_(host) {}

 private:
  // kPieces: the same bytes as one run and as many, by turns.
  enum class Phase : uint8_t {
    kOpen,
    kConnect,
    kPattern,
    kWarm,
    kLatency,
    kPieces,
    kStream,
    kDone
  };
  struct Active {
    DataWrite write;
    size_t copy = 0;    // next
    uint64_t done = 0;  // of it
  };

  absl::Status CheckNonce() const;
  void Connected(const absl::Status& status);
  void PutPattern(absl::Time now);
  absl::Status Put(const uint8_t* source, uint64_t bytes, uint64_t offset);
  // Calls `done` when everything put is visible; at once on shared memory.
  void Flush(UcxDone done);
  void Fail(const absl::Status& why);
  void StepProbe();
  void Enter(Phase phase, absl::Time now);
  // The next bytes of the probe regions.
  void ProbePut(uint64_t bytes);
  void ProbePieces();
  absl::Status ProbePutAt(uint64_t source, uint64_t bytes, uint64_t target);
  void NoteRound(absl::Duration took);
  void Judge();
  void Finish(absl::Time now);
  bool StepWrites();
  void EndWrite(Active active);

  const MemoryOffer offer_;
  const absl::Span<const uint8_t> pool_;
  const absl::Span<uint8_t> probe_;
  const LinkId link_;
  PathHost& host_;
  UcxWorker* rdma_ = nullptr;  // null: shared memory
  SocketAddress listener_;
  UcxEndpoint endpoint_;
  UcxKeyHandle key_;
  uint8_t* mapped_ = nullptr;  // the owner's mapping as seen here; null: RDMA

  Phase phase_ = Phase::kOpen;
  bool waiting_ = false;    // for a flush or the owner's answer
  uint64_t probe_at_ = 0;   // next offset in the probe regions
  uint64_t probe_end_ = 0;  // of the part that is used
  uint32_t rounds_ = 0;     // of the phase
  uint64_t phase_bytes_ = 0;
  absl::Time phase_start_, round_start_;
  BestTime latency_, whole_, apart_;
  RateMeter meter_;
  PathMeasure measure_;
  std::optional<absl::StatusOr<PathMeasure>> result_;

  std::deque<Active> queue_;
  size_t flushes_ = 0;
  bool closing_ = false;
  bool closed_ = false;
};

}  // namespace baton::kv
