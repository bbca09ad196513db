// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The first message on a link: who speaks, and all that must agree before KV may flow (K6).
//
// A refusal names the first field that differs, with both values.  The offers are opaque
// here: addresses and keys of one data path, read by the reactor that made them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/messages.h"
#include "kv_transfer/layout.h"

namespace baton::kv {

inline constexpr uint32_t kProtocolVersion = 5;

// A process for ever: pids are reused, (boot, namespace, pid, start time) is not.
struct ProcessId {
  std::string boot_id;         // /proc/sys/kernel/random/boot_id
  uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid
  uint32_t pid = 0;            // as seen in that namespace
  uint64_t start_time = 0;     // field 22 of /proc/self/stat
  auto operator<=>(const ProcessId&) const = default;
};

// How the sender's memory may be reached on one data path.
struct DataPathOffer {
  char path = '?';            // 'A' memory writes, 'B' checked messages
  std::string name;           // "shm", "rc", "cma", "tcp", …
  std::vector<uint8_t> blob;  // worker address, remote keys, probe region
  bool operator==(const DataPathOffer&) const = default;
};

struct Hello {
  uint32_t protocol = kProtocolVersion;
  WorkerRef self;
  std::string to;  // the worker that a writer means to reach; an owner says none
  Role role = Role::kPrefill;
  ProcessId process;
  std::string host;
  uint64_t net_namespace = 0;  // inodes: which shortcuts the two processes can share
  uint64_t ipc_namespace = 0;
  uint64_t model_fingerprint = 0;
  Layout layout;
  std::string numeric_class;  // backend/ISA/kernel version/KV type; equal: equal bits (K8)
  std::vector<DataPathOffer> offers;
  bool operator==(const Hello&) const = default;
};

// Why two processes do not pair.
struct Refusal {
  std::string field;    // "protocol", "role", "model", "layout.kv_heads", "numeric class", …
  std::string message;  // both values
};

// None: they pair.  Layouts may differ in the number of blocks only.
std::optional<Refusal> CheckPair(const Hello& mine, const Hello& theirs, bool allow_mixed_numerics);

void Put(ByteWriter& out, const Hello& hello);
// Leaves `in` not ok() if the bytes are no Hello.  Bounded strings, at most 8 offers of 64 KiB.
Hello GetHello(ByteReader& in);

}  // namespace baton::kv
