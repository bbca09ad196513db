// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The contract of calls to workers, over real gRPC on loopback; a small relay between the two
// makes the connection break while both ends live.
#include "server/grpc_worker_client.h"

#include <arpa/inet.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "base/bell.h"
#include "server/grpc_server.h"
#include "server/worker_service.h"
#include "tests/router/worker_client_contract.h"

namespace baton::server {
namespace {

int Listen(uint16_t* port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(listen(fd, 16) == 0);
  REQUIRE(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  *port = ntohs(address.sin_port);
  return fd;
}

int Dial(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// Passes bytes on between a port of its own and another one, until told to break.
class Relay {
 public:
  Relay() : listener_(Listen(&port_)), thread_([this] { Run(); }) {}
  ~Relay() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }
  uint16_t port() const { return port_; }
  void SetTarget(uint16_t port) { target_ = port; }  // 0: refuse
  void Break() { break_ = true; }

 private:
  struct Pair {
    int a, b;
  };
  static bool Pass(int from, int to) {
    char buffer[65536];
    const ssize_t size = recv(from, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (size < 0) return true;
    for (ssize_t sent = 0; sent < size;) {
      const ssize_t part = send(to, buffer + sent, static_cast<size_t>(size - sent), MSG_NOSIGNAL);
      if (part <= 0) return false;
      sent += part;
    }
    return size > 0;
  }
  void Run() {
    std::vector<Pair> pairs;
    while (!stop_) {
      if (break_.exchange(false)) CloseAll(pairs);
      std::vector<pollfd> fds = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs) {
        fds.push_back({pair.a, POLLIN, 0});
        fds.push_back({pair.b, POLLIN, 0});
      }
      if (poll(fds.data(), fds.size(), 2) <= 0) continue;
      std::vector<Pair> alive;
      for (size_t i = 0; i < pairs.size(); ++i) {
        const bool good = (fds[1 + 2 * i].revents == 0 || Pass(pairs[i].a, pairs[i].b)) &&
                          (fds[2 + 2 * i].revents == 0 || Pass(pairs[i].b, pairs[i].a));
        if (good) {
          alive.push_back(pairs[i]);
        } else {
          close(pairs[i].a);
          close(pairs[i].b);
        }
      }
      pairs = alive;
      if (fds[0].revents != 0) {
        const int a = accept(listener_, nullptr, nullptr);
        const int b = target_ == 0 ? -1 : Dial(target_);
        if (a >= 0 && b >= 0) {
          pairs.push_back({a, b});
        } else {
          if (a >= 0) close(a);
          if (b >= 0) close(b);
        }
      }
    }
    CloseAll(pairs);
  }
  static void CloseAll(std::vector<Pair>& pairs) {
    for (const Pair& pair : pairs) {
      close(pair.a);
      close(pair.b);
    }
    pairs.clear();
  }

  uint16_t port_ = 0;
  const int listener_;
  std::atomic<uint16_t> target_{0};
  std::atomic<bool> stop_{false}, break_{false};
  std::thread thread_;
};

class GrpcFixture final : public router::WorkerClientFixture {
 public:
  GrpcFixture() {
    for (uint32_t i = 0; i < 2; ++i) Start(router::WorkerIndex(i));
    std::vector<std::string> addresses;
    for (const Relay& relay : relays_) {
      addresses.push_back("127.0.0.1:" + std::to_string(relay.port()));
    }
    client_ = std::make_unique<GrpcWorkerClient>(addresses, self(), &bell_);
  }
  ~GrpcFixture() override {
    client_.reset();
    for (uint32_t i = 0; i < 2; ++i) Kill(router::WorkerIndex(i));
  }

  router::WorkerClient& client() override { return *client_; }
  Incarnation self() const override { return Incarnation(77); }
  void Step() override { bell_.Wait(absl::Milliseconds(5)); }

  std::vector<WorkerInput> TakeInputs(router::WorkerIndex worker) override {
    std::vector<WorkerInput> rest;
    Worker& one = workers_[worker.value()];
    if (one.desk == nullptr) return rest;
    for (WorkerInput& input : one.desk->TakeInputs()) {
      if (const auto* alive = std::get_if<FrontendAlive>(&input)) {
        one.heartbeats.push_back(alive->frontend);
      } else {
        rest.push_back(std::move(input));
      }
    }
    return rest;
  }
  std::vector<Incarnation> TakeHeartbeats(router::WorkerIndex worker) override {
    return std::exchange(workers_[worker.value()].heartbeats, {});
  }
  void Say(router::WorkerIndex worker, WorkerOutput output) override {
    workers_[worker.value()].desk->Send({std::move(output)});
  }
  void SetStatus(router::WorkerIndex worker, WorkerStatus status) override {
    workers_[worker.value()].desk->Publish(std::move(status));
  }
  void Kill(router::WorkerIndex worker) override {
    Worker& one = workers_[worker.value()];
    relays_[worker.value()].SetTarget(0);
    relays_[worker.value()].Break();
    if (one.desk == nullptr) return;
    one.desk->Abort();
    one.server->Stop(absl::ZeroDuration());
    one = Worker();
  }
  void Start(router::WorkerIndex worker) override {
    Worker& one = workers_[worker.value()];
    one.desk = std::make_unique<WorkerDesk>(&bell_, ConvertLimits());
    WorkerStatus status;
    status.self = {"worker", Incarnation(1)};
    one.desk->Publish(status);
    one.service = MakeWorkerService(one.desk.get());
    auto server = GrpcServer::Start("127.0.0.1:0", {one.service.get()});
    REQUIRE(server.ok());
    one.server = *std::move(server);
    relays_[worker.value()].SetTarget(static_cast<uint16_t>(one.server->port()));
  }
  void Break(router::WorkerIndex worker) override { relays_[worker.value()].Break(); }

 private:
  struct Worker {
    std::unique_ptr<WorkerDesk> desk;
    std::unique_ptr<grpc::Service> service;
    std::unique_ptr<GrpcServer> server;
    std::vector<Incarnation> heartbeats;
  };
  Bell bell_;
  std::array<Relay, 2> relays_;
  std::array<Worker, 2> workers_;
  std::unique_ptr<GrpcWorkerClient> client_;
};

TEST_CASE("calls to workers over gRPC keep the contract", "[grpc]") {
  router::RunWorkerClientContract([] { return std::make_unique<GrpcFixture>(); });
}

}  // namespace
}  // namespace baton::server
