// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_transport.h"

#include <sys/resource.h>

#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/ensure.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/this_thread.h"
#include "kv_transfer/revoke_filter.h"
#include "kv_transfer/ucx_devices.h"
#include "kv_transfer/ucx_listener.h"
#include "kv_transfer/ucx_process.h"
#include "kv_transfer/ucx_reactor.h"

namespace baton::kv {
namespace {

// Registration would fail late, and only where the pool is large.
absl::Status CheckMemlock(uint64_t pool_bytes) {
  rlimit memlock = {};
  getrlimit(RLIMIT_MEMLOCK, &memlock);
  if (memlock.rlim_cur == RLIM_INFINITY || memlock.rlim_cur >= pool_bytes) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "memlock (`ulimit -l`) is ", memlock.rlim_cur >> 10, " KiB and the KV pool has ",
      pool_bytes >> 10,
      " KiB: set it to unlimited (systemd: LimitMEMLOCK=infinity; a container: IPC_LOCK)"));
}

std::vector<std::string> Names(const std::set<std::string>& set) {
  return {set.begin(), set.end()};
}

std::vector<std::string> In(const std::vector<std::string>& names, const std::set<std::string>& set,
                            bool in) {
  std::vector<std::string> result;
  for (const std::string& name : names) {
    if (set.contains(name) == in) result.push_back(name);
  }
  return result;
}

bool WantsMemory(TransportChoice choice) {
  return choice == TransportChoice::kAuto || choice == TransportChoice::kShm;
}

bool WantsRdma(TransportChoice choice) { return choice == TransportChoice::kAuto; }

bool WantsSockets(TransportChoice choice) {
  return choice == TransportChoice::kAuto || choice == TransportChoice::kTcp;
}

// The way on without RDMA.
absl::Status NoRdma(const UcxTransportOptions& options, const absl::Status& why,
                    UcxReactor::Parts& parts) {
  parts.listener.reset();
  parts.rdma.reset();
  parts.no_rdma = why;
  if (!options.require_rdma) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "kv_transfer.require_rdma is true, but ", why.message(),
      ": name an RDMA device in kv_transfer.devices (`ibv_devices` lists them; `ulimit -l` must be "
      "unlimited) or set require_rdma to false"));
}

// A context for memory writes over RDMA, and where an owner is reached.
absl::Status OpenRdma(const UcxTransportOptions& options, const UcxDevices& found,
                      std::vector<std::string> devices, UcxReactor::Parts& parts) {
  UcxWorker::Options worker{.path = DataPath::kRdmaWrites, .devices = std::move(devices)};
  worker.rdma = Names(found.rdma_transports);
  worker.owner = options.role == Role::kDecode;
  // No secret: an owner believes it only of a connection that comes while a link that has said it
  // waits for one.
  worker.client = SplitMix64(options.seed + options.self.incarnation.value()) | 1;
  ASSIGN_OR_RETURN(parts.rdma, UcxWorker::Create(worker));
  if (!worker.owner) return absl::OkStatus();
  ASSIGN_OR_RETURN(parts.listener,
                   UcxListener::Create(*parts.rdma, parts.sockets.listen->WithPort(0)));
  return absl::OkStatus();
}

// An error where the configuration demands RDMA; else only a word, where there is a device.
absl::Status TryRdma(const UcxTransportOptions& options, const UcxDevices& found,
                     UcxReactor::Parts& parts) {
  if (!WantsRdma(options.choice)) return absl::OkStatus();
  std::vector<std::string> devices = In(options.devices, found.rdma_devices, true);
  const bool any = !found.rdma_devices.empty() && (options.devices.empty() || !devices.empty());
  if (!any && !options.require_rdma) return absl::OkStatus();
  absl::Status status = CheckMemlock(options.layout.pool_bytes() + UcxRegion::kProbeBytes);
  if (status.ok() && !any) {
    status = absl::NotFoundError(absl::StrCat("UCX finds no RDMA transport on the devices [",
                                              absl::StrJoin(options.devices, ", "), "]"));
  }
  if (status.ok()) status = OpenRdma(options, found, std::move(devices), parts);
  if (status.ok()) return status;
  return NoRdma(options, status, parts);
}

absl::Status OpenWorkers(const UcxTransportOptions& options, UcxReactor::Parts& parts) {
  ASSIGN_OR_RETURN(const UcxDevices found, FindUcxDevices());
  RETURN_IF_ERROR(TryRdma(options, found, parts));
  if (options.require_rdma) return absl::OkStatus();
  const bool want_memory = WantsMemory(options.choice);
  const bool want_messages = options.choice != TransportChoice::kShm;
  // UCX takes names of RDMA devices for slips where it may only use TCP.
  const std::vector<std::string> devices = In(options.devices, found.rdma_devices, false);
  if (want_memory) {
    auto worker = UcxWorker::Create({.path = DataPath::kMemoryWrites,
                                     .devices = devices,
                                     .rdma = Names(found.rdma_transports)});
    if (!worker.ok() && !want_messages) return worker.status();
    if (worker.ok()) parts.memory = *std::move(worker);
  }
  const bool only_rdma = devices.empty() && !options.devices.empty();
  if (want_messages && !(only_rdma && WantsSockets(options.choice))) {
    auto worker = UcxWorker::Create(
        {.path = DataPath::kCheckedMessages, .devices = only_rdma ? options.devices : devices});
    const bool others = parts.memory != nullptr || WantsSockets(options.choice);
    if (!worker.ok() && !others) return worker.status();
    if (worker.ok()) parts.messages = *std::move(worker);
  }
  return absl::OkStatus();
}

// The pool's memory; where memory writes can come, with what peers need to verify them.
absl::StatusOr<UcxRegion> MakeRegion(const UcxTransportOptions& options,
                                     const UcxReactor::Parts& parts) {
  const uint64_t bytes = options.layout.pool_bytes();
  const bool reached = parts.memory != nullptr || parts.rdma != nullptr;
  if (options.role == Role::kPrefill) {
    const WriterCore::Options writer{.link = parts.link};
    return UcxRegion::Private(
        bytes, WriterCore::MemoryBytes(writer, options.layout, options.peers.size()));
  }
  if (!reached) return UcxRegion::Private(bytes, bytes);
  const uint64_t nonce = SplitMix64(options.seed ^ options.self.incarnation.value());
  return parts.memory != nullptr ? UcxRegion::Shared(*parts.memory, bytes, nonce)
                                 : UcxRegion::Unshared(bytes, nonce);
}

absl::Status MakeOffers(const UcxTransportOptions& options, UcxReactor::Parts& parts) {
  ASSIGN_OR_RETURN(parts.region, MakeRegion(options, parts));
  if (parts.rdma != nullptr) {
    const absl::Status registered = parts.region.Register(*parts.rdma);
    if (!registered.ok()) RETURN_IF_ERROR(NoRdma(options, registered, parts));
  }
  if (options.role != Role::kDecode) return absl::OkStatus();
  if (parts.memory != nullptr) {
    ASSIGN_OR_RETURN(const MemoryOffer offer, parts.region.Offer(*parts.memory));
    parts.hello.offers.push_back({'A', "memory", Encode(offer)});
  }
  if (parts.rdma != nullptr) {
    ASSIGN_OR_RETURN(const MemoryOffer offer, parts.region.RdmaOffer(parts.listener->port()));
    parts.hello.offers.push_back({'R', "rc", Encode(offer)});
  }
  if (parts.policy.allow_sockets) parts.hello.offers.push_back({'S', "tcp", {}});
  if (parts.messages != nullptr) {
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
  Shared(std::unique_ptr<UcxReactor> reactor, const absl::Status& no_rdma)
      : reactor_(std::move(reactor)), no_rdma_(no_rdma), thread_([this] {
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
  const absl::Status& no_rdma() const { return no_rdma_; }

 private:
  std::unique_ptr<UcxReactor> reactor_;
  const absl::Status no_rdma_;
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
  parts.policy.allow_memory = WantsMemory(options.choice) && !options.require_rdma;
  parts.policy.allow_sockets = WantsSockets(options.choice) && !options.require_rdma;
  parts.policy.allow_messages = options.choice != TransportChoice::kShm && !options.require_rdma;
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
  const absl::Status no_rdma = parts.no_rdma;
  ASSIGN_OR_RETURN(std::unique_ptr<UcxReactor> reactor, UcxReactor::Create(std::move(parts)));
  return std::make_unique<UcxTransport>(std::make_unique<Shared>(std::move(reactor), no_rdma));
}

UcxTransport::UcxTransport(std::unique_ptr<Shared> shared) : shared_(std::move(shared)) {}
UcxTransport::~UcxTransport() = default;
void UcxTransport::Finish() { shared_->Finish(); }

uint8_t* UcxTransport::PoolBase() const { return shared_->reactor().pool(); }
const absl::Status& UcxTransport::no_rdma() const { return shared_->no_rdma(); }
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
