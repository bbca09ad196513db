// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// serve: one role in the foreground.  check-config, print-config: the configuration alone.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/this_thread.h"
#include "server/commands.h"
#include "server/config_flags.h"
#include "server/role.h"
#include "server/role_host.h"
#include "server/role_metrics.h"

namespace baton::server {
namespace {

int Usage(const std::string& why) {
  std::fprintf(stderr, "baton: %s (see baton serve --help)\n", why.c_str());
  return kExitUsage;
}

// Chance enters here, once per life of a process.
uint64_t DrawSeed() {
  std::random_device device;
  const uint64_t high = device();
  const uint64_t seed = high << 32 | device();
  return seed == 0 ? 1 : seed;
}

// The worker that --name names; without it the only one of its role.
absl::StatusOr<std::string> WorkerName(const CommandLine& line,
                                       const std::vector<config::Worker>& workers,
                                       const std::string& role) {
  if (line.Has("name")) return line.Get("name");
  if (workers.size() == 1) return workers[0].name;
  return absl::InvalidArgumentError(
      absl::StrCat("the configuration has ", workers.size(), " ", role, " workers: --name which"));
}

// Every key of the file is read once, at the start: a role that changed its limits or peers
// while requests run under the old ones would be a third thing.  What differs is named.
void Reload(const CommandLine& line, const config::Config& running) {
  const auto fresh = LoadConfig(line);
  NoteReload(fresh.ok());
  if (!fresh.ok()) {
    LogError("configuration not reloaded", {{"why", fresh.status().message()}});
    return;
  }
  (void)ApplyLogFlags(line);
  const std::vector<std::string> changed = config::Differences(running, *fresh);
  if (changed.empty()) {
    LogInfo("configuration read again: nothing changed");
  } else {
    LogWarn("configuration read again: these keys need a restart and keep their values",
            {{"keys", absl::StrJoin(changed, ",")}});
  }
}

int RunServe(const CommandLine& line) {
  const std::string role = line.Get("role");
  if (role != "frontend" && role != "prefill" && role != "decode") {
    return Usage("--role must be frontend, prefill or decode");
  }
  if (const absl::Status log = ApplyLogFlags(line); !log.ok()) {
    return Usage(std::string(log.message()));
  }
  absl::StatusOr<config::Config> config = LoadConfig(line);
  if (!config.ok()) return Fail(config.status());
  absl::StatusOr<std::string> name = role;
  if (role == "prefill") name = WorkerName(line, config->workers.prefill, role);
  if (role == "decode") name = WorkerName(line, config->workers.decode, role);
  if (!name.ok()) return Fail(name.status());
  BlockSignals();
  TakeShortTurns();         // all threads but the engine's
  NameThisThread("baton");  // `up` starts it as /proc/self/exe
  SetLogSource(role, *name);
  const uint64_t seed = DrawSeed();
  RoleOptions options{*config, *name, Incarnation(DrawSeed()), seed};
  LogInfo("starting", {{"version", kVersion},
                       {"incarnation", ToString(options.incarnation)},
                       {"config", ConfigPath(line)},
                       {"model", config->model.path},
                       {"pid", getpid()}});
  auto started = role == "frontend"  ? StartFrontend(options)
                 : role == "prefill" ? StartPrefill(options)
                                     : StartDecode(options);
  if (!started.ok()) return Fail(started.status());
  const int code = HostRole(**started, config->limits.drain, [&] { Reload(line, *config); });
  (*started)->Stop();
  LogInfo("stopped", {{"exit", code}});
  std::_Exit(code);
}

int RunCheckConfig(const CommandLine& line) {
  if (line.words().size() > 1) return Usage("one file at a time");
  const std::string path = line.words().empty() ? ConfigPath(line) : line.words()[0];
  const auto config = path.empty() ? LoadConfig(line) : config::Load(path, OverridesOf(line));
  if (!config.ok()) return Fail(config.status());
  std::printf("%s: ok, %zu prefill and %zu decode workers\n",
              path.empty() ? "built-in configuration" : path.c_str(),
              config->workers.prefill.size(), config->workers.decode.size());
  return kExitOk;
}

int RunPrintConfig(const CommandLine& line) {
  const auto config = LoadConfig(line);
  if (!config.ok()) return Fail(config.status());
  std::fputs(config::Print(*config).c_str(), stdout);
  return kExitOk;
}

}  // namespace

std::vector<Command> ServeCommands() {
  return {
      {"serve",
       "",
       "run one role in the foreground",
       {{"role", "ROLE", "frontend, prefill or decode"},
        {"name", "NAME", "which of the configured workers of that role"},
        {"model", "PATH", "the model's GGUF file (model.path)"}},
       RunServe},
      {"check-config",
       "[FILE]",
       "check a configuration; touches no device or port",
       {},
       RunCheckConfig},
      {"print-config",
       "",
       "show the effective configuration and where each value comes from",
       {{"model", "PATH", "the model's GGUF file (model.path)"}},
       RunPrintConfig},
  };
}

}  // namespace baton::server
