// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The production Transport: framed TCP control links, and KV bytes over UCX.
//
// A prefill (writer) dials the `transfer` address of every decode (owner) and again after a
// break; an owner only listens.  Per pair the writer proposes a data path: A, writes into the
// owner's memory (shared memory, RDMA), or B, checked messages over TCP sockets or over UCX.
// What comes up was verified with a known pattern and measured, or PeerDown says why not.
//
// Thread:     Create, Grant … Poll and the destructor from the owner thread (the role loop);
//             it runs a private reactor thread that owns UCX, the sockets and the protocol's
//             cores.  Links, counters and port may be asked from any thread.
// Ownership:  the pool is the transport's: nobody may touch it after the destructor.  `bell`
//             and `ticks` outlive the transport.
// Cost:       nothing blocks but Create and the destructor (each ≤ 2 s).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/bell.h"
#include "base/messages.h"
#include "kv_transfer/layout.h"
#include "kv_transfer/link_io.h"
#include "kv_transfer/transport.h"

namespace baton::kv {

enum class TransportChoice : uint8_t {
  kAuto,    // memory writes where they can be had and fenced (one host, RDMA), else TCP
  kShm,     // memory writes on one host or nothing
  kTcp,     // checked messages over TCP sockets, or over UCX's TCP
  kUcxTcp,  // over UCX's TCP only
};

struct UcxTransportPeer {
  std::string worker;   // its configured name; another one that answers is refused
  std::string address;  // its `transfer`, host:port
};

struct UcxTransportOptions {
  WorkerRef self;                       // with this life's incarnation
  Role role = Role::kPrefill;           // kPrefill: writer; kDecode: owner
  std::string listen;                   // own `transfer`, where an owner listens (port 0: any)
  std::vector<UcxTransportPeer> peers;  // a writer dials each; an owner needs none
  Layout layout;                        // of the own pool, with its number of blocks
  uint64_t model_fingerprint = 0;
  std::string numeric_class;  // equal, as the layouts: equal bits (K8)
  TransportChoice choice = TransportChoice::kAuto;
  std::vector<std::string> devices;  // kv_transfer.devices; empty: all
  bool require_rdma = false;
  double min_bandwidth = 0;  // bytes per second
  PairRules pair;
  absl::Duration stuck_after = LinkOptions().stuck_after;
  uint32_t check_one_in = 1;  // a writer's: pushes whose bytes are compared by sums; 0: none
  // A writer's, for tests: one bit of every n-th write is flipped on its way; 0: of none.
  uint32_t damage_one_in = 0;
  uint64_t seed = 0;     // chance handed in: back-off jitter, later incarnations
  Bell* bell = nullptr;  // rung when Poll has news
  const std::atomic<uint64_t>* ticks = nullptr;  // of the role loop; goes out with heartbeats
};

// One link as status and metrics show it.
struct UcxLinkStatus {
  LinkView view;
  uint64_t bytes = 0;  // payload moved: written (writer) or landed (owner, path B)
  uint64_t writes = 0;
};

struct UcxTransportCounters {
  LinkCounters protocol;
  uint64_t connections_refused = 0;  // over the bound
  uint64_t dials = 0;
  std::string dial_error;         // of the last attempt that failed; empty: since connected
  uint64_t messages_refused = 0;  // data that named no open link
  uint64_t bytes_written = 0;
  uint64_t bytes_landed = 0;  // path B
  ComparedBlocks compared;    // of an owner
};

class UcxTransport final : public OwnerTransport, public WriterTransport {
 public:
  // FAILED_PRECONDITION: a device, the required transport or RDMA is missing (exit 69);
  // UNAVAILABLE: the port cannot be had (69); INVALID_ARGUMENT: an address (78);
  // RESOURCE_EXHAUSTED: no memory for the pool.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(const UcxTransportOptions& options);
  // Links break; what was granted or written counts as lost.
  ~UcxTransport() override;
  // For the end of the process: carries out what was asked and ends the thread.  Nothing may be
  // called after it, and it need not be destroyed.
  void Finish();

  // layout.pool_bytes() bytes, zeroed, 4 KiB aligned.
  uint8_t* PoolBase() const;
  // Not OK: why there are no memory writes over RDMA although there is a device for them.
  const absl::Status& no_rdma() const;
  // The port an owner listens on.
  uint16_t port() const;
  std::vector<UcxLinkStatus> Links() const;
  UcxTransportCounters counters() const;

  void Grant(const Ticket& ticket) override;
  void Revoke(Generation generation) override;
  void Accept(const Ticket& ticket) override;
  void Write(WriteId id, GrantKey key, uint32_t layer,
             absl::Span<const WritePiece> pieces) override;
  void SendCommit(const Commit& commit) override;
  void Abandon(GrantKey key, const absl::Status& why) override;
  void Poll(std::vector<TransportEvent>& events) override;

  // For the factory.
  class Shared;
  explicit UcxTransport(std::unique_ptr<Shared> shared);

 private:
  std::unique_ptr<Shared> shared_;
};

}  // namespace baton::kv
