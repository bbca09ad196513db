// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/socket_poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/ensure.h"

namespace baton::kv {
namespace {

constexpr uint64_t kWakeKey = ~uint64_t{0};
constexpr int kReadyMax = 64;

epoll_event EventOf(uint64_t key, bool read, bool write) {
  epoll_event event = {};
  event.events = (read ? uint32_t{EPOLLIN} : 0) | (write ? uint32_t{EPOLLOUT} : 0);
  event.data.u64 = key;
  return event;
}

}  // namespace

absl::StatusOr<SocketPoller> SocketPoller::Create() {
  SocketPoller poller;
  poller.epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  poller.wake_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!poller.epoll_.open() || !poller.wake_.open()) {
    return absl::ResourceExhaustedError(absl::StrCat("epoll: ", std::strerror(errno)));
  }
  poller.waiting_ = std::make_unique<std::atomic<bool>>(false);
  poller.Add(poller.wake_.get(), kWakeKey, true, false);
  return poller;
}

void SocketPoller::Add(int fd, uint64_t key, bool read, bool write) {
  epoll_event event = EventOf(key, read, write);
  ENSURE(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
}

void SocketPoller::Change(int fd, uint64_t key, bool read, bool write) {
  epoll_event event = EventOf(key, read, write);
  ENSURE(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0);
}

void SocketPoller::Remove(int fd) {
  ENSURE(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0);
}

void SocketPoller::Wait(absl::Duration timeout, std::vector<ReadyFd>& ready) {
  std::array<epoll_event, kReadyMax> events;
  const int64_t ms = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  const int count = epoll_wait(epoll_.get(), events.data(), kReadyMax,
                               static_cast<int>(std::clamp<int64_t>(ms, 0, 1000)));
  waiting_->store(false);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[i];
    if (event.data.u64 == kWakeKey) {
      uint64_t rings = 0;
      const auto drained = ::read(wake_.get(), &rings, sizeof rings);
      ENSURE(drained == sizeof rings || errno == EAGAIN);
      continue;
    }
    ready.push_back({event.data.u64, (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0,
                     (event.events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0});
  }
}

void SocketPoller::Wake() {
  if (!waiting_->exchange(false)) return;
  const uint64_t one = 1;
  const auto written = ::write(wake_.get(), &one, sizeof one);
  ENSURE(written == sizeof one || errno == EAGAIN);
}

}  // namespace baton::kv
