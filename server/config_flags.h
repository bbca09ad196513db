// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// --config, --set, --log-level and --log-format, as every command reads them.
//
// Without --config it is config/local.yaml if that is there, else a cluster of one front end,
// one prefill and one decode worker with every default.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "config/config.h"
#include "server/command_line.h"

namespace baton::server {

// The file that --config names or that stands in for it; empty: the built-in cluster.
std::string ConfigPath(const CommandLine& line);
config::Overrides OverridesOf(const CommandLine& line);
absl::StatusOr<config::Config> LoadConfig(const CommandLine& line);

// The built-in cluster with this many workers, as YAML; ports by the documented scheme.
std::string ClusterText(int prefill, int decode);

// Level and format of the process's log.
absl::Status ApplyLogFlags(const CommandLine& line);

}  // namespace baton::server
