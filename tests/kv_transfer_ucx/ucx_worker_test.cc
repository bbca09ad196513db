// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Two UCX workers in one process: what each data path can do, and what it must not.
#include "kv_transfer/ucx_worker.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "kv_transfer/flow_wire.h"
#include "kv_transfer/ucx_endpoint.h"
#include "kv_transfer/ucx_wire.h"

namespace baton::kv {
namespace {

constexpr int kTurnsMax = 10'000'000;

std::unique_ptr<UcxWorker> MakeWorker(DataPath path) {
  auto worker = UcxWorker::Create({.path = path, .devices = {"lo"}});
  INFO(worker.status());
  REQUIRE(worker.ok());
  return *std::move(worker);
}

UcxEndpoint Connect(UcxWorker& from, const UcxWorker& to) {
  auto endpoint = UcxEndpoint::Connect(from, to.address());
  INFO(endpoint.status());
  REQUIRE(endpoint.ok());
  return *std::move(endpoint);
}

template <typename Condition>
bool ProgressUntil(UcxWorker& a, UcxWorker& b, Condition condition) {
  for (int i = 0; i < kTurnsMax; ++i) {
    if (condition()) return true;
    a.Progress();
    b.Progress();
  }
  return condition();
}

TEST_CASE("the header of the largest write fits into a message of UCX's TCP") {
  DataHeader data;
  for (uint32_t i = 0; i < kDataTargetsMax; ++i) data.targets.push_back(i);
  data.sums.assign(kDataTargetsMax, 7);
  MessageHeader header;
  header.data_header = Encode(data);
  const size_t bytes = Encode(header).size();
  CHECK(bytes <= kFlowHeaderBytesMax);
  CHECK(bytes <= MakeWorker(DataPath::kCheckedMessages)->header_bytes_max());
}

TEST_CASE("a put into allocated memory lands although the target never progresses") {
  auto owner = MakeWorker(DataPath::kMemoryWrites);
  auto writer = MakeWorker(DataPath::kMemoryWrites);
  auto memory = UcxMemory::Allocate(*owner, 4 << 20, 2 << 20);
  REQUIRE(memory.ok());
  CHECK(reinterpret_cast<uint64_t>(memory->base()) % (2 << 20) == 0);  // huge pages fit
  const auto packed = memory->PackKey();
  REQUIRE(packed.ok());
  UcxEndpoint endpoint = Connect(*writer, *owner);
  auto key = endpoint.UnpackKey(*packed);
  REQUIRE(key.ok());

  std::vector<uint8_t> source(100'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 7);
  const uint64_t remote = reinterpret_cast<uint64_t>(memory->base()) + 4096;
  CHECK(endpoint.Put(source.data(), source.size(), remote, key->get()).ok());
  bool flushed = false;
  endpoint.Flush([&](const absl::Status& status) { flushed = status.ok(); });
  for (int i = 0; i < kTurnsMax && !flushed; ++i) writer->Progress();
  CHECK(flushed);
  CHECK(std::memcmp(memory->base() + 4096, source.data(), source.size()) == 0);
  const auto lanes = endpoint.Lanes();
  REQUIRE_FALSE(lanes.empty());
  CHECK(IsMemoryTransport(lanes[0].transport));
}

TEST_CASE("no endpoint of path A uses TCP") {
  auto owner = MakeWorker(DataPath::kMemoryWrites);
  auto writer = MakeWorker(DataPath::kMemoryWrites);
  UcxEndpoint endpoint = Connect(*writer, *owner);
  for (const UcxLane& lane : endpoint.Lanes()) CHECK(lane.transport != "tcp");
}

TEST_CASE("a message over TCP arrives whole, gathered from many pieces") {
  auto owner = MakeWorker(DataPath::kCheckedMessages);
  auto writer = MakeWorker(DataPath::kCheckedMessages);
  std::vector<uint8_t> header, payload;
  owner->OnMessage(1, [&](absl::Span<const uint8_t> h, absl::Span<const uint8_t> p) {
    header.assign(h.begin(), h.end());
    payload.assign(p.begin(), p.end());
  });
  UcxEndpoint endpoint = Connect(*writer, *owner);
  std::vector<uint8_t> source(16 * 12'288);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 31 >> 3);
  std::vector<ucp_dt_iov_t> pieces;
  for (int i = 15; i >= 0; --i) pieces.push_back({source.data() + i * 12'288, 12'288});
  const std::vector<uint8_t> sent_header(200, 9);
  bool sent = false;
  endpoint.Send(1, sent_header, pieces, [&](const absl::Status& status) { sent = status.ok(); });
  REQUIRE(ProgressUntil(*owner, *writer, [&] { return sent && !payload.empty(); }));
  CHECK(header == sent_header);
  REQUIRE(payload.size() == source.size());
  for (int i = 0; i < 16; ++i) {
    CHECK(std::memcmp(payload.data() + i * 12'288, source.data() + (15 - i) * 12'288, 12'288) == 0);
  }
  CHECK(endpoint.Lanes().at(0).transport == "tcp");
}

TEST_CASE("every accepted operation ends although the endpoint is closed at once") {
  auto owner = MakeWorker(DataPath::kCheckedMessages);
  auto writer = MakeWorker(DataPath::kCheckedMessages);
  int ended = 0;
  std::vector<uint8_t> source(200'000);
  {
    UcxEndpoint endpoint = Connect(*writer, *owner);
    const std::vector<ucp_dt_iov_t> pieces = {{source.data(), source.size()}};
    for (int i = 0; i < 20; ++i) {
      endpoint.Send(1, {}, pieces, [&](const absl::Status&) { ++ended; });
    }
  }
  for (int i = 0; i < 1000 && ended < 20; ++i) writer->Progress();
  writer.reset();
  CHECK(ended == 20);
}

TEST_CASE("a device that does not exist is a failed precondition that names it") {
  const auto worker =
      UcxWorker::Create({.path = DataPath::kCheckedMessages, .devices = {"nosuch0"}});
  CHECK(absl::IsFailedPrecondition(worker.status()));
  CHECK(worker.status().message().find("nosuch0") != std::string::npos);
}

}  // namespace
}  // namespace baton::kv
