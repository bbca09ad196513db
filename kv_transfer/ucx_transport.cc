// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_transport.h"

#include <sys/resource.h>

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/ensure.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/this_thread.h"
#include "kv_transfer/revoke_filter.h"
#include "kv_transfer/ucx_process.h"
#include "kv_transfer/ucx_reactor.h"

namespace baton::kv {
namespace {

// Transports that count as RDMA, for the check at start.
constexpr char kRdmaTransports[] = "rc,dc,ud";

// Registration would fail late, and only where the pool is large.
absl::Status CheckMemlock(uint64_t pool_bytes) {
  rlimit memlock = {};
  getrlimit(RLIMIT_MEMLOCK, &memlock);
  if (memlock.rlim_cur == RLIM_INFINITY || memlock.rlim_cur >= pool_bytes) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "kv_transfer.require_rdma is true, but memlock (`ulimit -l`) is ", memlock.rlim_cur >> 10,
      " KiB and the KV pool has ", pool_bytes >> 10,
      " KiB: set it to unlimited (systemd: LimitMEMLOCK=infinity; a container: IPC_LOCK)"));
}

absl::Status CheckRdma(const UcxTransportOptions& options) {
  RETURN_IF_ERROR(CheckMemlock(options.layout.pool_bytes()));
  const auto rdma = UcxWorker::Create(
      {.path = DataPath::kMemoryWrites, .devices = options.devices, .transports = kRdmaTransports});
  if (rdma.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "kv_transfer.require_rdma is true, but UCX finds no RDMA transport on the devices [",
      absl::StrJoin(options.devices, ", "),
      "]: name one in kv_transfer.devices (`ibv_devices` lists them; `ulimit -l` must be "
      "unlimited) or set require_rdma to false"));
}

bool WantsMemory(TransportChoice choice) {
  return choice == TransportChoice::kAuto || choice == TransportChoice::kShm;
}

bool WantsSockets(TransportChoice choice) {
  return choice == TransportChoice::kAuto || choice == TransportChoice::kTcp;
}

absl::Status OpenWorkers(const UcxTransportOptions& options, UcxReactor::Parts& parts) {
  const bool want_memory = WantsMemory(options.choice);
  const bool want_messages = options.choice != TransportChoice::kShm && !options.require_rdma;
  if (want_memory) {
    auto worker = UcxWorker::Create({.path = DataPath::kMemoryWrites, .devices = options.devices});
    if (!worker.ok() && !want_messages) return worker.status();
    if (worker.ok()) parts.memory = *std::move(worker);
  }
  if (want_messages) {
    auto worker =
        UcxWorker::Create({.path = DataPath::kCheckedMessages, .devices = options.devices});
    const bool others = parts.memory != nullptr || WantsSockets(options.choice);
    if (!worker.ok() && !others) return worker.status();
    if (worker.ok()) parts.messages = *std::move(worker);
  }
  return absl::OkStatus();
}

absl::Status MakeOffers(const UcxTransportOptions& options, UcxReactor::Parts& parts) {
  const uint64_t bytes = options.layout.pool_bytes();
  const bool owner = options.role == Role::kDecode;
  if (owner && parts.memory != nullptr) {
    const uint64_t nonce = SplitMix64(options.seed ^ options.self.incarnation.value());
    ASSIGN_OR_RETURN(parts.region, UcxRegion::Shared(*parts.memory, bytes, nonce));
    ASSIGN_OR_RETURN(const MemoryOffer offer, parts.region.Offer(*parts.memory));
    parts.hello.offers.push_back({'A', "memory", Encode(offer)});
  } else {
    const uint64_t memory =
        owner ? bytes
              : WriterCore::MemoryBytes({.link = parts.link}, options.layout, options.peers.size());
    ASSIGN_OR_RETURN(parts.region, UcxRegion::Private(bytes, memory));
  }
  if (owner && parts.policy.allow_sockets) parts.hello.offers.push_back({'S', "tcp", {}});
  if (owner && parts.messages != nullptr) {
    parts.hello.offers.push_back({'B', "tcp", parts.messages->address()});
  }
  return absl::OkStatus();
}

absl::Status ReadAddresses(const UcxTransportOptions& options, SocketLinks::Options& sockets) {
  ASSIGN_OR_RETURN(const HostPort own, SplitHostPort(options.listen));
  sockets.seed = SplitMix64(options.seed);
  if (options.role == Role::kDecode) {
    ASSIGN_OR_RETURN(sockets.listen, ResolveNow(own));
    return absl::OkStatus();
  }
  for (const UcxTransportPeer& peer : options.peers) {
    ASSIGN_OR_RETURN(const HostPort target, SplitHostPort(peer.address));
    sockets.dial.push_back({peer.worker, target});
  }
  return absl::OkStatus();
}

}  // namespace

class UcxTransport::Shared {
 public:
  explicit Shared(std::unique_ptr<UcxReactor> reactor)
      : reactor_(std::move(reactor)), thread_([this] {
          NameThisThread("kv-reactor");
          reactor_->Run();
        }) {}
  ~Shared() { Finish(); }
  void Finish() {
    if (!thread_.joinable()) return;
    reactor_->Stop();
    thread_.join();
  }

  UcxReactor& reactor() { return *reactor_; }
  RevokeFilter& filter() { return filter_; }

 private:
  std::unique_ptr<UcxReactor> reactor_;
  RevokeFilter filter_;  // the owner thread's
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(
    const UcxTransportOptions& options) {
  ENSURE(options.role != Role::kFrontend);
  if (const auto bad = CheckLayout(options.layout)) {
    return absl::InvalidArgumentError(bad->message);
  }
  UcxReactor::Parts parts;
  RETURN_IF_ERROR(ReadAddresses(options, parts.sockets));
  if (options.require_rdma) RETURN_IF_ERROR(CheckRdma(options));
  ASSIGN_OR_RETURN(const SelfDescription self, DescribeSelf());
  parts.role = options.role;
  parts.hello.self = options.self;
  parts.hello.role = options.role;
  parts.hello.process = self.process;
  parts.hello.host = self.host;
  parts.hello.net_namespace = self.net_namespace;
  parts.hello.ipc_namespace = self.ipc_namespace;
  parts.hello.model_fingerprint = options.model_fingerprint;
  parts.hello.layout = options.layout;
  parts.hello.numeric_class = options.numeric_class;
  parts.policy.allow_memory = WantsMemory(options.choice);
  parts.policy.allow_sockets = WantsSockets(options.choice) && !options.require_rdma;
  parts.policy.allow_messages = options.choice != TransportChoice::kShm;
  parts.policy.net_namespace = self.net_namespace;
  parts.policy.require_rdma = options.require_rdma;
  parts.policy.min_bandwidth = options.min_bandwidth;
  parts.link.pair = options.pair;
  parts.link.stuck_after = options.stuck_after;
  parts.check_one_in = options.check_one_in;
  parts.damage_one_in = options.damage_one_in;
  parts.seed = options.seed;
  parts.bell = options.bell;
  parts.ticks = options.ticks;
  RETURN_IF_ERROR(OpenWorkers(options, parts));
  RETURN_IF_ERROR(MakeOffers(options, parts));
  ASSIGN_OR_RETURN(std::unique_ptr<UcxReactor> reactor, UcxReactor::Create(std::move(parts)));
  return std::make_unique<UcxTransport>(std::make_unique<Shared>(std::move(reactor)));
}

UcxTransport::UcxTransport(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}
UcxTransport::~UcxTransport() = default;
void UcxTransport::Finish() { shared_->Finish(); }

uint8_t* UcxTransport::PoolBase() const { return shared_->reactor().pool(); }
uint16_t UcxTransport::port() const { return shared_->reactor().port(); }
std::vector<UcxLinkStatus> UcxTransport::Links() const { return shared_->reactor().Links(); }
UcxTransportCounters UcxTransport::counters() const { return shared_->reactor().counters(); }

void UcxTransport::Grant(const Ticket& ticket) { shared_->reactor().Push(GrantCommand{ticket}); }

void UcxTransport::Revoke(Generation generation) {
  shared_->filter().Revoked(generation);
  shared_->reactor().Push(RevokeCommand{generation});
}

void UcxTransport::Accept(const Ticket& ticket) { shared_->reactor().Push(AcceptCommand{ticket}); }

void UcxTransport::Write(WriteId id, GrantKey key, uint32_t layer,
                         absl::Span<const WritePiece> pieces) {
  shared_->reactor().Push(WriteCommand{id, key, layer, {pieces.begin(), pieces.end()}});
}

void UcxTransport::SendCommit(const Commit& commit) { shared_->reactor().Push(commit); }

void UcxTransport::Abandon(GrantKey key, const absl::Status& why) {
  shared_->reactor().Push(AbandonCommand{key, why});
}

void UcxTransport::Poll(std::vector<TransportEvent>& events) {
  std::vector<TransportEvent> fresh;
  shared_->reactor().TakeEvents(fresh);
  for (TransportEvent& event : fresh) {
    if (shared_->filter().Passes(event)) events.push_back(std::move(event));
  }
}

}  // namespace baton::kv
