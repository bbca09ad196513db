// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/worker_role.h"

#include <grpcpp/impl/codegen/service_type.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/this_thread.h"
#include "engine/forward.h"
#include "engine/gguf.h"
#include "engine/model_loader.h"
#include "server/probes.h"

namespace baton::server {
namespace {

// Part of the numeric class (K8): raise it when a kernel's result changes.
constexpr int kKernelVersion = 3;
constexpr absl::Duration kWedged = absl::Seconds(10);

engine::Isa IsaOf(const std::string& name) {
  if (name == "avx2") return engine::Isa::kAvx2;
  return name == "avx512" ? engine::Isa::kAvx512 : engine::Isa::kAuto;
}

kv::TransportChoice ChoiceOf(config::TransportChoice choice) {
  switch (choice) {
    case config::TransportChoice::kAuto:
      return kv::TransportChoice::kAuto;
    case config::TransportChoice::kShm:
      return kv::TransportChoice::kShm;
    case config::TransportChoice::kTcp:
      return kv::TransportChoice::kTcp;
    case config::TransportChoice::kUcxTcp:
      return kv::TransportChoice::kUcxTcp;
  }
  return kv::TransportChoice::kAuto;
}

uint64_t FingerprintNumber(const std::string& hex) {
  uint64_t number = 0;
  for (size_t i = 0; i < hex.size() && i < 16; ++i) {
    const char c = hex[i];
    number = number << 4 | static_cast<uint64_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return number;
}

kv::Layout TransferLayout(const engine::KvLayout& layout) {
  static_assert(static_cast<int>(engine::KvType::kF32) == static_cast<int>(kv::ElementType::kF32));
  static_assert(static_cast<int>(engine::KvType::kF16) == static_cast<int>(kv::ElementType::kF16));
  static_assert(static_cast<int>(engine::KvType::kBf16) ==
                static_cast<int>(kv::ElementType::kBf16));
  static_assert(static_cast<int>(engine::KvType::kInt8) ==
                static_cast<int>(kv::ElementType::kInt8));
  kv::Layout transfer;
  transfer.layers = layout.layers;
  transfer.kv_heads = layout.kv_heads;
  transfer.head_dim = layout.head_dim;
  transfer.block_tokens = kBlockTokens;
  transfer.element_type = static_cast<kv::ElementType>(layout.type);
  transfer.scales = kv::ScalesOf(transfer.element_type);
  transfer.blocks = layout.blocks;
  return transfer;
}

// A line on stderr that is drawn over while it grows; only for people.
void ShowProgress(const std::string& name, double part) {
  static const bool terminal = isatty(STDERR_FILENO) == 1;
  static int last = -1;
  const int percent = static_cast<int>(part * 100);
  if (!terminal || percent == last) return;
  last = percent;
  std::fprintf(stderr, "\r%s: loading %d %%%s", name.c_str(), percent, percent == 100 ? "\n" : "");
}

// Calls `make` on a thread of its own; the threads that it starts are like that one.
void OnComputeThread(int nice, absl::FunctionRef<void()> make) {
  std::thread([&] {
    NameThisThread("engine");
    TakeUsualTurns(nice);
    make();
  }).join();
}

// Proves that the model computes before anyone relies on it, and warms its memory.  In a pool
// of its own: pages of the worker's are taken by what requests fill.
void DummyStep(engine::Forward& forward) {
  const engine::ModelSpec& spec = forward.spec();
  const engine::KvLayout layout = {spec.layers, spec.kv_heads, spec.head_dim, 1};
  std::vector<uint8_t> memory(layout.pool_bytes());
  const std::vector<TokenId> tokens(4, 0);
  const std::vector<BlockIndex> blocks = {0};
  const engine::ForwardSlice slice = {tokens, 0, blocks, engine::ForwardSlice::Logits::kLast};
  std::vector<float> logits;
  forward.Run({&slice, 1}, {memory.data(), layout}, nullptr, logits);
}

}  // namespace

MetricFamily OneSeries(std::string name, std::string help, MetricKind kind, double value,
                       MetricLabels labels) {
  return {std::move(name), std::move(help), kind, {{std::move(labels), value}}};
}

std::vector<MetricFamily> BlockFamilies(const engine::BlockCounts& blocks,
                                        const engine::KvLayout& layout) {
  static constexpr std::array<const char*, 5> kStates = {"free", "used", "cached", "reserved",
                                                         "quarantined"};
  const std::array<uint32_t, 5> values = {blocks.free, blocks.used, blocks.cached, blocks.reserved,
                                          blocks.quarantined};
  return {ByName("baton_kv_blocks", "Blocks of the KV pool, each in one state.", MetricKind::kGauge,
                 "state", kStates, values),
          OneSeries("baton_kv_config_info", "How the KV pool is made; the value is 1.",
                    MetricKind::kGauge, 1,
                    {{"block_size", absl::StrCat(kBlockTokens)},
                     {"num_blocks", absl::StrCat(layout.blocks)},
                     {"layers", absl::StrCat(layout.layers)},
                     {"block_bytes", absl::StrCat(layout.block_bytes() * layout.layers)},
                     {"dtype", engine::KvTypeName(layout.type)},
                     {"layout", "gqa"}})};
}

WorkerParts::WorkerParts(const RoleOptions& options, const config::Worker& configured, Role kind)
    : config(options.config),
      worker(configured),
      role(kind),
      self{configured.name, options.incarnation},
      seed(options.seed),
      metrics(MakeMetrics(kind == Role::kPrefill ? "prefill" : "decode", config.model.name)),
      loop(&clock),
      watch(config.kv_transfer.require_rdma ||
            config.kv_transfer.min_bandwidth_bytes_per_second > 0),
      desk(loop.bell(), ConvertLimits()) {}

WorkerParts::~WorkerParts() { Stop(); }

absl::Status WorkerParts::ListenAdmin() {
  Probes probes;
  probes.live = [this] { return !serving || clock.Now() - loop.last_turn() < kWedged; };
  probes.ready = [this] { return serving && !draining; };
  probes.detail = [this] { return Detail(); };
  probes.metrics = metrics.get();
  HttpServer::Options options;
  options.host = worker.admin.host;
  options.port = worker.admin.port;
  ASSIGN_OR_RETURN(admin_, HttpServer::Start(options, AdminHandler(std::move(probes))));
  return absl::OkStatus();
}

absl::Status WorkerParts::Make() {
  RETURN_IF_ERROR(ListenAdmin());
  ASSIGN_OR_RETURN(const engine::Gguf file, engine::OpenModel(config.model.path));
  ASSIGN_OR_RETURN(const engine::ModelWeights weights, engine::LoadModel(file));
  engine::ForwardOptions options;
  options.threads = worker.threads;
  options.isa = IsaOf(config.engine.isa);
  options.progress = [this](double part) { ShowProgress(self.worker, part); };
  const int nice = role == Role::kPrefill ? static_cast<int>(config.engine.prefill_nice) : 0;
  const absl::Time started = clock.Now();
  absl::StatusOr<std::unique_ptr<engine::Forward>> created;
  OnComputeThread(nice, [&] { created = engine::Forward::Create(weights, options); });
  ASSIGN_OR_RETURN(std::unique_ptr<engine::Forward> forward, std::move(created));
  model_fingerprint = FingerprintNumber(engine::ModelFingerprint(file));
  LogInfo("model loaded", {{"path", config.model.path},
                           {"architecture", weights.spec.architecture},
                           {"isa", forward->isa_name()},
                           {"weights", engine::DescribeWeights(weights)},
                           {"weight_bytes", forward->weight_bytes()},
                           {"load_ms", absl::ToDoubleMilliseconds(clock.Now() - started)}});
  DummyStep(*forward);
  RETURN_IF_ERROR(MakeTransport(weights.spec, forward->isa_name()));
  std::vector<TokenId> holes = engine::VocabularyHoles(file, weights.spec.vocab);
  const engine::KvPool pool = {transport->PoolBase(), layout};
  pages = std::make_unique<PoolPagesThread>(pool);
  OnComputeThread(nice, [&] {
    engine = std::make_unique<engine::CpuEngine>(std::move(forward), pool, std::move(holes),
                                                 loop.bell());
  });
  return absl::OkStatus();
}

absl::Status WorkerParts::MakeTransport(const engine::ModelSpec& spec, const std::string& isa) {
  layout.layers = spec.layers;
  layout.kv_heads = spec.kv_heads;
  layout.head_dim = spec.head_dim;
  layout.type = *engine::ParseKvType(config::KvTypeOf(config, worker));
  const uint64_t bytes_per_block = layout.block_bytes() * layout.layers;
  layout.blocks = static_cast<uint32_t>(
      std::min<uint64_t>(worker.kv_memory_bytes / bytes_per_block, UINT32_MAX));
  if (layout.blocks < 8) {
    return absl::InvalidArgumentError(absl::StrCat("kv_memory of ", self.worker, " holds ",
                                                   layout.blocks, " blocks of ", bytes_per_block,
                                                   " bytes; at least 8 are needed"));
  }
  kv::UcxTransportOptions options;
  options.self = self;
  options.role = role;
  options.listen = worker.transfer.text();
  if (role == Role::kPrefill) {
    for (const config::Worker& peer : config.workers.decode) {
      options.peers.push_back({peer.name, peer.advertise_transfer.value_or(peer.transfer).text()});
    }
  }
  options.layout = TransferLayout(layout);
  options.model_fingerprint = model_fingerprint;
  options.numeric_class = absl::StrCat("cpu/", isa, "/", kKernelVersion);
  prefix_class = model_fingerprint;
  for (const char c : absl::StrCat(options.numeric_class, "/", KvTypeName(layout.type))) {
    prefix_class = SplitMix64(prefix_class ^ static_cast<uint8_t>(c));
  }
  options.choice = ChoiceOf(config.kv_transfer.transport);
  options.devices = config.kv_transfer.devices;
  options.require_rdma = config.kv_transfer.require_rdma;
  options.min_bandwidth = static_cast<double>(config.kv_transfer.min_bandwidth_bytes_per_second);
  options.pair.allow_mixed_numerics = config.kv_transfer.allow_mixed_numerics;
  options.pair.allow_conversion = config.kv_transfer.allow_conversion;
  options.stuck_after = kv::StuckAfter(config.kv_transfer.progress_timeout);
  options.check_one_in = config.kv_transfer.check_one_in;
  options.seed = seed;
  options.bell = loop.bell();
  options.ticks = loop.turns();
  ASSIGN_OR_RETURN(transport, kv::UcxTransport::Create(options));
  if (!transport->no_rdma().ok()) {
    LogWarn("links cannot use RDMA", {{"why", std::string(transport->no_rdma().message())}});
  }
  return absl::OkStatus();
}

absl::Status WorkerParts::Serve() {
  service_ = MakeWorkerService(&desk);
  ASSIGN_OR_RETURN(grpc, GrpcServer::Start(worker.listen.text(), {service_.get()}));
  serving = true;
  loop.bell()->Ring();  // the next turn says so to front ends
  grpc->SetReady(true);
  return absl::OkStatus();
}

void WorkerParts::Stop() {
  loop.Stop();
  desk.Abort();
  if (grpc != nullptr) grpc->Stop(absl::Milliseconds(200));
  if (admin_ != nullptr) admin_->Stop();
}

std::string WorkerParts::Detail() const {
  return absl::StrFormat("{\"draining\":%s,\"links\":%d}", draining ? "true" : "false",
                         watch.links().size());
}

std::vector<MetricFamily> WorkerParts::TransportFamilies() const {
  std::vector<MetricFamily> families = {
      {"baton_transport_info",
       "Links that are up, their class and the one that should have come up; the value is 1.",
       MetricKind::kGauge,
       {}}};
  for (const kv::PeerUp& link : watch.links()) {
    families[0].samples.push_back(
        {{{"peer", link.peer.worker},
          {"transport", link.link.transport},
          {"data_path", std::string(1, link.link.data_path)},
          {"class", link.link.link_class},
          {"expected", link.link.expected.empty() ? "any" : link.link.expected},
          {"mixed_numerics", link.link.mixed_numerics ? "true" : "false"},
          {"conversion", link.link.conversion}},
         1});
  }
  for (MetricFamily& family : LinkFamilies()) families.push_back(std::move(family));
  if (role == Role::kDecode) families.push_back(ComparedBlocks());
  return families;
}

// What is known of each link that is up.
std::vector<MetricFamily> WorkerParts::LinkFamilies() const {
  using Get = double (*)(const kv::LinkInfo& link, absl::Time now);
  static constexpr struct {
    const char* name;
    const char* help;
    Get get;
  } kRows[] = {
      {"baton_link_bandwidth_bytes_per_second", "Of writes, measured at connection and since.",
       [](const kv::LinkInfo& link, absl::Time) { return link.cost.bandwidth; }},
      {"baton_link_latency_seconds",
       "Of a write on an idle link until it is known to be visible, beyond what its bytes take.",
       [](const kv::LinkInfo& link, absl::Time) {
         return absl::ToDoubleSeconds(link.cost.latency);
       }},
      {"baton_link_per_operation_seconds", "Of one more run of bytes in a write.",
       [](const kv::LinkInfo& link, absl::Time) {
         return absl::ToDoubleSeconds(link.cost.per_operation);
       }},
      {"baton_link_age_seconds", "Since the link was last measured, by a probe or a write.",
       [](const kv::LinkInfo& link, absl::Time now) {
         return std::max(0.0, absl::ToDoubleSeconds(now - link.measured));
       }},
      {"baton_link_in_flight_bytes", "Of writes that are outstanding.",
       [](const kv::LinkInfo& link, absl::Time) {
         return static_cast<double>(link.in_flight_bytes);
       }},
  };
  std::vector<MetricFamily> families;
  const absl::Time now = clock.Now();
  const std::vector<kv::UcxLinkStatus> links = transport->Links();
  for (const auto& row : kRows) {
    MetricFamily& family = families.emplace_back();
    family = {row.name, row.help, MetricKind::kGauge, {}};
    for (const kv::UcxLinkStatus& link : links) {
      if (link.view.state != kv::LinkState::kUp) continue;
      family.samples.push_back(
          {{{"peer", link.view.peer.worker}, {"transport", link.view.info.transport}},
           row.get(link.view.info, now)});
    }
  }
  return families;
}

MetricFamily WorkerParts::ComparedBlocks() const {
  MetricFamily blocks{"baton_kv_blocks_compared_total",
                      "Blocks, of one layer each, whose bytes were compared with their sums.",
                      MetricKind::kCounter,
                      {}};
  for (const auto& [over, count] : transport->counters().compared) {
    for (const auto& [result, number] :
         {std::pair("right", count.right), std::pair("wrong", count.wrong)}) {
      blocks.samples.push_back({{{"peer", over.peer},
                                 {"transport", over.transport},
                                 {"data_path", std::string(1, over.data_path)},
                                 {"result", result}},
                                static_cast<double>(number)});
    }
  }
  return blocks;
}

}  // namespace baton::server
