// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/grpc_server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace baton::server {
namespace {

constexpr int kMessageBytes = 64 << 20;

// gRPC's own complaints (a port in use, a peer that hung up) are told by statuses.
void LogGrpc(gpr_log_func_args* record) { LogDebug("grpc", {{"message", record->message}}); }

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const std::string& address, const std::vector<grpc::Service*>& services) {
  gpr_set_log_function(&LogGrpc);
  // Both are process-wide switches of gRPC that its builders read.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMessageBytes);
  builder.SetMaxSendMessageSize(kMessageBytes);
  // A port that another process listens on must be an error, not a share of its connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Clients whose answers take minutes may ping, also between calls.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 5);
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": the address is in use or not ours"));
  }
  auto started = std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server), port));
  started->server_->GetHealthCheckService()->SetServingStatus("liveness", true);
  started->SetReady(false);
  return started;
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, int port)
    : server_(std::move(server)), port_(port) {}

GrpcServer::~GrpcServer() { Stop(absl::ZeroDuration()); }

void GrpcServer::SetReady(bool ready) {
  if (ready_ == ready) return;
  ready_ = ready;
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  health->SetServingStatus("", ready);
  health->SetServingStatus("readiness", ready);
}

void GrpcServer::Stop(absl::Duration drain) {
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(drain));
  server_->Wait();
}

}  // namespace baton::server
