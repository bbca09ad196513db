// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace baton::kv {
namespace {

SocketAddress AddressOf(const addrinfo& info) {
  SocketAddress address;
  std::memcpy(&address.storage, info.ai_addr, info.ai_addrlen);
  address.size = info.ai_addrlen;
  return address;
}

addrinfo Hints(int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  return hints;
}

absl::Status LookupError(const std::string& host, int code) {
  return absl::UnavailableError(absl::StrCat("cannot look up ", host, ": ", gai_strerror(code)));
}

}  // namespace

std::string SocketAddress::ToString() const {
  char host[NI_MAXHOST] = "?";
  char service[NI_MAXSERV] = "?";
  getnameinfo(reinterpret_cast<const sockaddr*>(&storage), size, host, sizeof host, service,
              sizeof service, NI_NUMERICHOST | NI_NUMERICSERV);
  return storage.ss_family == AF_INET6 ? absl::StrCat("[", host, "]:", service)
                                       : absl::StrCat(host, ":", service);
}

uint16_t SocketAddress::port() const {
  return storage.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

SocketAddress SocketAddress::WithPort(uint16_t port) const {
  SocketAddress other = *this;
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&other.storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&other.storage)->sin_port = htons(port);
  }
  return other;
}

absl::StatusOr<HostPort> SplitHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not host:port"));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" has no host"));
  return HostPort{std::string(host), static_cast<uint16_t>(port)};
}

struct AddressLookup::Request {
  std::string host, service;
  addrinfo hints = {};
  gaicb block = {};
};

AddressLookup::AddressLookup(const HostPort& target) : request_(std::make_unique<Request>()) {
  request_->host = target.host;
  request_->service = absl::StrCat(target.port);
  const addrinfo numeric = Hints(AI_NUMERICHOST);
  addrinfo* found = nullptr;
  if (getaddrinfo(request_->host.c_str(), request_->service.c_str(), &numeric, &found) == 0) {
    answer_ = AddressOf(*found);
    freeaddrinfo(found);
    return;
  }
  request_->hints = Hints(AI_ADDRCONFIG);
  request_->block.ar_name = request_->host.c_str();
  request_->block.ar_service = request_->service.c_str();
  request_->block.ar_request = &request_->hints;
  gaicb* list[] = {&request_->block};
  const int started = getaddrinfo_a(GAI_NOWAIT, list, 1, nullptr);
  if (started != 0) answer_ = LookupError(target.host, started);
}

AddressLookup::~AddressLookup() {
  if (!answer_.has_value() && gai_cancel(&request_->block) == EAI_NOTCANCELED) {
    (void)request_.release();  // the C library still writes to it
  }
}

std::optional<absl::StatusOr<SocketAddress>> AddressLookup::Poll() {
  if (answer_.has_value()) return answer_;
  const int state = gai_error(&request_->block);
  if (state == EAI_INPROGRESS) return std::nullopt;
  if (state != 0) {
    answer_ = LookupError(request_->host, state);
  } else {
    answer_ = AddressOf(*request_->block.ar_result);
    freeaddrinfo(request_->block.ar_result);
  }
  return answer_;
}

absl::StatusOr<SocketAddress> ResolveNow(const HostPort& target) {
  const addrinfo hints = Hints(AI_PASSIVE);
  addrinfo* found = nullptr;
  const int code =
      getaddrinfo(target.host.c_str(), absl::StrCat(target.port).c_str(), &hints, &found);
  if (code != 0) return LookupError(target.host, code);
  const SocketAddress address = AddressOf(*found);
  freeaddrinfo(found);
  return address;
}

}  // namespace baton::kv
