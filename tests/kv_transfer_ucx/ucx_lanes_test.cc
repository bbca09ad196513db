// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The parser of UCX's endpoint description, and the mapping of its errors.
#include "kv_transfer/ucx_lanes.h"

#include <catch2/catch.hpp>

#include "kv_transfer/ucx_status.h"

namespace baton::kv {
namespace {

TEST_CASE("an endpoint over shared memory shows its lanes in order") {
  const auto lanes = ParseLanes(
      "#\n# UCP endpoint \n#\n#               peer: <no debug data>\n"
      "#      lane[0]:  1:sysv/memory.0 md[1]   -> md[1]/sysv/sysdev[255] am am_bw#0 keepalive\n"
      "#      lane[1]:  2:posix/memory.0 md[2]  -> md[2]/posix/sysdev[255]\n"
      "#      am_send: 0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)\n");
  CHECK(lanes == std::vector<UcxLane>{{"sysv", "memory"}, {"posix", "memory"}});
}

TEST_CASE("a lane that only wires up is told from one that carries data") {
  const auto lanes = ParseLanes(
      "# lane[0]:  0:rc_verbs/mlx5_0:1.0 md[0] -> md[0]/ib/sysdev[255] am am_bw#0\n"
      "# lane[1]:  1:ud_verbs/mlx5_0:1.0 md[0] -> md[0]/ib/sysdev[255] wireup{ud_verbs}\n");
  CHECK(lanes == std::vector<UcxLane>{{"rc_verbs", "mlx5_0:1"}, {"ud_verbs", "mlx5_0:1", true}});
}

TEST_CASE("a TCP lane that wires up and carries data is a data lane") {
  const auto lanes = ParseLanes(
      "#  lane[0]:  0:tcp/lo.0 md[0]  -> md[0]/tcp/sysdev[255] am am_bw#0 keepalive wireup\n");
  CHECK(lanes == std::vector<UcxLane>{{"tcp", "lo"}});
}

TEST_CASE("text without lanes has none") {
  CHECK(ParseLanes("").empty());
  CHECK(ParseLanes("lane[").empty());
  CHECK(ParseLanes("lane[0]: \nlane[1]: x\nlane[2]: a/b:c\nlane]:").empty());
}

TEST_CASE("only transports that write without the target's CPU are memory transports") {
  CHECK(IsMemoryTransport("sysv"));
  CHECK(IsMemoryTransport("posix"));
  CHECK(IsMemoryTransport("rc_mlx5"));
  CHECK_FALSE(IsMemoryTransport("tcp"));
  CHECK_FALSE(IsMemoryTransport("cma"));
  CHECK_FALSE(IsRdmaTransport("sysv"));
  CHECK(IsRdmaTransport("dc_mlx5"));
}

TEST_CASE("a lost peer is UNAVAILABLE and the context is named") {
  const absl::Status status = FromUcs(UCS_ERR_CONNECTION_RESET, "kv write");
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message().substr(0, 10) == "kv write: ");
  CHECK(FromUcs(UCS_OK, "x").ok());
  CHECK(FromUcs(UCS_INPROGRESS, "x").ok());
  CHECK(absl::IsInternal(FromUcs(UCS_ERR_INVALID_PARAM, "x")));
}

}  // namespace
}  // namespace baton::kv
