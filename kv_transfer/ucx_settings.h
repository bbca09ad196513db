// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What Baton sets in UCX for each data path, and why.  Pure; `baton doctor` says it.
//
// A data path is a context of its own.  kMemoryWrites (path A, one host) and kRdmaWrites (path
// A, other hosts) know RMA and exclude TCP, because UCX silently turns a put over TCP into an
// unchecked copy by the target's CPU; kCheckedMessages (path B) knows active messages over TCP
// only, so that no put handler exists that a stranger could reach.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace baton::kv {

enum class DataPath : uint8_t { kMemoryWrites, kRdmaWrites, kCheckedMessages };

struct UcxContextOptions {
  DataPath path = DataPath::kMemoryWrites;
  std::vector<std::string> devices;  // network devices; empty: all
  std::vector<std::string> rdma;     // transports of this machine, as UCX names them
  bool owner = false;                // kRdmaWrites: others write this one's memory
  uint64_t client = 0;               // kRdmaWrites: what its connections say of it
};

// Name and value; they go before the environment.  Names are UCX's without the prefixes of the
// program and of the part that they are for: with those, UCX accepts and ignores them.
std::vector<std::pair<std::string, std::string>> UcxSettings(const UcxContextOptions& options);

}  // namespace baton::kv
