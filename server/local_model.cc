// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/local_model.h"

#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/model_loader.h"

namespace baton::server {
namespace {

constexpr int64_t kThreadsMax = 1024;

// Processors that this process may run on.
uint32_t ProcessorCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<uint32_t>(CPU_COUNT(&set));
}

absl::StatusOr<engine::Isa> ParseIsa(const std::string& word) {
  if (word == "auto") return engine::Isa::kAuto;
  if (word == "scalar") return engine::Isa::kScalar;
  if (word == "avx2") return engine::Isa::kAvx2;
  if (word == "avx512") return engine::Isa::kAvx512;
  return absl::InvalidArgumentError(
      absl::StrCat("--isa: '", word, "' is not auto, scalar, avx2 or avx512"));
}

absl::StatusOr<engine::Activations> ParseActivations(const std::string& word) {
  if (word == "int8") return engine::Activations::kInt8;
  if (word == "f32") return engine::Activations::kF32;
  return absl::InvalidArgumentError(absl::StrCat("--activations: '", word, "' is not int8 or f32"));
}

absl::StatusOr<engine::KvType> ParseKvType(const std::string& word) {
  const auto type = engine::ParseKvType(word);
  if (type.has_value()) return *type;
  return absl::InvalidArgumentError(
      absl::StrCat("--kv-type: '", word, "' is not bf16, f16, int8 or f32"));
}

// With f32 activations nothing shall round but the weights.
std::string DefaultKvType(const CommandLine& line) {
  return line.Get("activations", "int8") == "f32" ? "f32"
                                                  : engine::KvTypeName(engine::kDefaultKvType);
}

absl::StatusOr<engine::ForwardOptions> OptionsOf(const CommandLine& line) {
  engine::ForwardOptions options;
  ASSIGN_OR_RETURN(const int64_t threads, line.Integer("threads", ProcessorCount()));
  if (threads < 1 || threads > kThreadsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threads: ", threads, " is not in 1 to ", kThreadsMax));
  }
  options.threads = static_cast<uint32_t>(threads);
  ASSIGN_OR_RETURN(options.isa, ParseIsa(line.Get("isa", "auto")));
  ASSIGN_OR_RETURN(options.activations, ParseActivations(line.Get("activations", "int8")));
  return options;
}

}  // namespace

std::vector<FlagSpec> LocalModelFlags() {
  return {{"model", "FILE", "the model, a GGUF file or a Hugging Face folder"},
          {"threads", "N", "compute threads (default: the processors)"},
          {"isa", "NAME", "auto, scalar, avx2 or avx512 (default auto)"},
          {"activations", "TYPE", "int8 or f32; f32 is exact and slow (default int8)"},
          {"kv-type", "TYPE", "bf16, f16, int8 or f32 (default bf16; f32 with f32 activations)"}};
}

absl::Status CheckLocalModelFlags(const CommandLine& line) {
  if (!line.Has("model")) return absl::InvalidArgumentError("--model FILE is missing");
  RETURN_IF_ERROR(ParseKvType(line.Get("kv-type", DefaultKvType(line))).status());
  return OptionsOf(line).status();
}

absl::StatusOr<LocalModel> LoadLocalModel(const CommandLine& line) {
  ASSIGN_OR_RETURN(engine::ForwardOptions options, OptionsOf(line));
  const std::string path = line.Get("model");
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (!terminal) std::fprintf(stderr, "loading %s\n", path.c_str());
  options.progress = [terminal, &path, shown = -1](double part) mutable {
    const int percent = static_cast<int>(part * 100);
    if (!terminal || percent == shown) return;
    shown = percent;
    std::fprintf(stderr, "\rloading %s: %d %%", path.c_str(), percent);
  };
  LocalModel model;
  ASSIGN_OR_RETURN(engine::Gguf file, engine::OpenModel(path));
  model.file = std::make_unique<engine::Gguf>(std::move(file));
  ASSIGN_OR_RETURN(const engine::ModelWeights weights, engine::LoadModel(*model.file));
  auto forward = engine::Forward::Create(weights, options);
  if (terminal) std::fprintf(stderr, "\r\033[K");
  if (!forward.ok()) return forward.status();
  model.forward = *std::move(forward);
  model.threads = options.threads;
  ASSIGN_OR_RETURN(model.kv_type, ParseKvType(line.Get("kv-type", DefaultKvType(line))));
  model.isa = options.isa;
  return model;
}

}  // namespace baton::server
