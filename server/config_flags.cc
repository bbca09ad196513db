// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/config_flags.h"

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status_macros.h"

extern char** environ;

namespace baton::server {
namespace {

constexpr char kUsualPath[] = "config/local.yaml";

}  // namespace

std::string ConfigPath(const CommandLine& line) {
  if (line.Has("config")) return line.Get("config");
  return access(kUsualPath, R_OK) == 0 ? kUsualPath : "";
}

config::Overrides OverridesOf(const CommandLine& line) {
  config::Overrides overrides;
  if (line.Has("model")) overrides.set.push_back("model.path=" + line.Get("model"));
  for (const std::string& one : line.All("set")) overrides.set.push_back(one);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const size_t equals = text.find('=');
    if (!absl::StartsWith(text, "BATON_") || equals == std::string::npos) continue;
    overrides.environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return overrides;
}

absl::StatusOr<config::Config> LoadConfig(const CommandLine& line) {
  const std::string path = ConfigPath(line);
  const config::Overrides overrides = OverridesOf(line);
  if (!path.empty()) return config::Load(path, overrides);
  return config::Parse(ClusterText(1, 1), "built-in configuration", overrides);
}

std::string ClusterText(int prefill, int decode) {
  std::string text = "version: 1\nworkers:\n";
  auto add = [&text](const char* role, int count, int base) {
    absl::StrAppend(&text, "  ", role, ":\n");
    for (int i = 0; i < count; ++i) {
      const int port = base + 10 * i;
      absl::StrAppendFormat(&text,
                            "    - {name: %s-%d, listen: 127.0.0.1:%d, admin: 127.0.0.1:%d, "
                            "transfer: 127.0.0.1:%d}\n",
                            role, i, port, port + 1, port + 2);
    }
  };
  add("prefill", prefill, 8101);
  add("decode", decode, 8201);
  return text;
}

absl::Status ApplyLogFlags(const CommandLine& line) {
  ASSIGN_OR_RETURN(const LogLevel level, ParseLogLevel(line.Get("log-level", "info")));
  ASSIGN_OR_RETURN(const LogFormat format, ParseLogFormat(line.Get("log-format", "text")));
  SetLogLevel(level);
  SetLogFormat(format);
  return absl::OkStatus();
}

}  // namespace baton::server
