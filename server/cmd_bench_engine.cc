// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// `baton bench engine`: how fast the model computes on this machine, without any server.
//
// The measurements have the names and the work of llama.cpp's llama-bench and
// llama-batched-bench: ppN is a prompt of N tokens in an empty cache, tg128 are 128 steps of
// one token, @d2048 behind 2,048 tokens, xB8 for 8 sequences at once, each behind 128.
// mixed is a step of 8 decoding sequences and a chunk of 256 prompt tokens together, beside
// the two alone.  Nothing is sampled.  tok_s is the median of --reps runs after an untimed
// one.
//
// Each line has its limits beside it: what one step reads and computes, over what this
// machine reads and computes at most (engine/peaks.h, measured at the start).
//
//   bytes   the packed weights once per step, and the keys and values that attention reads
//   ops     two for each multiply-add: of the layers (and the head) in integers if the
//           weights are quantised, of attention always in floats
//   limit   the longer of both: bytes at the read bandwidth, ops at the units' speed
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "engine/cpu/buffer.h"
#include "engine/peaks.h"
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
  uint32_t prompt;     // tokens to time in one go
  uint32_t steps;      // of one token of each sequence
  uint32_t depth;      // tokens already in each sequence's cache
  uint32_t sequences;  // a prompt beside decoding ones has a sequence of its own
};

constexpr Measurement kMeasurements[] = {
    {"pp512", 512, 0, 0, 1},         {"pp2048", 2048, 0, 0, 1},
    {"tg128", 0, kSteps, 0, 1},      {"tg128@d2048", 0, kSteps, 2048, 1},
    {"tg128xB8", 0, kSteps, 128, 8}, {"tg128xB32", 0, kSteps, 128, 32},
    {"mixed", 256, 1, 128, 8},
};

// What a measurement computes and reads.
struct Work {
  double tokens = 0;
  double bytes = 0;
  double layer_ops = 0;  // and the head's
  double attention_ops = 0;
};

class EngineBench {
 public:
  EngineBench(LocalModel model, engine::Peaks peaks, int reps)
      : model_(std::move(model)),
        spec_(model_.forward->spec()),
        peaks_(peaks),
        reps_(reps),
        integers_(static_cast<double>(model_.forward->weight_bytes()) <
                  kIntegerBytes * (LayerMacs() + HeadMacs())) {}

  bool Fits(const Measurement& what) const { return Length(what) <= spec_.context; }

  json Measure(const Measurement& what) {
    Prepare(what);
    json line = Report(what, Median(what));
    if (what.prompt > 0 && what.steps > 0) {
      const Measurement prompt{what.name, what.prompt, 0, 0, what.sequences};
      const Measurement steps{what.name, 0, what.steps, what.depth, what.sequences};
      const double alone = Median(prompt).seconds + Median(steps).seconds;
      line["over_alone"] = line["seconds"].get<double>() / alone;
    }
    return line;
  }

 private:
  struct Timing {
    double seconds;  // the median
    double best;
  };
  // Packed integers take less of a weight, packed floats more.
  static constexpr double kIntegerBytes = 1.5;

  static uint32_t Length(const Measurement& what) {
    return std::max(what.prompt, what.depth + what.steps);
  }

  Timing Median(const Measurement& what) {
    std::vector<double> seconds;
    for (int rep = 0; rep <= reps_; ++rep) {
      const absl::Time start = clock_.Now();
      RunOnce(what);
      if (rep > 0) seconds.push_back(absl::FDivDuration(clock_.Now() - start, absl::Seconds(1)));
    }
    std::sort(seconds.begin(), seconds.end());
    return {seconds[seconds.size() / 2], seconds.front()};
  }

  // Memory and caches for the sequences, filled up to their depth, and one more.
  void Prepare(const Measurement& what) {
    const uint32_t blocks = BlocksFor(Length(what));
    const uint32_t sequences = what.sequences + 1;
    pool_.layout = {spec_.layers, spec_.kv_heads, spec_.head_dim, blocks * sequences,
                    model_.kv_type};
    memory_.Reserve(pool_.layout.pool_bytes());
    pool_.base = memory_.data();
    tables_.assign(sequences, std::vector<BlockIndex>(blocks));
    for (uint32_t s = 0; s < sequences; ++s) {
      std::iota(tables_[s].begin(), tables_[s].end(), s * blocks);
    }
    Random random(1);
    tokens_.resize(Length(what));
    for (TokenId& id : tokens_) id = static_cast<TokenId>(random.Below(spec_.vocab));
    for (uint32_t s = 0; s < what.sequences; ++s) RunPrompt(s, what.depth);
  }

  engine::ForwardSlice Tokens(uint32_t sequence, uint32_t position, uint32_t count) const {
    return {absl::MakeConstSpan(tokens_).subspan(position, count), position, tables_[sequence],
            engine::ForwardSlice::Logits::kLast};
  }

  void RunPrompt(uint32_t sequence, uint32_t count) {
    for (uint32_t start = 0; start < count; start += kChunk) {
      const uint32_t size = std::min(kChunk, count - start);
      engine::ForwardSlice slice = Tokens(sequence, start, size);
      if (start + size < count) slice.logits = engine::ForwardSlice::Logits::kNone;
      model_.forward->Run({&slice, 1}, pool_, {}, logits_);
    }
  }

  void RunOnce(const Measurement& what) {
    if (what.steps == 0) return RunPrompt(what.sequences, what.prompt);
    for (uint32_t position = what.depth; position < what.depth + what.steps; ++position) {
      slices_.clear();
      for (uint32_t s = 0; s < what.sequences; ++s) slices_.push_back(Tokens(s, position, 1));
      if (what.prompt > 0) slices_.push_back(Tokens(what.sequences, 0, what.prompt));
      model_.forward->Run(slices_, pool_, {}, logits_);
    }
  }

  double LayerMacs() const {
    const double q = static_cast<double>(spec_.heads) * spec_.head_dim;
    const double kv = static_cast<double>(spec_.kv_heads) * spec_.head_dim;
    return spec_.layers * spec_.hidden * (2 * q + 2 * kv + 3.0 * spec_.ffn);
  }
  double HeadMacs() const { return static_cast<double>(spec_.vocab) * spec_.hidden; }

  // The head is computed for `heads` of the tokens; all tokens see `positions` together, and
  // `read` of them are read.
  void AddStep(Work& work, double tokens, double heads, double positions, double read) const {
    const double kv_bytes = static_cast<double>(pool_.layout.block_bytes()) / kBlockTokens;
    work.tokens += tokens;
    work.bytes +=
        static_cast<double>(model_.forward->weight_bytes()) + kv_bytes * spec_.layers * read;
    work.layer_ops += 2 * (tokens * LayerMacs() + heads * HeadMacs());
    work.attention_ops += 4.0 * spec_.layers * spec_.heads * spec_.head_dim * positions;
  }

  Work WorkOf(const Measurement& what) const {
    Work work;
    if (what.steps == 0) {
      for (uint32_t end = kChunk; end <= what.prompt; end += kChunk) {
        const double seen = kChunk * (end - (kChunk - 1) / 2.0);
        AddStep(work, kChunk, end == what.prompt ? 1 : 0, seen, end);
      }
      return work;
    }
    for (uint32_t position = what.depth; position < what.depth + what.steps; ++position) {
      const double decoding = what.sequences * (position + 1.0);
      const double prompt = what.prompt;
      AddStep(work, what.sequences + prompt, what.sequences + (prompt > 0 ? 1 : 0),
              decoding + prompt * (prompt + 1) / 2, decoding + prompt);
    }
    return work;
  }

  json Report(const Measurement& what, Timing timing) const {
    const Work work = WorkOf(what);
    const double ops = work.layer_ops + work.attention_ops;
    json line = {{"what", what.name},
                 {"tok_s", work.tokens / timing.seconds},
                 {"best", work.tokens / timing.best},
                 {"reps", reps_},
                 {"seconds", timing.seconds},
                 {"bytes_per_s", work.bytes / timing.seconds},
                 {"ops_per_s", ops / timing.seconds},
                 {"threads", model_.threads},
                 {"isa", model_.forward->isa_name()}};
    if (peaks_.read_bytes == 0) return line;
    const double layer_peak = integers_ ? peaks_.int8_ops : peaks_.float_ops;
    const double reading = work.bytes / peaks_.read_bytes;
    const double computing = work.layer_ops / layer_peak + work.attention_ops / peaks_.float_ops;
    line["limit_tok_s"] = work.tokens / std::max(reading, computing);
    line["read_share"] = reading / timing.seconds;
    line["layer_peak_share"] = ops / layer_peak / timing.seconds;
    line["peak_read_bytes_per_s"] = peaks_.read_bytes;
    line["peak_int8_ops_per_s"] = peaks_.int8_ops;
    line["peak_float_ops_per_s"] = peaks_.float_ops;
    return line;
  }

  LocalModel model_;
  const engine::ModelSpec spec_;
  const engine::Peaks peaks_;
  const int reps_;
  const bool integers_;  // the weights are quantised
  const RealClock clock_;
  engine::cpu::Buffer memory_;  // in pages as a worker's own
  engine::KvPool pool_;
  std::vector<std::vector<BlockIndex>> tables_;
  std::vector<TokenId> tokens_;
  std::vector<engine::ForwardSlice> slices_;
  std::vector<float> logits_;
};

void Print(const json& line, bool as_json) {
  if (as_json) {
    std::cout << line.dump() << std::endl;
    return;
  }
  const auto number = [&](const char* key) { return line[key].get<double>(); };
  std::printf("%-12s %8.1f tok/s (best %.1f of %d)  %5.1f GB/s  %7.1f Gop/s",
              line["what"].get<std::string>().c_str(), number("tok_s"), number("best"),
              line["reps"].get<int>(), number("bytes_per_s") / 1e9, number("ops_per_s") / 1e9);
  if (line.contains("limit_tok_s")) {
    std::printf("  limit %.0f tok/s; %2.0f %% of %.1f GB/s, %2.0f %% of peak ops",
                number("limit_tok_s"), 100 * number("read_share"),
                number("peak_read_bytes_per_s") / 1e9, 100 * number("layer_peak_share"));
  }
  if (line.contains("over_alone")) std::printf("  %.2f of both alone", number("over_alone"));
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
  const auto peaks = engine::MeasurePeaks(model->isa, model->threads);
  if (!peaks.ok()) return Fail(peaks.status());
  EngineBench bench(*std::move(model), *peaks, static_cast<int>(*reps));
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
