// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_owner_paths.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/ensure.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "kv_transfer/ucx_lanes.h"
#include "kv_transfer/ucx_message_path.h"
#include "kv_transfer/ucx_process.h"

namespace baton::kv {
namespace {

constexpr uint64_t kWatchKey = uint64_t{4} << 56;
constexpr uint64_t kFlowKey = uint64_t{6} << 56;
constexpr uint64_t kProbeBytesMax = 1u << 20;
static_assert(UcxRegion::kProbeBytes % kProbeBytesMax == 0);
constexpr uint64_t kTurnBytes = 1u << 20;  // of one flow

// A probe's bytes, in their order, as they land: in runs apart from one another, or in one.
std::vector<absl::Span<uint8_t>> RunsOf(absl::Span<uint8_t> place, uint64_t run) {
  if (place.empty()) return {};
  if (run == 0) return {place};
  std::vector<absl::Span<uint8_t>> runs;
  const uint64_t count = place.size() / run;
  for (uint64_t i = 0; i < count; ++i)
    runs.push_back(place.subspan(Scattered(i, count) * run, run));
  if (const uint64_t rest = place.size() % run; rest > 0) runs.push_back(place.last(rest));
  return runs;
}

}  // namespace

// Where the messages of one flow go.
class UcxOwnerPaths::FlowTarget final : public FlowReceiver::Target {
 public:
  FlowTarget(UcxOwnerPaths& paths, Flow& flow) : paths_(paths), link_(flow.link), flow_(flow) {}

  absl::StatusOr<std::vector<absl::Span<uint8_t>>> Begin(const MessageHeader& header,
                                                         uint64_t payload_bytes) override {
    std::vector<absl::Span<uint8_t>> pieces;
    if (header.kind == MessageHeader::Kind::kProbe) {
      if (payload_bytes > kProbeBytesMax) return absl::InvalidArgumentError("a probe is too large");
      flow_.probe = paths_.ProbePlace(link_, header, payload_bytes);
      return RunsOf(flow_.probe, header.offset);
    }
    if (header.offset != 0 || header.total != payload_bytes) {
      return absl::InvalidArgumentError("a write is not one message");
    }
    const std::optional<OwnerCore::Landing> landing = paths_.Permit(link_, header);
    if (!landing.has_value()) return pieces;
    uint8_t* const pool = paths_.region_.pool();
    for (const uint64_t offset : landing->offsets) {
      ENSURE(offset + landing->block_bytes <= paths_.region_.pool_bytes());
      uint8_t* const block = pool + offset;
      if (!pieces.empty() && pieces.back().end() == block) {
        pieces.back() = {pieces.back().data(), pieces.back().size() + landing->block_bytes};
      } else {
        pieces.emplace_back(block, landing->block_bytes);
      }
    }
    return pieces;
  }

  void End(const MessageHeader& header, uint64_t payload_bytes) override {
    if (header.kind == MessageHeader::Kind::kProbe) {
      return paths_.AnswerProbe(link_, header, flow_.probe);
    }
    paths_.Landed(link_, paths_.paths_.at(link_), header.write, payload_bytes);
  }

 private:
  UcxOwnerPaths& paths_;
  const LinkId link_;
  Flow& flow_;
};

UcxOwnerPaths::~UcxOwnerPaths() {
  for (const auto& [key, watched] : watched_) poller_.Remove(watched.fd.get());
  for (const auto& [key, flow] : flows_) poller_.Remove(flow.receiver.fd());
}

void UcxOwnerPaths::Prepare(LinkId link, const Hello& peer) { paths_[link].peer = peer; }

void UcxOwnerPaths::OnMessage(LinkId link, const PathMessage& message) {
  const auto found = paths_.find(link);
  if (found == paths_.end()) return;
  switch (message.step) {
    case PathStep::kPropose:
      return Propose(link, found->second, message);
    case PathStep::kCheck:
      return Check(link, message);
    case PathStep::kMeasured:
      return Measured(link, found->second, message);
    case PathStep::kAnswer:
    case PathStep::kChecked:
    case PathStep::kEcho:
      return;  // an owner's own words
  }
}

void UcxOwnerPaths::Propose(LinkId link, Path& path, const PathMessage& message) {
  // A writer that could write memory does not get to say that it never could (K2).
  if (path.up) {
    return host_.PathBroken(link, absl::InvalidArgumentError("a proposal on a path that is up"));
  }
  EndProbe(link);  // of an earlier proposal that did not come up
  path.proposed = message.path;
  path.client = message.number;
  const absl::Status status = Agree(path, message.path);
  if (!status.ok()) return Answer(link, path, status);
  wait_probe_.push_back(link);
  NextProbe();
}

absl::Status UcxOwnerPaths::Agree(const Path& path, char which) {
  if (which == 'A') return AgreeToMemory(path.peer);
  if (which == 'R') {
    return listener_ != nullptr ? absl::OkStatus()
                                : absl::FailedPreconditionError("RDMA is not offered");
  }
  const bool allowed = which == 'S'   ? policy_.allow_sockets
                       : which == 'B' ? policy_.allow_messages
                                      : false;
  if (!allowed) {
    return absl::FailedPreconditionError("kv_transfer.transport excludes this data path");
  }
  return absl::OkStatus();
}

// Without a way to see the writer's end there is no fence on memory it may write (K2).
absl::Status UcxOwnerPaths::AgreeToMemory(const Hello& peer) {
  if (!policy_.allow_memory || !region_.shared()) {
    return absl::FailedPreconditionError("memory writes are not offered");
  }
  if (peer.process.boot_id != self_.boot_id) {
    return absl::FailedPreconditionError("the peer is on another host");
  }
  for (const auto& [key, watched] : watched_) {
    if (watched.process == peer.process) return absl::OkStatus();
  }
  if (watched_.size() >= kWatchedMax) {
    return absl::ResourceExhaustedError("too many peer processes are watched");
  }
  ASSIGN_OR_RETURN(Fd fd, WatchProcess(self_, peer.process));
  const uint64_t key = kWatchKey | ++last_watched_;
  poller_.Add(fd.get(), key, true, false);
  watched_.emplace(key, Watched{peer.process, std::move(fd)});
  return absl::OkStatus();
}

void UcxOwnerPaths::Answer(LinkId link, Path& path, const absl::Status& status) {
  PathMessage answer{.step = PathStep::kAnswer, .path = path.proposed};
  answer.ok = status.ok();
  answer.text = std::string(status.message());
  if (status.ok()) {
    path.agreed = path.proposed;
    if (path.token == 0) {
      path.token = SplitMix64(reinterpret_cast<uint64_t>(&region_) ^ ++last_token_) | 1;
      tokens_[path.token] = link;
    }
    answer.number = path.token;
  }
  host_.SendPath(link, answer);
}

// Peers are measured one at a time, so that they do not measure one another.
void UcxOwnerPaths::NextProbe() {
  while (!probing_.has_value() && !wait_probe_.empty()) {
    const LinkId link = wait_probe_.front();
    wait_probe_.pop_front();
    const auto found = paths_.find(link);
    if (found == paths_.end()) continue;
    probing_ = link;
    // A writer of memory touches it itself.
    if (DataPathOf(found->second.proposed) != 'A') region_.TouchProbe();
    Answer(link, found->second, absl::OkStatus());
  }
}

void UcxOwnerPaths::EndProbe(LinkId link) {
  wait_probe_.erase(std::remove(wait_probe_.begin(), wait_probe_.end(), link), wait_probe_.end());
  if (probing_ != link) return;
  probing_.reset();
  region_.ForgetProbe();
  NextProbe();
}

UcxOwnerPaths::Path* UcxOwnerPaths::Expecting(uint64_t client) {
  for (auto& [link, path] : paths_) {
    const bool waits = path.agreed == 'R' && path.proposed == 'R' && !path.up;
    if (waits && path.client == client && path.endpoints.size() < kConnectionsMax) return &path;
  }
  return nullptr;
}

bool UcxOwnerPaths::Step() {
  if (listener_ == nullptr) return false;
  const std::vector<UcxListener::Request> requests = listener_->TakeRequests();
  for (const UcxListener::Request& request : requests) {
    Path* const path = Expecting(request.client);
    if (path == nullptr) {
      ++messages_refused_;
      listener_->Reject(request);
      continue;
    }
    auto accepted = listener_->Accept(request);  // if it fails, the writer's end fails too
    if (accepted.ok()) path->endpoints.push_back(*std::move(accepted));
  }
  return !requests.empty();
}

void UcxOwnerPaths::Check(LinkId link, const PathMessage& message) {
  if (probing_ != link || message.bytes > region_.probe().size()) return;
  PathMessage checked{.step = PathStep::kChecked, .path = paths_.at(link).agreed};
  checked.ok = HasPattern(message.seed, region_.probe().subspan(0, message.bytes));
  if (!checked.ok) checked.text = "the pattern written into memory did not arrive";
  host_.SendPath(link, checked);
}

void UcxOwnerPaths::Measured(LinkId link, Path& path, const PathMessage& message) {
  EndProbe(link);
  if (!message.ok) {
    return host_.PathFailed(link, NoPath(message));
  }
  if (path.agreed != message.path) return;
  LinkInfo info;
  info.transport = message.text;
  info.data_path = DataPathOf(message.path);
  info.cost = message.cost;
  info.link_class = ClassOf(info.transport);
  info.expected = ExpectedClass(policy_, self_, path.peer);
  const absl::Status allowed = CheckPolicy(policy_, path.peer.self, info);
  if (!allowed.ok()) return host_.PathFailed(link, allowed);
  path.up = true;
  host_.PathReady(link, info);
}

std::optional<bool> UcxOwnerPaths::Close(LinkId link) {
  EndProbe(link);
  for (auto it = flows_.begin(); it != flows_.end();) {
    if (it->second.link != link) {
      ++it;
      continue;
    }
    poller_.Remove(it->second.receiver.fd());
    it = flows_.erase(it);
  }
  const auto found = paths_.find(link);
  if (found == paths_.end()) return true;  // never prepared
  const bool fenced = found->second.agreed != 'A';
  std::vector<UcxEndpoint> endpoints = std::move(found->second.endpoints);
  tokens_.erase(found->second.token);
  paths_.erase(found);
  if (endpoints.empty()) return fenced;
  closing_[link] = {endpoints.size(), fenced};
  for (UcxEndpoint& endpoint : endpoints) {
    endpoint.Close([this, link](bool confirmed) {
      Closing& closing = closing_.at(link);
      closing.fenced = closing.fenced && confirmed;
      if (--closing.connections > 0) return;
      closed_.emplace_back(link, closing.fenced);
      closing_.erase(link);
    });
  }
  return std::nullopt;
}

void UcxOwnerPaths::OnData(absl::Span<const uint8_t> header, absl::Span<const uint8_t> payload) {
  const absl::StatusOr<MessageHeader> decoded = DecodeMessageHeader(header);
  if (!decoded.ok()) {
    ++messages_refused_;
    return;
  }
  const auto token = tokens_.find(decoded->token);
  const auto found = token == tokens_.end() ? paths_.end() : paths_.find(token->second);
  if (found == paths_.end() || found->second.agreed != 'B') {
    ++messages_refused_;
    return;
  }
  if (decoded->kind == MessageHeader::Kind::kData) {
    return Land(found->first, found->second, *decoded, payload);
  }
  // A probe costs what a landing costs.
  const absl::Span<uint8_t> place = ProbePlace(found->first, *decoded, payload.size());
  for (const absl::Span<uint8_t> run : RunsOf(place, decoded->offset)) {
    std::memcpy(run.data(), payload.data(), run.size());
    payload.remove_prefix(run.size());
  }
  if (!place.empty()) AnswerProbe(found->first, *decoded, place);
}

// A pattern lands where nothing else does: what another link sent last may still come.
absl::Span<uint8_t> UcxOwnerPaths::ProbePlace(LinkId link, const MessageHeader& header,
                                              uint64_t bytes) {
  if (probing_ != link || bytes > kProbeBytesMax) return {};
  const uint64_t first = header.total != 0 ? 0 : kProbeBytesMax;
  if (probe_at_ < first || probe_at_ + bytes > UcxRegion::kProbeBytes) probe_at_ = first;
  const uint64_t at = header.total != 0 ? 0 : probe_at_;
  probe_at_ = at + bytes;
  return region_.probe().subspan(at, bytes);
}

void UcxOwnerPaths::AnswerProbe(LinkId link, const MessageHeader& header,
                                absl::Span<const uint8_t> payload) {
  PathMessage answer{.step = PathStep::kEcho, .path = 'B'};
  answer.number = header.write;
  if (header.total != 0) {
    answer.step = PathStep::kChecked;
    answer.ok = HasPattern(header.total, payload);
    if (!answer.ok) answer.text = "the pattern sent over TCP arrived damaged";
  }
  host_.SendPath(link, answer);
}

std::optional<OwnerCore::Landing> UcxOwnerPaths::Permit(LinkId link, const MessageHeader& header) {
  const auto data = DecodeDataHeader(header.data_header);
  if (!data.ok() || data->write != header.write) {
    ++messages_refused_;
    return std::nullopt;
  }
  host_.TakeGrants();
  auto landing = core_->CheckArrival(link, *data, header.total);
  if (!landing.ok()) return std::nullopt;  // counted and answered by the core
  ENSURE(landing->block_bytes * landing->offsets.size() == header.total);
  return *std::move(landing);
}

void UcxOwnerPaths::Landed(LinkId link, Path& path, uint64_t write, uint64_t bytes) {
  path.bytes_landed += bytes;
  bytes_landed_ += bytes;
  core_->Landed(link, write);
}

void UcxOwnerPaths::Land(LinkId link, Path& path, const MessageHeader& header,
                         absl::Span<const uint8_t> payload) {
  auto state = path.landings.find(header.write);
  if (header.offset == 0) {
    if (state != path.landings.end()) {
      ++messages_refused_;
      return;
    }
    auto landing = Permit(link, header);
    if (!landing.has_value()) return;
    state = path.landings.emplace(header.write, LandingState{*std::move(landing)}).first;
    state->second.total = header.total;
  } else if (state == path.landings.end()) {
    ++messages_refused_;  // the rest of a write whose first message was refused
    return;
  }
  LandingState& landing = state->second;
  if (header.offset != landing.received || payload.size() > landing.total - landing.received) {
    path.landings.erase(state);
    return core_->LinkLost(link, absl::InvalidArgumentError("a write's messages do not add up"));
  }
  const uint64_t block_bytes = landing.landing.block_bytes;
  while (!payload.empty()) {
    const uint64_t within = landing.received % block_bytes;
    const uint64_t bytes = std::min<uint64_t>(payload.size(), block_bytes - within);
    const uint64_t at = landing.landing.offsets[landing.received / block_bytes] + within;
    ENSURE(at + bytes <= region_.pool_bytes());
    std::memcpy(region_.pool() + at, payload.data(), bytes);
    landing.received += bytes;
    payload.remove_prefix(bytes);
  }
  if (landing.received < landing.total) return;
  const uint64_t total = landing.total;
  path.landings.erase(state);
  Landed(link, path, header.write, total);
}

void UcxOwnerPaths::AddFlow(Fd fd, uint64_t token) {
  const auto named = tokens_.find(token);
  const auto path = named == tokens_.end() ? paths_.end() : paths_.find(named->second);
  const auto of_link = [&](const auto& entry) { return entry.second.link == named->second; };
  if (path == paths_.end() || path->second.agreed != 'S' ||
      std::count_if(flows_.begin(), flows_.end(), of_link) >= kFlowsMax) {
    ++messages_refused_;
    return;
  }
  const uint64_t key = kFlowKey | ++last_flow_;
  poller_.Add(fd.get(), key, true, false);
  flows_.emplace(key, Flow{path->first, FlowReceiver(std::move(fd)), {}});
}

// Between two messages it is the control link that says what has become of the peer.
void UcxOwnerPaths::EndFlow(uint64_t key, const absl::Status& why) {
  const auto found = flows_.find(key);
  poller_.Remove(found->second.receiver.fd());
  if (found->second.receiver.in_message() || absl::IsInvalidArgument(why)) {
    broken_.emplace_back(found->second.link, why);
  }
  flows_.erase(found);
}

bool UcxOwnerPaths::Handle(const ReadyFd& ready) {
  const auto flow = flows_.find(ready.key);
  if (flow != flows_.end()) {
    FlowTarget target(*this, flow->second);
    const absl::Status read = flow->second.receiver.Receive(kTurnBytes, target);
    if (!read.ok()) EndFlow(ready.key, read);
    return true;
  }
  const auto watched = watched_.find(ready.key);
  if (watched == watched_.end()) return false;
  poller_.Remove(watched->second.fd.get());
  exits_.push_back(watched->second.process);
  watched_.erase(watched);
  return true;
}

void UcxOwnerPaths::TellEnds() {
  for (const ProcessId& process : std::exchange(exits_, {})) core_->ProcessExited(process);
  for (const auto& [link, why] : std::exchange(broken_, {})) core_->LinkLost(link, why);
}

uint64_t UcxOwnerPaths::bytes_landed(LinkId link) const {
  const auto found = paths_.find(link);
  return found == paths_.end() ? 0 : found->second.bytes_landed;
}

}  // namespace baton::kv
