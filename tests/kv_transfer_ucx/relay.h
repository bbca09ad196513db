// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A TCP relay between a writer and an owner, whose connections a test can break.
//
// Thread:     one of its own, from construction to destruction.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "base/ensure.h"
#include "kv_transfer/socket_address.h"
#include "kv_transfer/socket_connection.h"

namespace baton::kv {

class Relay {
 public:
  explicit Relay(uint16_t target, const std::string& host = "127.0.0.1")
      : target_(*ResolveNow({host, target})) {
    auto listener = Listen(target_.WithPort(0));
    ENSURE(listener.ok());
    listener_ = *std::move(listener);
    port_ = LocalAddress(listener_.get())->port();
    thread_ = std::thread([this] {
      while (!stop_.load()) Turn();
    });
  }
  ~Relay() {
    stop_.store(true);
    thread_.join();
  }
  uint16_t port() const { return port_; }
  // Every connection under way ends.
  void Break() { break_.store(true); }

 private:
  struct Pipe {
    Fd near, far;
  };

  void Turn() {
    if (break_.exchange(false)) pipes_.clear();
    std::vector<pollfd> waits = {{listener_.get(), POLLIN, 0}};
    for (const Pipe& pipe : pipes_) {
      waits.push_back({pipe.near.get(), POLLIN, 0});
      waits.push_back({pipe.far.get(), POLLIN, 0});
    }
    ::poll(waits.data(), waits.size(), 1);
    size_t at = 1;
    for (auto pipe = pipes_.begin(); pipe != pipes_.end(); at += 2) {
      const bool alive = (waits[at].revents == 0 || Move(pipe->near, pipe->far)) &&
                         (waits[at + 1].revents == 0 || Move(pipe->far, pipe->near));
      pipe = alive ? std::next(pipe) : pipes_.erase(pipe);
    }
    if (waits[0].revents == 0) return;
    auto near = Accept(listener_.get());
    if (!near.ok()) return;
    Fd far(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* to = reinterpret_cast<const sockaddr*>(&target_.storage);
    if (::connect(far.get(), to, target_.size) != 0) return;
    pipes_.push_back({*std::move(near), std::move(far)});
  }

  static bool Move(const Fd& from, const Fd& to) {
    uint8_t buffer[65536];
    const ssize_t got = ::recv(from.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t n =
          ::send(to.get(), buffer + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) return false;
      if (n > 0) sent += n;
    }
    return got > 0;
  }

  const SocketAddress target_;
  Fd listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false}, break_{false};
  std::list<Pipe> pipes_;
  std::thread thread_;
};

}  // namespace baton::kv
