// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Every key of the configuration, once: its path, how to read it and how to print it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "config/config.h"

namespace baton::config {

struct Field {
  std::string path;  // "limits.drain", "workers.prefill.0.threads"
  std::function<absl::Status(const std::string& text)> set;
  std::function<std::string()> get;
  bool list = false;  // its YAML value is a list of scalars, joined by commas
};

// The fields of this configuration, with as many workers as it has now.  They point into
// `config`, which must stay where it is.
std::vector<Field> Fields(Config& config);

}  // namespace baton::config
