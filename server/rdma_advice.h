// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What `doctor` says about RDMA devices: whether links can use them, and what would stop them.
//
// AdviseRdma is pure; ReadRdma looks at this machine and changes nothing.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace baton::server {

struct RdmaGid {
  int index = 0;
  std::string address;  // of IP, as text; a device's own number looks like one of IPv6
};

struct RdmaPort {
  std::string name;  // as kv_transfer.devices and UCX name it: mlx5_0:1
  bool active = false;
  std::string layer;  // "Ethernet" (RoCE), "InfiniBand"
  std::vector<RdmaGid> gids;
};

struct RdmaFacts {
  std::vector<RdmaPort> ports;
  bool has_manager = false;                        // /dev/infiniband/rdma_cm
  std::map<std::string, std::string> environment;  // UCX_*
};

// Reads /sys, /dev and the environment.
RdmaFacts ReadRdma();

struct RdmaQuestion {
  std::vector<std::string> devices;  // kv_transfer.devices
  bool required = false;             // kv_transfer.require_rdma
  // Of decode workers on this machine: name and numeric host of `transfer`.
  std::vector<std::pair<std::string, std::string>> transfers;
  std::vector<std::pair<std::string, std::string>> settings;  // Baton's own in UCX
};

struct RdmaAdvice {
  enum class Verdict { kOk, kWarn, kFail } verdict = Verdict::kOk;
  std::string what;
  std::string fix;  // "": nothing to do
};

// None where there is no RDMA device.
std::vector<RdmaAdvice> AdviseRdma(const RdmaFacts& facts, const RdmaQuestion& question);

}  // namespace baton::server
