// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Drives one protocol core over real sockets and UCX: the thread behind UcxTransport.
//
// One turn: wait if nothing is under way, frames and connections, commands, UCX, data paths,
// what the core is to be told of all that, time.  What happens inside a LinkIo call or a UCX
// callback is told to the core only afterwards (later_), as link_io.h demands.
//
// Thread:     Run is the reactor's; Push, Stop and the snapshots are anyone's.
// Ownership:  the region, workers and the bell outlive it; see the destructor's order.
// Cost:       a turn moves about 1 MiB per writer link at most, and converts as much as its share
//             of the staging area, so that control frames and heartbeats never wait longer than
//             that takes.
#pragma once

#include <atomic>
#include <memory>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "kv_transfer/owner_core.h"
#include "kv_transfer/socket_links.h"
#include "kv_transfer/socket_poller.h"
#include "kv_transfer/ucx_owner_paths.h"
#include "kv_transfer/ucx_region.h"
#include "kv_transfer/ucx_transport.h"
#include "kv_transfer/ucx_worker.h"
#include "kv_transfer/ucx_writer_paths.h"
#include "kv_transfer/writer_core.h"

namespace baton::kv {

struct GrantCommand {
  Ticket ticket;
};
struct RevokeCommand {
  Generation generation;
};
struct AcceptCommand {
  Ticket ticket;
};
struct WriteCommand {
  WriteId id;
  GrantKey key;
  uint32_t layer = 0;
  std::vector<WritePiece> pieces;
};
struct AbandonCommand {
  GrantKey key;
  absl::Status why;
};
using UcxCommand =
    std::variant<GrantCommand, RevokeCommand, AcceptCommand, WriteCommand, Commit, AbandonCommand>;

class UcxReactor final : public LinkIo, public PathHost {
 public:
  struct Parts {
    Role role = Role::kPrefill;
    Hello hello;
    PathPolicy policy;
    SocketLinks::Options sockets;
    LinkOptions link;
    uint32_t check_one_in = 1;
    uint32_t damage_one_in = 0;  // UcxTransportOptions
    uint64_t seed = 0;
    Bell* bell = nullptr;
    const std::atomic<uint64_t>* ticks = nullptr;
    std::unique_ptr<UcxWorker> memory;      // null: no path A on one host
    std::unique_ptr<UcxWorker> rdma;        // null: no path A over RDMA
    std::unique_ptr<UcxListener> listener;  // an owner's, with rdma
    std::unique_ptr<UcxWorker> messages;    // null: no path B
    absl::Status no_rdma;                   // UcxTransport
    UcxRegion region;
  };
  static absl::StatusOr<std::unique_ptr<UcxReactor>> Create(Parts parts);
  ~UcxReactor() override;

  // Until Stop.
  void Run();
  void Stop();

  void Push(UcxCommand command);
  void TakeEvents(std::vector<TransportEvent>& events);
  uint8_t* pool() const { return region_.pool(); }
  uint16_t port() const { return sockets_->port(); }
  std::vector<UcxLinkStatus> Links() const;
  UcxTransportCounters counters() const;

  // LinkIo
  void Send(LinkId link, std::vector<uint8_t> frame) override;
  void Close(LinkId link, const absl::Status& why) override;
  void Prepare(LinkId link, const Hello& peer) override;
  void Post(LinkId link, DataWrite write) override;
  absl::Time Now() const override;
  // PathHost
  void SendPath(LinkId link, const PathMessage& message) override;
  void PathReady(LinkId link, const LinkInfo& info) override;
  void PathFailed(LinkId link, const absl::Status& why) override;
  void PathBroken(LinkId link, const absl::Status& why) override;
  void WriteEnded(uint64_t write, const absl::Status& status) override;
  void TakeGrants() override;
  absl::StatusOr<SocketAddress> PeerAddress(LinkId link) const override;

  // For the factory.
  UcxReactor(Parts parts, SocketPoller poller);

 private:
  struct Traffic {
    uint64_t bytes = 0;
    uint64_t writes = 0;
    bool was_up = false;
  };
  struct PostedWrite {
    LinkId link;
    uint64_t bytes = 0;
    uint8_t* damaged =
        nullptr;  // a byte of the pool, with one bit flipped until the write has ended
  };

  bool HandleReady(absl::Time now);
  bool HandleSockets(absl::Time now);
  bool TakePathMessage(LinkId link, absl::Span<const uint8_t> frame, absl::Time now);
  bool RunCommands();
  bool TakeCommands(absl::FunctionRef<void()> after_each);
  void Run(const UcxCommand& command);
  bool Progress();
  void RunLater();
  void DoClose(LinkId link);
  void Closed(LinkId link, bool fenced);
  void Publish(absl::Time now);
  void PublishLinks(absl::Time now);
  // How long the next turn may wait.
  absl::Duration Idle(bool active, absl::Time now);
  bool ArmWorkers();
  bool StepPaths(absl::Time now);
  bool PathsBusy() const;
  void CloseEverything();

  const Role role_;
  const uint32_t damage_one_in_;
  Bell* const bell_;
  const std::atomic<uint64_t>* const ticks_;
  const RealClock clock_;
  SocketPoller poller_;
  UcxRegion region_;
  std::unique_ptr<UcxWorker> memory_;
  std::unique_ptr<UcxWorker> rdma_;
  std::unique_ptr<UcxWorker> messages_;
  std::vector<UcxWorker*> workers_;  // those that are there
  std::unique_ptr<SocketLinks> sockets_;
  std::unique_ptr<UcxOwnerPaths> owner_paths_;    // an owner's
  std::unique_ptr<UcxWriterPaths> writer_paths_;  // a writer's
  std::unique_ptr<OwnerCore> owner_;
  std::unique_ptr<WriterCore> writer_;
  LinkCore* core_ = nullptr;  // one of them

  std::vector<absl::AnyInvocable<void()>> later_;
  std::vector<ReadyFd> ready_;
  absl::btree_map<LinkId, Traffic> traffic_;
  absl::btree_map<uint64_t, PostedWrite> posted_;  // by write
  uint64_t bytes_written_ = 0;
  absl::Time last_active_ = absl::InfinitePast();
  absl::Time ends_since_ = absl::InfinitePast();  // owner_paths_ has them to tell
  bool links_changed_ = false;
  absl::Time published_ = absl::InfinitePast();
  std::atomic<bool> stopping_{false};

  mutable Mutex mutex_;
  std::vector<UcxCommand> commands_ ABSL_GUARDED_BY(mutex_);
  std::vector<TransportEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::vector<UcxLinkStatus> links_ ABSL_GUARDED_BY(mutex_);
  UcxTransportCounters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace baton::kv
