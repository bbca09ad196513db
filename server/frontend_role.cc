// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The front end: edge (HTTP, gRPC), desk, dispatcher on its loop, calls to workers.
#include <grpcpp/impl/codegen/service_type.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "router/dispatcher.h"
#include "server/client_desk.h"
#include "server/frontend_model.h"
#include "server/grpc_server.h"
#include "server/grpc_worker_client.h"
#include "server/inference_service.h"
#include "server/openai_api.h"
#include "server/role.h"
#include "server/role_loop.h"
#include "server/work_pool.h"

namespace baton::server {
namespace {

// A loop that did not turn for this long is wedged, not busy: a turn takes microseconds.
constexpr absl::Duration kWedged = absl::Seconds(10);
constexpr int kPoolThreads = 2;
constexpr size_t kPoolWaiting = 4096;

struct WorkerList {
  std::vector<router::WorkerSpec> specs;
  std::vector<std::string> addresses;
};

WorkerList WorkersOf(const config::Config& config) {
  WorkerList list;
  auto add = [&](const std::vector<config::Worker>& workers, Role role) {
    for (const config::Worker& worker : workers) {
      list.specs.push_back({worker.name, role});
      list.addresses.push_back(worker.advertise_listen.value_or(worker.listen).text());
    }
  };
  add(config.workers.prefill, Role::kPrefill);
  add(config.workers.decode, Role::kDecode);
  return list;
}

router::Dispatcher::Options DispatcherOptions(const config::Config& config) {
  router::Dispatcher::Options options;
  options.colocate_below_tokens = config.router.colocate_below_tokens;
  options.attempts_max = config.router.attempts_max;
  options.resume = config.router.resume;
  options.queue_requests = config.limits.queue_requests;
  options.queue_tokens = config.limits.queue_tokens;
  options.progress_timeout = config.kv_transfer.progress_timeout;
  return options;
}

MetricFamily Gauge(const char* name, const char* help, double value) {
  return {name, help, MetricKind::kGauge, {{{}, value}}};
}

std::vector<MetricFamily> FamiliesOf(const router::Snapshot& s) {
  std::vector<MetricFamily> families;
  families.push_back(Gauge("baton_requests_running", "Requests whose tokens flow.", s.running));
  MetricFamily waiting = {
      "baton_requests_waiting", "Requests that wait, by what for.", MetricKind::kGauge, {}};
  for (size_t i = 0; i < s.waiting.size(); ++i) {
    waiting.samples.push_back(
        {{{"stage", router::kWaitingStageNames[i]}}, static_cast<double>(s.waiting[i])});
  }
  MetricFamily peers = {
      "baton_peers", "Configured workers, by pool and state.", MetricKind::kGauge, {}};
  MetricFamily attempts = {
      "baton_attempts_total", "Attempts that ended, by how.", MetricKind::kCounter, {}};
  for (size_t i = 0; i < router::kPeerMetrics; ++i) {
    const char* state = router::kPeerMetricNames[i];
    peers.samples.push_back(
        {{{"pool", "prefill"}, {"state", state}}, static_cast<double>(s.prefill_peers[i])});
    peers.samples.push_back(
        {{{"pool", "decode"}, {"state", state}}, static_cast<double>(s.decode_peers[i])});
  }
  for (size_t i = 0; i < router::kAttemptResults; ++i) {
    attempts.samples.push_back(
        {{{"result", router::kAttemptResultNames[i]}}, static_cast<double>(s.attempts[i])});
  }
  families.push_back(std::move(waiting));
  families.push_back(std::move(peers));
  families.push_back(std::move(attempts));
  auto counter = [&](const char* name, const char* help, MetricLabels labels, double value) {
    families.push_back({name, help, MetricKind::kCounter, {{std::move(labels), value}}});
  };
  counter("baton_resumes_total", "Answers continued by another attempt.", {},
          static_cast<double>(s.resumes));
  counter("baton_peer_reconnects_total", "Workers that came back.", {},
          static_cast<double>(s.reconnects));
  families.push_back({"baton_kv_stale_messages_total",
                      "Messages that name nothing alive (K4), or that break the protocol.",
                      MetricKind::kCounter,
                      {{{{"kind", "attempt"}}, static_cast<double>(s.late_messages)},
                       {{{"kind", "protocol"}}, static_cast<double>(s.protocol_errors)}}});
  return families;
}

class FrontendRole final : public RoleProcess {
 public:
  explicit FrontendRole(const RoleOptions& options)
      : config_(options.config),
        incarnation_(options.incarnation),
        metrics_(MakeMetrics("frontend", config_.model.name)),
        frontend_metrics_(metrics_.get()),
        loop_(&clock_),
        desk_(std::make_unique<ClientDesk>(loop_.bell(), &clock_)),
        pool_(std::make_unique<WorkPool>(kPoolThreads, kPoolWaiting)) {}

  ~FrontendRole() override { Stop(); }

  void Stop() override {
    if (std::exchange(stopped_, true)) return;
    loop_.Stop();
    desk_->Abort(absl::UnavailableError("the front end stops"));
    if (grpc_ != nullptr) grpc_->Stop(absl::Seconds(1));
    for (HttpServer* server : {http_.get(), admin_.get()}) {
      if (server != nullptr) server->Stop();
    }
    pool_.reset();
    desk_.reset();
  }

  absl::Status Start(const RoleOptions& options) {
    metrics_->AddSource([this] { return FamiliesOf(snapshot()); });
    ASSIGN_OR_RETURN(admin_, Listen(config_.frontend.admin, 1, AdminHandler(ProbesOf(true))));
    ASSIGN_OR_RETURN(model_, FrontendModel::Load(config_.model.path, config_.model.name,
                                                 config_.model.max_context));
    const WorkerList workers = WorkersOf(config_);
    client_ = std::make_unique<GrpcWorkerClient>(workers.addresses, incarnation_, loop_.bell());
    dispatcher_ = std::make_unique<router::Dispatcher>(DispatcherOptions(config_), workers.specs,
                                                       *client_, incarnation_, options.seed);
    const Answer::Context answer = {desk_.get(), &frontend_metrics_, &model_->tokenizer(), &clock_};
    RETURN_IF_ERROR(ServeHttp(answer));
    RETURN_IF_ERROR(ServeGrpc(answer));
    loop_.Start([this](absl::Time now) { return Turn(now); });
    return absl::OkStatus();
  }

  absl::Status Poll() override {
    grpc_->SetReady(ready());
    return absl::OkStatus();
  }
  bool ready() const override { return started_ && !draining_ && snapshot().ready; }
  void StartDrain() override {
    draining_ = true;
    grpc_->SetReady(false);
    loop_.bell()->Ring();
  }
  bool drained() const override { return draining_ && idle_ && desk_->open() == 0; }

 private:
  absl::StatusOr<std::unique_ptr<HttpServer>> Listen(const config::Address& address, int threads,
                                                     HttpHandler handler) {
    HttpServer::Options options;
    options.host = address.host;
    options.port = address.port;
    options.threads = threads;
    options.limits.body_bytes = config_.limits.body_bytes;
    options.limits.stream_buffer_bytes = config_.limits.stream_buffer_bytes;
    return HttpServer::Start(options, std::move(handler));
  }

  absl::Status ServeHttp(const Answer::Context& answer) {
    OpenAiApi::Options options;
    options.answer = answer;
    options.model = model_.get();
    options.pool = pool_.get();
    options.probes = ProbesOf(false);
    options.default_deadline = config_.limits.default_deadline;
    options.id_prefix = ToString(incarnation_);
    options.created = std::chrono::duration_cast<std::chrono::seconds>(
                          std::chrono::system_clock::now().time_since_epoch())
                          .count();
    api_ = std::make_unique<OpenAiApi>(std::move(options));
    ASSIGN_OR_RETURN(http_, Listen(config_.frontend.http, 2,
                                   [this](const std::shared_ptr<HttpExchange>& exchange) {
                                     api_->Handle(exchange);
                                   }));
    return absl::OkStatus();
  }

  absl::Status ServeGrpc(const Answer::Context& answer) {
    InferenceOptions options;
    options.answer = answer;
    options.model = model_.get();
    options.pool = pool_.get();
    options.default_deadline = config_.limits.default_deadline;
    options.buffer_bytes = config_.limits.stream_buffer_bytes;
    service_ = MakeInferenceService(options);
    ASSIGN_OR_RETURN(grpc_, GrpcServer::Start(config_.frontend.grpc.text(), {service_.get()}));
    started_ = true;
    return absl::OkStatus();
  }

  Probes ProbesOf(bool admin) {
    Probes probes;
    probes.live = [this] { return !started_ || clock_.Now() - loop_.last_turn() < kWedged; };
    probes.ready = [this] { return ready(); };
    probes.detail = [this] { return Detail(); };
    if (admin) probes.metrics = metrics_.get();
    return probes;
  }

  // What `baton up` and people want to know of readiness.
  std::string Detail() const {
    nlohmann::ordered_json detail = {{"draining", draining_.load()}, {"workers", {}}, {"links", 0}};
    if (!started_) return detail.dump();
    size_t links = 0, index = 0;
    const auto statuses = client_->Statuses();
    const std::vector<router::PeerMetric> peers = snapshot().peers;
    for (const auto* workers : {&config_.workers.prefill, &config_.workers.decode}) {
      for (const config::Worker& worker : *workers) {
        const std::optional<WorkerStatus>& status = statuses[index];
        // What a worker said last is no sign that it is still there.
        const bool there =
            status && index < peers.size() && peers[index] != router::PeerMetric::kDead;
        ++index;
        detail["workers"][worker.name] = !there ? "away" : status->ready ? "ready" : "starting";
        if (there && status->role == Role::kDecode) links += status->links.size();
      }
    }
    detail["links"] = links;
    return detail.dump();
  }

  absl::Time Turn(absl::Time now) {
    if (draining_ && !std::exchange(drain_told_, true)) dispatcher_->StartDrain();
    for (router::ClientInput& input : desk_->TakeInputs()) dispatcher_->Receive(std::move(input));
    dispatcher_->Tick(now);
    desk_->Deliver(dispatcher_->TakeOutputs());
    idle_ = drain_told_ && dispatcher_->idle();
    router::Snapshot snapshot = dispatcher_->snapshot();
    LogPeers(snapshot.peers);
    {
      MutexLock lock(&mutex_);
      snapshot_ = std::move(snapshot);
    }
    return dispatcher_->NextWake();
  }

  // Workers come and go rarely; each time is worth a line.
  void LogPeers(const std::vector<router::PeerMetric>& peers) {
    logged_peers_.resize(peers.size(), router::PeerMetric::kConnecting);
    for (size_t i = 0; i < peers.size(); ++i) {
      const router::PeerMetric was = std::exchange(logged_peers_[i], peers[i]);
      if (was == peers[i]) continue;
      const size_t prefills = config_.workers.prefill.size();
      const config::Worker& worker =
          i < prefills ? config_.workers.prefill[i] : config_.workers.decode[i - prefills];
      LogInfo("worker", {{"worker", worker.name},
                         {"state", router::kPeerMetricNames[static_cast<size_t>(peers[i])]},
                         {"was", router::kPeerMetricNames[static_cast<size_t>(was)]}});
    }
  }

  router::Snapshot snapshot() const {
    MutexLock lock(&mutex_);
    return snapshot_;
  }

  bool stopped_ = false;  // the main thread's
  const config::Config config_;
  const Incarnation incarnation_;
  const RealClock clock_;
  std::atomic<bool> started_{false}, draining_{false}, idle_{false};
  mutable Mutex mutex_;
  router::Snapshot snapshot_ ABSL_GUARDED_BY(mutex_);
  bool drain_told_ = false;                       // the loop's
  std::vector<router::PeerMetric> logged_peers_;  // the loop's

  const std::unique_ptr<Metrics> metrics_;
  FrontendMetrics frontend_metrics_;
  std::unique_ptr<HttpServer> admin_, http_;  // outlive every exchange
  std::unique_ptr<FrontendModel> model_;
  RoleLoop loop_;
  std::unique_ptr<GrpcWorkerClient> client_;
  std::unique_ptr<router::Dispatcher> dispatcher_;
  std::unique_ptr<ClientDesk> desk_;
  std::unique_ptr<WorkPool> pool_;
  std::unique_ptr<OpenAiApi> api_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<GrpcServer> grpc_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RoleProcess>> StartFrontend(const RoleOptions& options) {
  auto role = std::make_unique<FrontendRole>(options);
  RETURN_IF_ERROR(role->Start(options));
  return role;
}

}  // namespace baton::server
