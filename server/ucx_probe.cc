// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/ucx_probe.h"

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace baton::server {

UcxProbe ReadUcxInfo(const std::string& text) {
  UcxProbe probe;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::ConsumePrefix(&line, "#");
    line = absl::StripAsciiWhitespace(line);
    if (absl::ConsumePrefix(&line, "Transport:")) {
      probe.transports.insert(std::string(absl::StripAsciiWhitespace(line)));
    } else if (absl::ConsumePrefix(&line, "Device:")) {
      probe.devices.insert(std::string(absl::StripAsciiWhitespace(line)));
    } else if (absl::ConsumePrefix(&line, "Library version:") ||
               absl::ConsumePrefix(&line, "UCT version=") ||
               absl::ConsumePrefix(&line, "Version")) {
      if (probe.version.empty()) probe.version = std::string(absl::StripAsciiWhitespace(line));
    }
  }
  if (probe.transports.empty()) probe.error = "ucx_info is not there or shows no transport";
  return probe;
}

UcxProbe ProbeUcx() {
  std::string text;
  std::FILE* pipe = popen("ucx_info -v -d 2>/dev/null", "r");
  if (pipe == nullptr) return ReadUcxInfo(text);
  char buffer[4096];
  size_t size = 0;
  while ((size = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0) text.append(buffer, size);
  pclose(pipe);
  return ReadUcxInfo(text);
}

}  // namespace baton::server
