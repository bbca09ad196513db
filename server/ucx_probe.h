// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What UCX sees on this machine, as its own tool tells it.
//
// Runs `ucx_info -d` once and reads its text: the library's headers have one home, and this
// command needs names only.
#pragma once

#include <set>
#include <string>

namespace baton::server {

struct UcxProbe {
  std::string error;  // empty: it could be asked
  std::string version;
  std::set<std::string> transports, devices;
};

UcxProbe ProbeUcx();
// For tests: the same from the tool's output.
UcxProbe ReadUcxInfo(const std::string& text);

}  // namespace baton::server
