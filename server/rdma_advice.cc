// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/rdma_advice.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

extern char** environ;

namespace baton::server {
namespace {

namespace fs = std::filesystem;
using Verdict = RdmaAdvice::Verdict;

constexpr int kGidsMax = 256;

std::string FirstLine(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// "0000:…:ffff:c000:0201" is 192.0.2.1; "" where the entry is empty.
std::string AddressOf(const std::string& gid) {
  in6_addr address = {}, none = {};
  if (inet_pton(AF_INET6, gid.c_str(), &address) != 1) return "";
  if (std::memcmp(&address, &none, sizeof none) == 0) return "";
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    inet_ntop(AF_INET, address.s6_addr + 12, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, &address, text, sizeof text);
  }
  return text;
}

RdmaPort ReadPort(const std::string& device, const fs::path& port) {
  RdmaPort result;
  result.name = absl::StrCat(device, ":", port.filename().string());
  result.active = absl::StrContains(FirstLine(port / "state"), "ACTIVE");
  result.layer = FirstLine(port / "link_layer");
  for (int i = 0; i < kGidsMax; ++i) {
    const std::string gid = FirstLine(port / "gids" / std::to_string(i));
    if (gid.empty()) break;
    const std::string address = AddressOf(gid);
    if (!address.empty()) result.gids.push_back({i, address});
  }
  return result;
}

std::vector<std::string> Addresses(const RdmaPort& port) {
  std::vector<std::string> addresses;
  for (const RdmaGid& gid : port.gids) addresses.push_back(gid.address);
  return addresses;
}

void AdvisePort(const RdmaPort& port, std::vector<RdmaAdvice>& advice) {
  const std::string what = absl::StrCat(
      "RDMA: ", port.name, ", ", port.layer == "Ethernet" ? "RoCE" : port.layer, ", ",
      port.active ? "active" : "not active", ", addresses ", absl::StrJoin(Addresses(port), " "));
  if (port.active) {
    advice.push_back({Verdict::kOk, what, ""});
  } else {
    advice.push_back({Verdict::kWarn, what, "bring its network up (`rdma link`, `ip link`)"});
  }
}

bool Has(const std::vector<RdmaPort>& ports, const std::string& address) {
  return std::any_of(ports.begin(), ports.end(), [&](const RdmaPort& port) {
    const std::vector<std::string> addresses = Addresses(port);
    return std::count(addresses.begin(), addresses.end(), address) > 0;
  });
}

// RDMA connections go to the host of the owner's `transfer`.
void AdviseTransfers(const std::vector<RdmaPort>& ports, const RdmaQuestion& question,
                     std::vector<RdmaAdvice>& advice) {
  std::vector<std::string> usable;
  for (const RdmaPort& port : ports) {
    for (const std::string& address : Addresses(port)) usable.push_back(address);
  }
  for (const auto& [worker, host] : question.transfers) {
    if (host == "0.0.0.0" || host == "::" || Has(ports, host)) continue;
    advice.push_back(
        {question.required ? Verdict::kFail : Verdict::kWarn,
         absl::StrCat("RDMA: transfer of ", worker, " is ", host, ", no address of a named device"),
         absl::StrCat("links to it cannot use RDMA; let it be one of ",
                      absl::StrJoin(usable, " "))});
  }
}

// A GID that the environment names must be there.
void AdviseGid(const std::vector<RdmaPort>& ports, const RdmaFacts& facts,
               std::vector<RdmaAdvice>& advice) {
  const auto named = facts.environment.find("UCX_IB_GID_INDEX");
  int index = 0;
  if (named == facts.environment.end() || !absl::SimpleAtoi(named->second, &index)) return;
  for (const RdmaPort& port : ports) {
    std::vector<std::string> there;
    for (const RdmaGid& gid : port.gids) there.push_back(absl::StrCat(gid.index));
    if (std::count(there.begin(), there.end(), absl::StrCat(index)) > 0) continue;
    advice.push_back(
        {Verdict::kFail,
         absl::StrCat("RDMA: UCX_IB_GID_INDEX is ", index, ", but ", port.name, " has no such GID"),
         absl::StrCat("unset it (the address then decides), or use one of ",
                      absl::StrJoin(there, " "))});
  }
}

// What a user may have written for one of our settings.
std::vector<std::string> VariablesFor(const std::string& name) {
  std::vector<std::string> variables = {"UCX_" + name, "UCX_IB_" + name};
  if (absl::StartsWith(name, "RC_")) {
    variables.push_back("UCX_RC_VERBS_" + name.substr(3));
    variables.push_back("UCX_RC_MLX5_" + name.substr(3));
  }
  return variables;
}

void AdviseEnvironment(const RdmaFacts& facts, const RdmaQuestion& question,
                       std::vector<RdmaAdvice>& advice) {
  std::vector<std::string> vain;
  for (const auto& [name, ours] : question.settings) {
    for (const std::string& variable : VariablesFor(name)) {
      const auto set = facts.environment.find(variable);
      if (set != facts.environment.end()) vain.push_back(absl::StrCat(variable, "=", set->second));
    }
  }
  if (vain.empty()) return;
  advice.push_back({Verdict::kWarn,
                    absl::StrCat("RDMA: ", absl::StrJoin(vain, " "), " in the environment"),
                    "without effect on Baton, which sets these itself; unset them"});
}

std::string SettingsText(const RdmaQuestion& question) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : question.settings) {
    texts.push_back(absl::StrCat(name, "=", value));
  }
  return absl::StrCat("RDMA: Baton sets in UCX ", absl::StrJoin(texts, " "),
                      ": a dead peer is an error within a second, not UCX's never");
}

}  // namespace

RdmaFacts ReadRdma() {
  RdmaFacts facts;
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/class/infiniband", error)) {
    std::error_code none;
    for (const auto& port : fs::directory_iterator(device.path() / "ports", none)) {
      facts.ports.push_back(ReadPort(device.path().filename().string(), port.path()));
    }
  }
  std::sort(facts.ports.begin(), facts.ports.end(),
            [](const RdmaPort& a, const RdmaPort& b) { return a.name < b.name; });
  facts.has_manager = ::access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    if (absl::StartsWith(variable.first, "UCX_")) facts.environment.insert(variable);
  }
  return facts;
}

std::vector<RdmaAdvice> AdviseRdma(const RdmaFacts& facts, const RdmaQuestion& question) {
  std::vector<RdmaAdvice> advice;
  if (facts.ports.empty()) return advice;
  std::vector<RdmaPort> named;
  for (const RdmaPort& port : facts.ports) {
    AdvisePort(port, advice);
    const auto& devices = question.devices;
    const bool used = devices.empty() || std::count(devices.begin(), devices.end(), port.name) > 0;
    if (used) named.push_back(port);
  }
  if (named.empty()) {
    advice.push_back({question.required ? Verdict::kFail : Verdict::kWarn,
                      "RDMA: kv_transfer.devices names none of these devices",
                      absl::StrCat("add ", facts.ports[0].name, " to it")});
    return advice;
  }
  if (!facts.has_manager) {
    advice.push_back({question.required ? Verdict::kFail : Verdict::kWarn,
                      "RDMA: /dev/infiniband/rdma_cm is not there or may not be opened",
                      "modprobe rdma_ucm; in a container, give it /dev/infiniband"});
  }
  AdviseTransfers(named, question, advice);
  AdviseGid(named, facts, advice);
  AdviseEnvironment(facts, question, advice);
  advice.push_back({Verdict::kOk, SettingsText(question), ""});
  advice.push_back(
      {Verdict::kOk,
       "RDMA: connections are made by rdma_cm, which takes the GID of the address; UCX's own GID "
       "check (UCX_UD_VERBS_ETH_DGID_CHECK), wrong for some RoCE devices before UCX 1.19, plays "
       "no part",
       ""});
  return advice;
}

}  // namespace baton::server
