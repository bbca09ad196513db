// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_settings.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/time/time.h"
#include "kv_transfer/link_io.h"

namespace baton::kv {
namespace {

std::string ValueOf(const UcxContextOptions& options, const std::string& name) {
  for (const auto& [key, value] : UcxSettings(options)) {
    if (key == name) return value;
  }
  return "";
}

TEST_CASE("no path may take TCP for memory writes, and messages take nothing else") {
  CHECK(ValueOf({.path = DataPath::kMemoryWrites}, "TLS") == "^tcp");
  CHECK(ValueOf({.path = DataPath::kMemoryWrites, .rdma = {"rc_verbs"}}, "TLS") == "^tcp,ib");
  CHECK(ValueOf({.path = DataPath::kRdmaWrites, .rdma = {"rc_mlx5", "rc_verbs"}}, "TLS") ==
        "rc_mlx5,rc_verbs");
  CHECK(ValueOf({.path = DataPath::kCheckedMessages}, "TLS") == "tcp");
}

TEST_CASE("an RDMA peer that does not answer is an error before its silence is its death") {
  const UcxContextOptions rdma{.path = DataPath::kRdmaWrites};
  const int retries = std::atoi(ValueOf(rdma, "RC_RETRY_COUNT").c_str());
  CHECK(retries >= 3);
  CHECK(retries < 7);  // which is for ever on some devices
  absl::Duration timeout;
  REQUIRE(absl::ParseDuration(ValueOf(rdma, "RC_TIMEOUT"), &timeout));
  // The device rounds up to the next of 4.096 µs × 2^n.
  CHECK(2 * timeout * (retries + 1) < LinkOptions().dead_after);
}

TEST_CASE("unmapping an owner's memory revokes its keys; a writer's registrations are kept") {
  CHECK(ValueOf({.path = DataPath::kRdmaWrites, .owner = true}, "REG_METHODS") == "direct");
  CHECK(ValueOf({.path = DataPath::kRdmaWrites}, "REG_METHODS") == "");
}

TEST_CASE("devices are passed on") {
  CHECK(ValueOf({.devices = {"eth0", "eth1"}}, "NET_DEVICES") == "eth0,eth1");
  CHECK(ValueOf({}, "NET_DEVICES") == "");
}

}  // namespace
}  // namespace baton::kv
