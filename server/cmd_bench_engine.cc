// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// `baton bench engine`: how fast the model computes on this machine, without any server.
//
// The measurements have the names and the work of llama.cpp's llama-bench and
// llama-batched-bench: ppN is a prompt of N tokens in an empty cache, tg128 are 128 steps of
// one token, @d2048 behind 2,048 tokens, xB8 for 8 sequences at once, each behind 128.
// Nothing is sampled.  tok_s is the median of --reps runs after an untimed one.
//
// bytes_per_s counts the packed weights once per step and the keys and values that
// attention reads; ops_per_s two for each multiply-add.  limit_tok_s, for decoding, is what
// the memory could give: the read bandwidth measured at the start over the bytes of a step.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "server/commands.h"
#include "server/local_model.h"

namespace baton::server {
namespace {

using nlohmann::json;

constexpr uint32_t kChunk = 512;  // of a prompt
constexpr uint32_t kSteps = 128;  // of a decode measurement
constexpr int64_t kRepsMax = 1000;

struct Measurement {
  const char* name;
  uint32_t prompt;  // tokens to time in one go; 0: kSteps steps of one token each
  uint32_t depth;   // tokens already in each sequence's cache
  uint32_t sequences;
};

constexpr Measurement kMeasurements[] = {
    {"pp512", 512, 0, 1},        {"pp2048", 2048, 0, 1},  {"tg128", 0, 0, 1},
    {"tg128@d2048", 0, 2048, 1}, {"tg128xB8", 0, 128, 8}, {"tg128xB32", 0, 128, 32},
};

// Reads memory far larger than the caches with `threads` threads: the best of some passes.
double MeasureReadBandwidth(uint32_t threads) {
  constexpr size_t kWords = (64u << 20) / sizeof(uint64_t);  // of each thread
  constexpr int kPasses = 6;
  const RealClock clock;
  std::vector<std::vector<uint64_t>> memory(threads, std::vector<uint64_t>(kWords, 1));
  std::vector<uint64_t> sums(threads);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const absl::Time start = clock.Now();
    std::vector<std::thread> workers;
    for (uint32_t t = 0; t < threads; ++t) {
      workers.emplace_back(
          [&, t] { sums[t] = std::accumulate(memory[t].begin(), memory[t].end(), sums[t]); });
    }
    for (std::thread& worker : workers) worker.join();
    const double seconds = absl::FDivDuration(clock.Now() - start, absl::Seconds(1));
    best = std::max(best, threads * kWords * sizeof(uint64_t) / seconds);
  }
  // The sums must be used, or nothing is read.
  return sums[0] == 0 ? 0 : best;
}

class EngineBench {
 public:
  EngineBench(LocalModel model, int reps)
      : model_(std::move(model)),
        spec_(model_.forward->spec()),
        reps_(reps),
        read_bytes_per_s_(MeasureReadBandwidth(model_.threads)) {}

  bool Fits(const Measurement& what) const { return Length(what) <= spec_.context; }

  json Measure(const Measurement& what) {
    Prepare(what);
    std::vector<double> seconds;
    for (int rep = 0; rep <= reps_; ++rep) {
      const absl::Time start = clock_.Now();
      RunOnce(what);
      if (rep > 0) seconds.push_back(absl::FDivDuration(clock_.Now() - start, absl::Seconds(1)));
    }
    std::sort(seconds.begin(), seconds.end());
    return Report(what, seconds);
  }

 private:
  static uint32_t Length(const Measurement& what) {
    return what.depth + std::max(what.prompt, what.prompt == 0 ? kSteps : 0);
  }

  // Memory and caches for the sequences, filled up to their depth.
  void Prepare(const Measurement& what) {
    const uint32_t blocks = BlocksFor(Length(what));
    pool_.layout = {spec_.layers, spec_.kv_heads, spec_.head_dim, blocks * what.sequences,
                    model_.kv_type};
    memory_ = std::make_unique<uint8_t[]>(pool_.layout.pool_bytes());
    pool_.base = memory_.get();
    tables_.assign(what.sequences, std::vector<BlockIndex>(blocks));
    for (uint32_t s = 0; s < what.sequences; ++s) {
      std::iota(tables_[s].begin(), tables_[s].end(), s * blocks);
    }
    Random random(1);
    tokens_.resize(Length(what));
    for (TokenId& id : tokens_) id = static_cast<TokenId>(random.Below(spec_.vocab));
    for (uint32_t s = 0; s < what.sequences; ++s) RunPrompt(s, what.depth);
  }

  void RunPrompt(uint32_t sequence, uint32_t count) {
    for (uint32_t start = 0; start < count; start += kChunk) {
      const uint32_t size = std::min(kChunk, count - start);
      engine::ForwardSlice slice{absl::MakeConstSpan(tokens_).subspan(start, size), start,
                                 tables_[sequence]};
      if (start + size == count) slice.logits = engine::ForwardSlice::Logits::kLast;
      model_.forward->Run({&slice, 1}, pool_, {}, logits_);
    }
  }

  void RunOnce(const Measurement& what) {
    if (what.prompt > 0) return RunPrompt(0, what.prompt);
    std::vector<engine::ForwardSlice> slices(what.sequences);
    for (uint32_t position = what.depth; position < what.depth + kSteps; ++position) {
      for (uint32_t s = 0; s < what.sequences; ++s) {
        slices[s] = {absl::MakeConstSpan(tokens_).subspan(position, 1), position, tables_[s],
                     engine::ForwardSlice::Logits::kLast};
      }
      model_.forward->Run(slices, pool_, {}, logits_);
    }
  }

  // Bytes of keys and values of one position, and multiply-adds of one token.
  double KvBytes() const {
    const engine::KvLayout one{spec_.layers, spec_.kv_heads, spec_.head_dim, 1, model_.kv_type};
    return static_cast<double>(one.pool_bytes()) / kBlockTokens;
  }
  double LayerMacs() const {
    const double q = static_cast<double>(spec_.heads) * spec_.head_dim;
    const double kv = static_cast<double>(spec_.kv_heads) * spec_.head_dim;
    return spec_.layers * spec_.hidden * (2 * q + 2 * kv + 3.0 * spec_.ffn);
  }
  double HeadMacs() const { return static_cast<double>(spec_.vocab) * spec_.hidden; }
  double AttentionMacs(double positions) const {
    return 2.0 * spec_.layers * spec_.heads * spec_.head_dim * positions;
  }

  json Report(const Measurement& what, const std::vector<double>& seconds) const {
    const double weights = static_cast<double>(model_.forward->weight_bytes());
    double tokens = what.prompt;
    double bytes = 0;
    double macs = 0;
    if (what.prompt > 0) {
      // Each chunk reads the weights, and the keys and values up to its end.
      for (uint32_t end = kChunk; end <= what.prompt; end += kChunk) {
        bytes += weights + end * KvBytes();
      }
      macs = tokens * LayerMacs() + HeadMacs() + AttentionMacs(tokens * (tokens + 1) / 2);
    } else {
      tokens = kSteps * what.sequences;
      const double positions = tokens * (what.depth + (kSteps + 1) / 2.0);
      bytes = kSteps * weights + positions * KvBytes();
      macs = tokens * (LayerMacs() + HeadMacs()) + AttentionMacs(positions);
    }
    const double median = seconds[seconds.size() / 2];
    json line = {{"what", what.name},
                 {"tok_s", tokens / median},
                 {"best", tokens / seconds.front()},
                 {"reps", seconds.size()},
                 {"bytes_per_s", bytes / median},
                 {"ops_per_s", 2 * macs / median},
                 {"threads", model_.threads},
                 {"isa", model_.forward->isa_name()},
                 {"read_bytes_per_s", read_bytes_per_s_}};
    if (what.prompt == 0) line["limit_tok_s"] = tokens * read_bytes_per_s_ / bytes;
    return line;
  }

  LocalModel model_;
  const engine::ModelSpec spec_;
  const int reps_;
  const double read_bytes_per_s_;
  const RealClock clock_;
  std::unique_ptr<uint8_t[]> memory_;
  engine::KvPool pool_;
  std::vector<std::vector<BlockIndex>> tables_;
  std::vector<TokenId> tokens_;
  std::vector<float> logits_;
};

void Print(const json& line, bool as_json) {
  if (as_json) {
    std::cout << line.dump() << std::endl;
    return;
  }
  std::printf("%-12s %10.1f tok/s (best %.1f of %d)  %6.1f GB/s  %7.1f Gop/s",
              line["what"].get<std::string>().c_str(), line["tok_s"].get<double>(),
              line["best"].get<double>(), line["reps"].get<int>(),
              line["bytes_per_s"].get<double>() / 1e9, line["ops_per_s"].get<double>() / 1e9);
  if (line.contains("limit_tok_s")) {
    std::printf("  memory allows %.1f tok/s", line["limit_tok_s"].get<double>());
  }
  std::printf("\n");
  std::fflush(stdout);
}

absl::StatusOr<std::vector<Measurement>> Chosen(const CommandLine& line) {
  std::vector<Measurement> chosen;
  if (!line.Has("what")) {
    chosen.assign(std::begin(kMeasurements), std::end(kMeasurements));
    return chosen;
  }
  std::vector<std::string> names;
  for (const Measurement& what : kMeasurements) names.push_back(what.name);
  for (const std::string& wanted : line.All("what")) {
    const auto found = std::find(names.begin(), names.end(), wanted);
    if (found == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--what: '", wanted, "' is none of ", absl::StrJoin(names, ", ")));
    }
    chosen.push_back(kMeasurements[found - names.begin()]);
  }
  return chosen;
}

int Usage(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

int RunBenchEngine(const CommandLine& line) {
  if (const absl::Status status = CheckLocalModelFlags(line); !status.ok()) return Usage(status);
  const auto chosen = Chosen(line);
  if (!chosen.ok()) return Usage(chosen.status());
  const auto reps = line.Integer("reps", 5);
  if (!reps.ok()) return Usage(reps.status());
  if (*reps < 1 || *reps > kRepsMax) {
    return Usage(
        absl::InvalidArgumentError(absl::StrCat("--reps: ", *reps, " is not in 1 to ", kRepsMax)));
  }
  auto model = LoadLocalModel(line);
  if (!model.ok()) return Fail(model.status());
  EngineBench bench(*std::move(model), static_cast<int>(*reps));
  for (const Measurement& what : *chosen) {
    if (bench.Fits(what)) {
      Print(bench.Measure(what), line.Has("json"));
    } else {
      std::fprintf(stderr, "%s: left out, the model's context is too short\n", what.name);
    }
  }
  return kExitOk;
}

}  // namespace

std::vector<Command> BenchEngineCommands() {
  std::vector<FlagSpec> flags = LocalModelFlags();
  flags.push_back({"reps", "N", "runs of each measurement (default 5)"});
  flags.push_back({"what", "NAME", "only this measurement, e.g. pp512 (repeatable)"});
  flags.push_back({"json", "", "JSON lines"});
  return {{"bench engine", "", "how fast the model computes here", flags, &RunBenchEngine}};
}

}  // namespace baton::server
