// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "kv_transfer/ucx_lanes.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"

namespace baton::kv {
namespace {

constexpr size_t kLanesMax = 64;

// "#   lane[0]:  1:sysv/memory.0 md[1]  -> md[1]/sysv/sysdev[255] am am_bw#0 keepalive"
std::optional<UcxLane> ParseLane(absl::string_view line) {
  const size_t lane = line.find("lane[");
  if (lane == absl::string_view::npos) return std::nullopt;
  const size_t close = line.find("]:", lane);
  if (close == absl::string_view::npos) return std::nullopt;
  const std::vector<absl::string_view> words =
      absl::StrSplit(line.substr(close + 2), ' ', absl::SkipWhitespace());
  if (words.empty()) return std::nullopt;
  const size_t colon = words[0].find(':');
  const size_t slash = words[0].find('/');
  if (colon == absl::string_view::npos || slash == absl::string_view::npos || slash < colon) {
    return std::nullopt;
  }
  UcxLane result;
  result.transport = std::string(words[0].substr(colon + 1, slash - colon - 1));
  absl::string_view device = words[0].substr(slash + 1);
  device = device.substr(0, device.rfind('.'));  // the path's number
  result.device = std::string(device);
  bool wireup = false, other = false;
  for (size_t i = 1; i < words.size(); ++i) {
    if (absl::StartsWith(words[i], "wireup")) wireup = true;
    if (words[i] == "am" || absl::StartsWith(words[i], "am_bw") ||
        absl::StartsWith(words[i], "rma")) {
      other = true;
    }
  }
  result.wireup_only = wireup && !other;
  return result;
}

}  // namespace

std::vector<UcxLane> ParseLanes(absl::string_view endpoint_info) {
  std::vector<UcxLane> lanes;
  for (absl::string_view line : absl::StrSplit(endpoint_info, '\n')) {
    if (lanes.size() == kLanesMax) break;
    if (auto lane = ParseLane(line)) lanes.push_back(*std::move(lane));
  }
  return lanes;
}

bool IsRdmaTransport(absl::string_view transport) {
  return absl::StartsWith(transport, "rc") || absl::StartsWith(transport, "dc");
}

bool IsMemoryTransport(absl::string_view transport) {
  return transport == "sysv" || transport == "posix" || transport == "xpmem" ||
         transport == "self" || transport == "cuda_ipc" || IsRdmaTransport(transport);
}

}  // namespace baton::kv
