// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A role's gRPC server: its services, grpc.health.v1 ("", liveness, readiness), reflection.
//
// Threads:  gRPC's.  Failure: a port in use is UNAVAILABLE from Start.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace grpc {
class Service;
class Server;
}  // namespace grpc

namespace baton::server {

class GrpcServer {
 public:
  // `services` outlive the server.  Liveness is served from here on, readiness is not.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const std::string& address, const std::vector<grpc::Service*>& services);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  void SetReady(bool ready);  // "" and "readiness"
  int port() const { return port_; }
  // No new calls; waits up to `drain` for those that run, then cancels them.
  void Stop(absl::Duration drain);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, int port);
  const std::unique_ptr<grpc::Server> server_;
  const int port_;
  std::optional<bool> ready_;
};

}  // namespace baton::server
