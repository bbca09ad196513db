// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What doctor reads off a worker's metrics page.
#include "server/link_matrix.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"

namespace baton::server {
namespace {

const std::string kShm = R"(model="m",role="prefill",peer="decode-0",transport="sysv")";
const std::string kTcp = R"(model="m",role="prefill",peer="decode-\"1",transport="tcp")";

std::string Page() {
  const auto line = [](const char* name, const std::string& labels, const char* value) {
    return absl::StrCat(name, "{", labels, "} ", value, "\n");
  };
  return absl::StrCat(
      "# HELP baton_transport_info Links that are up.\n# TYPE baton_transport_info gauge\n",
      line("baton_transport_info", kShm + R"(,class="shm",expected="shm")", "1"),
      line("baton_transport_info", kTcp + R"(,class="tcp",expected="shm")", "1"),
      line("baton_link_bandwidth_bytes_per_second", kShm, "8e+09"),
      line("baton_link_bandwidth_bytes_per_second", kTcp, "2000000000"),
      line("baton_link_latency_seconds", kShm, "0.000002"),
      line("baton_link_latency_seconds", kTcp, "0.00005"),
      line("baton_link_per_operation_seconds", kShm, "1.5e-07"),
      line("baton_link_age_seconds", kShm, "12.5"),
      line("baton_link_in_flight_bytes", kShm, "1048576"),
      line("baton_link_age_seconds", R"(peer="gone",transport="tcp")", "3"),
      line("baton_kv_config_info", R"(block_size="16",layers="30",block_bytes="368640")", "1"),
      line("baton_kv_blocks", R"(state="free")", "99"), "process_open_fds 12\n");
}

TEST_CASE("a worker's page gives its links and what a prompt takes over them") {
  const ShownWorker worker = ReadLinks(Page());
  CHECK(worker.kv_block_bytes == 368640);
  CHECK(worker.kv_layers == 30);
  REQUIRE(worker.links.size() == 2);  // the third has no bandwidth
  const ShownLink& shm = worker.links[0];
  CHECK(shm.peer == "decode-0");
  CHECK(shm.transport == "sysv");
  CHECK(shm.link_class == "shm");
  CHECK(shm.expected == "shm");
  CHECK(shm.cost.bandwidth == 8e9);
  CHECK(shm.cost.latency == absl::Microseconds(2));
  CHECK(shm.cost.per_operation == absl::Nanoseconds(150));
  CHECK(shm.age == absl::Milliseconds(12500));
  CHECK(shm.in_flight_bytes == 1048576);
  // 64 blocks: 23,592,960 bytes in 1,920 runs.
  const absl::Duration time = PredictPrompt(worker, shm, 1024);
  CHECK(time > absl::Microseconds(2 + 288 + 2949));
  CHECK(time < absl::Microseconds(2 + 288 + 2950));
  const ShownLink& tcp = worker.links[1];
  CHECK(tcp.peer == "decode-\"1");
  CHECK(tcp.link_class == "tcp");
  CHECK(tcp.expected == "shm");
}

TEST_CASE("a page cut anywhere, or of something else, is read as far as it makes sense") {
  const std::string page = Page();
  for (size_t size = 0; size < page.size(); ++size) {
    CHECK(ReadLinks(absl::string_view(page).substr(0, size)).links.size() <= 2);
  }
  CHECK(ReadLinks("<html>{x=\"1\"} NaN</html>").links.empty());
  CHECK(ReadLinks("baton_link_bandwidth_bytes_per_second{peer=\"a\"} NaN").links.empty());
  CHECK(ReadLinks("baton_link_bandwidth_bytes_per_second{peer=\"a\"} -5").links.empty());
  CHECK(ReadLinks("baton_kv_config_info{layers=\"x\",block_bytes=\"-1\"} 1").kv_layers == 0);
}

}  // namespace
}  // namespace baton::server
