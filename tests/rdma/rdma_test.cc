// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What memory writes over RDMA rest on, shown on a real device: who connects, and that neither a
// closed endpoint nor unmapped memory lets a late write land.  Shared memory can show none of it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/time/clock.h"
#include "kv_transfer/ucx_devices.h"
#include "kv_transfer/ucx_listener.h"
#include "kv_transfer/ucx_worker.h"

namespace baton::kv {
namespace {

constexpr uint64_t kBytes = 1u << 20;
constexpr uint64_t kClient = 0x17;
constexpr absl::Duration kLimit = absl::Seconds(20);

std::unique_ptr<UcxWorker> MakeWorker(bool owner) {
  UcxWorker::Options options{.path = DataPath::kRdmaWrites, .devices = {"rxe0:1"}};
  options.rdma = {"rc_verbs"};
  options.owner = owner;
  options.client = kClient;
  auto worker = UcxWorker::Create(options);
  INFO(worker.status());
  REQUIRE(worker.ok());
  return *std::move(worker);
}

// An owner and a writer in one process, connected through the device.
struct Ends {
  std::vector<uint8_t> source = std::vector<uint8_t>(kBytes, 0xa5);
  std::vector<uint8_t> target = std::vector<uint8_t>(kBytes);
  std::unique_ptr<UcxWorker> owner = MakeWorker(true);
  std::unique_ptr<UcxWorker> writer = MakeWorker(false);
  std::unique_ptr<UcxListener> listener;
  UcxMemory memory;
  UcxEndpoint of_owner, of_writer;
  UcxKeyHandle key;
  bool owner_looks = true;

  Ends() {
    auto made = UcxListener::Create(*owner, *ResolveNow({"192.0.2.1", 0}));
    INFO(made.status());
    REQUIRE(made.ok());
    listener = *std::move(made);
    auto registered = UcxMemory::Register(*owner, target.data(), kBytes);
    INFO(registered.status());
    REQUIRE(registered.ok());
    memory = *std::move(registered);
  }
  ~Ends() {
    key.reset();
    of_writer = UcxEndpoint();
    of_owner = UcxEndpoint();
    memory = UcxMemory();
    listener.reset();
  }

  bool Until(const std::function<bool()>& done) {
    const absl::Time end = absl::Now() + kLimit;
    while (absl::Now() < end) {
      if (done()) return true;
      if (owner_looks) owner->Progress();
      writer->Progress();
    }
    return done();
  }
  UcxListener::Request Connect() {
    auto made =
        UcxEndpoint::ConnectTo(*writer, ResolveNow({"192.0.2.1", 0})->WithPort(listener->port()));
    INFO(made.status());
    REQUIRE(made.ok());
    of_writer = *std::move(made);
    std::vector<UcxListener::Request> requests;
    REQUIRE(Until([&] {
      requests = listener->TakeRequests();
      return !requests.empty();
    }));
    return requests[0];
  }
  void ConnectWhole() {
    auto accepted = listener->Accept(Connect());
    INFO(accepted.status());
    REQUIRE(accepted.ok());
    of_owner = *std::move(accepted);
    REQUIRE(FlushNow().ok());  // a key is unpacked for the lanes that are there
    auto unpacked = of_writer.UnpackKey(*memory.PackKey());
    REQUIRE(unpacked.ok());
    key = *std::move(unpacked);
    REQUIRE(PutAndFlush(0, 64).ok());
    REQUIRE(target[0] == 0xa5);
  }
  absl::Status PutAndFlush(uint64_t offset, uint64_t bytes) {
    const uint64_t remote = reinterpret_cast<uint64_t>(target.data()) + offset;
    const absl::Status put = of_writer.Put(source.data(), bytes, remote, key.get());
    if (!put.ok()) return put;
    return FlushNow();
  }
  absl::Status FlushNow() {
    const auto result = std::make_unique<std::optional<absl::Status>>();
    of_writer.Flush([at = result.get()](const absl::Status& status) { *at = status; });
    const bool flushed = Until([&] { return result->has_value(); });
    if (!flushed) of_writer = UcxEndpoint();
    (void)Until([&] { return result->has_value(); });
    REQUIRE(flushed);
    return **result;
  }
  uint64_t Landed() const {
    return static_cast<uint64_t>(std::count(target.begin(), target.end(), 0xa5));
  }
};

TEST_CASE("the device is found, and by the name that the configuration uses") {
  const auto found = FindUcxDevices();
  REQUIRE(found.ok());
  CHECK(found->rdma_transports == std::set<std::string>{"rc_verbs"});
  CHECK(found->rdma_devices == std::set<std::string>{"rxe0:1"});
}

TEST_CASE("puts over RDMA arrive whole without the owner's help, by no other transport") {
  Ends ends;
  ends.ConnectWhole();
  ends.owner_looks = false;
  for (size_t i = 0; i < kBytes; ++i) ends.source[i] = static_cast<uint8_t>(i * 7 >> 3);
  CHECK(ends.PutAndFlush(0, kBytes).ok());
  CHECK(ends.target == ends.source);
  const std::vector<UcxLane> lanes = ends.of_writer.Lanes();
  REQUIRE(!lanes.empty());
  for (const UcxLane& lane : lanes) {
    CHECK((lane.transport == "rc_verbs" || lane.transport == "rdmacm"));
  }
}

TEST_CASE("a connection says who it comes from, and one that is rejected fails") {
  Ends ends;
  const UcxListener::Request request = ends.Connect();
  CHECK(request.client == kClient);
  ends.listener->Reject(request);
  CHECK(ends.Until([&] { return !ends.of_writer.failure().ok(); }));
}

TEST_CASE("K2: when the owner has closed its end by force, no late write lands") {
  Ends ends;
  ends.ConnectWhole();
  bool closed = false;
  ends.of_owner.Close([&](bool confirmed) { closed = confirmed; });
  // The writer does not look meanwhile: to it, everything is as before.
  const absl::Time end = absl::Now() + kLimit;
  while (!closed && absl::Now() < end) ends.owner->Progress();
  REQUIRE(closed);
  std::fill(ends.target.begin(), ends.target.end(), 0);
  CHECK(!ends.PutAndFlush(0, kBytes).ok());
  CHECK(ends.Landed() == 0);
}

TEST_CASE("K2: of writes under way, none lands once the close is confirmed") {
  for (int round = 0; round < 4; ++round) {
    Ends ends;
    ends.ConnectWhole();
    const uint64_t remote = reinterpret_cast<uint64_t>(ends.target.data());
    for (int i = 0; i < 4; ++i) {
      REQUIRE(ends.of_writer.Put(ends.source.data(), kBytes, remote, ends.key.get()).ok());
    }
    ends.writer->Progress();
    bool closed = false;
    ends.of_owner.Close([&](bool confirmed) { closed = confirmed; });
    REQUIRE(ends.Until([&] { return closed; }));
    std::fill(ends.target.begin(), ends.target.end(), 0);
    bool flushed = false;
    ends.of_writer.Flush([&](const absl::Status&) { flushed = true; });
    CHECK(ends.Until([&] { return flushed; }));
    absl::SleepFor(absl::Milliseconds(20));
    CHECK(ends.Landed() == 0);
  }
}

TEST_CASE("memory that the owner has unmapped takes no late write") {
  Ends ends;
  ends.ConnectWhole();
  ends.memory = UcxMemory();
  std::fill(ends.target.begin(), ends.target.end(), 0);
  CHECK(!ends.PutAndFlush(0, kBytes).ok());
  CHECK(ends.Landed() == 0);
}

TEST_CASE("a write past the end of what the key is for ends the connection, and nothing else") {
  Ends ends;
  ends.ConnectWhole();
  std::vector<uint8_t> other(kBytes);
  auto also = UcxMemory::Register(*ends.owner, other.data(), kBytes);
  REQUIRE(also.ok());
  std::fill(ends.target.begin(), ends.target.end(), 0);
  CHECK(!ends.PutAndFlush(kBytes - 4096, 128u << 10).ok());
  CHECK(std::count(other.begin(), other.end(), 0) == static_cast<int64_t>(kBytes));
}

}  // namespace
}  // namespace baton::kv
