// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The parts that prefill and decode processes share: ports, model, transport, engine.
//
// Order of making: admin port (probes answer while the model loads), model, a dummy step,
// transport with its pool, engine, gRPC.  Order of ending is the reverse.
//
// Thread:  the main thread, until the role loop takes transport and engine over.
// Failure: see server/role.h.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "engine/block_pool.h"
#include "engine/cpu_engine.h"
#include "kv_transfer/ucx_transport.h"
#include "server/grpc_server.h"
#include "server/http_server.h"
#include "server/pool_pages.h"
#include "server/role.h"
#include "server/role_loop.h"
#include "server/role_metrics.h"
#include "server/watched_transport.h"
#include "server/worker_service.h"

namespace baton::server {

class WorkerParts {
 public:
  WorkerParts(const RoleOptions& options, const config::Worker& worker, Role role);
  ~WorkerParts();

  absl::Status Make();
  // Opens the gRPC port: from here on front ends may call.
  absl::Status Serve();
  // Ends the loop and the ports, in that order; transport and engine stay.
  void Stop();

  std::vector<MetricFamily> TransportFamilies() const;
  std::string Detail() const;

  const config::Config config;
  const config::Worker worker;
  const Role role;
  const WorkerRef self;
  const uint64_t seed;
  const RealClock clock;
  std::atomic<bool> serving{false}, draining{false}, drained{false};
  std::unique_ptr<Metrics> metrics;
  RoleLoop loop;
  TransportWatch watch;
  WorkerDesk desk;
  uint64_t model_fingerprint = 0;
  uint64_t prefix_class = 0;  // fingerprint and numeric class in one number (K6)
  engine::KvLayout layout;
  std::unique_ptr<kv::UcxTransport> transport;
  std::unique_ptr<PoolPagesThread> pages;
  std::unique_ptr<engine::CpuEngine> engine;
  std::unique_ptr<GrpcServer> grpc;

 private:
  absl::Status ListenAdmin();
  absl::Status MakeTransport(const engine::ModelSpec& spec, const std::string& isa);
  std::vector<MetricFamily> LinkFamilies() const;
  MetricFamily ComparedBlocks() const;

  std::unique_ptr<HttpServer> admin_;
  std::unique_ptr<grpc::Service> service_;
};

// baton_kv_blocks and baton_kv_config_info.
std::vector<MetricFamily> BlockFamilies(const engine::BlockCounts& blocks,
                                        const engine::KvLayout& layout);
MetricFamily OneSeries(std::string name, std::string help, MetricKind kind, double value,
                       MetricLabels labels = {});
// One family with a series per name of the array.
template <typename Names, typename Values>
MetricFamily ByName(std::string name, std::string help, MetricKind kind, const char* label,
                    const Names& names, const Values& values) {
  MetricFamily family{std::move(name), std::move(help), kind, {}};
  for (size_t i = 0; i < names.size(); ++i) {
    family.samples.push_back({{{label, names[i]}}, static_cast<double>(values[i])});
  }
  return family;
}

}  // namespace baton::server
