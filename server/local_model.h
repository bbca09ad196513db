// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A model in this process, for the commands that compute by themselves.
//
// The flags --model, --threads, --isa, --activations and --kv-type say which and how.  Progress
// goes to stderr: a moving percentage on a terminal, one line otherwise.
//
// Cost:  packing the weights takes about a second for 100 MB.
// Fails: InvalidArgument or NotFound for a bad file or flag, Unavailable for an instruction
//        set that the machine lacks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/forward.h"
#include "engine/gguf.h"
#include "engine/kv_layout.h"
#include "engine/model_spec.h"
#include "server/command_line.h"

namespace baton::server {

struct LocalModel {
  std::unique_ptr<engine::Gguf> file;  // the weights' views point into it
  std::unique_ptr<engine::Forward> forward;
  uint32_t threads = 1;
  engine::Isa isa = engine::Isa::kAuto;
  engine::KvType kv_type = engine::kDefaultKvType;
};

// The flags that Load reads, to be part of a command's own.
std::vector<FlagSpec> LocalModelFlags();

absl::StatusOr<LocalModel> LoadLocalModel(const CommandLine& line);

// Whether --model was given and the flags have known words and numbers in range:
// OK, or what to say with a usage error.
absl::Status CheckLocalModelFlags(const CommandLine& line);

}  // namespace baton::server
