// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// "host:port" in, a socket address out; names are looked up without blocking the reactor.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::kv {

struct HostPort {
  std::string host;  // without the brackets of an IPv6 address
  uint16_t port = 0;
};

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  std::string ToString() const;
  uint16_t port() const;
  // The same host at another port.
  SocketAddress WithPort(uint16_t port) const;
};

// "10.0.0.1:8203", "[::1]:8203", "decode-0.baton:8203".
absl::StatusOr<HostPort> SplitHostPort(absl::string_view text);

// A look-up under way.  Numeric hosts are answered at once, names by the C library's own
// look-up thread; an object that is destroyed early leaves the look-up to end by itself.
class AddressLookup {
 public:
  explicit AddressLookup(const HostPort& target);
  ~AddressLookup();
  AddressLookup(const AddressLookup&) = delete;
  AddressLookup& operator=(const AddressLookup&) = delete;
  // None: not yet.  UNAVAILABLE: no such name, now.
  std::optional<absl::StatusOr<SocketAddress>> Poll();

 private:
  struct Request;
  std::unique_ptr<Request> request_;
  std::optional<absl::StatusOr<SocketAddress>> answer_;
};

// For listening and for tests; blocks for names.
absl::StatusOr<SocketAddress> ResolveNow(const HostPort& target);

}  // namespace baton::kv
