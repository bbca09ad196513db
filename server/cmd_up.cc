// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// up: the whole cluster of this machine, each role a process of this binary.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/cluster_runner.h"
#include "server/commands.h"
#include "server/config_flags.h"
#include "server/role_host.h"

namespace baton::server {
namespace {

constexpr int kWorkersMax = 64;

// A file of our own for the roles to read, when what they shall run is in no file yet.
class TemporaryConfig {
 public:
  ~TemporaryConfig() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  absl::Status Write(const std::string& text) {
    std::string path = "/tmp/baton-XXXXXX";
    const int fd = mkstemp(path.data());
    if (fd < 0) return absl::UnavailableError("no temporary file in /tmp");
    path_ = path;
    const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(fd);
    return written ? absl::OkStatus() : absl::UnavailableError("/tmp is full");
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::Status Prepare(const CommandLine& line, TemporaryConfig* temporary,
                     ClusterRunner::Options* options) {
  ASSIGN_OR_RETURN(const int64_t prefill, line.Integer("prefill", -1));
  ASSIGN_OR_RETURN(const int64_t decode, line.Integer("decode", -1));
  std::string path = ConfigPath(line);
  if (line.Has("prefill") || line.Has("decode") || path.empty()) {
    if (line.Has("config")) {
      return absl::InvalidArgumentError(
          "--prefill and --decode make a cluster; with --config the file says which workers");
    }
    const bool in_range = prefill <= kWorkersMax && decode <= kWorkersMax && decode != 0;
    if (!in_range) return absl::InvalidArgumentError("from 1 to 64 workers can be started");
    RETURN_IF_ERROR(temporary->Write(ClusterText(prefill < 0 ? 1 : static_cast<int>(prefill),
                                                 decode < 0 ? 1 : static_cast<int>(decode))));
    path = temporary->path();
  }
  ASSIGN_OR_RETURN(options->config, config::Load(path, OverridesOf(line)));
  std::vector<std::string>& flags = options->serve_flags;
  flags = {"--config", path};
  for (const std::string& one : line.All("set")) flags.insert(flags.end(), {"--set", one});
  for (const char* name : {"model", "log-level", "log-format"}) {
    if (line.Has(name)) flags.insert(flags.end(), {absl::StrCat("--", name), line.Get(name)});
  }
  options->ready_file = line.Get("ready-file");
  options->once_ready = line.Get("once-ready-exec");
  options->restart = !line.Has("no-restart");
  return absl::OkStatus();
}

int RunUp(const CommandLine& line) {
  if (const absl::Status log = ApplyLogFlags(line); !log.ok()) {
    std::fprintf(stderr, "baton: %s\n", std::string(log.message()).c_str());
    return kExitUsage;
  }
  TemporaryConfig temporary;
  ClusterRunner::Options options;
  if (const absl::Status status = Prepare(line, &temporary, &options); !status.ok()) {
    return Fail(status);
  }
  if (!options.ready_file.empty()) unlink(options.ready_file.c_str());
  BlockSignals();
  return ClusterRunner(std::move(options)).Run();
}

}  // namespace

std::vector<Command> UpCommands() {
  return {{"up",
           "",
           "start the whole cluster on this machine; Ctrl-C drains it",
           {{"model", "PATH", "the model's GGUF file (model.path)"},
            {"prefill", "N", "prefill workers, instead of a configuration file's"},
            {"decode", "N", "decode workers, instead of a configuration file's"},
            {"ready-file", "PATH", "JSON with addresses and processes, written when all are ready"},
            {"once-ready-exec", "CMD", "a shell command to run then; its end stops the cluster"},
            {"no-restart", "", "end when a role ends, instead of restarting it"}},
           RunUp}};
}

}  // namespace baton::server
