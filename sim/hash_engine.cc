// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The arithmetic of a model made of hashes, once over a pool and once without (Oracle).
#include "sim/hash_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/ensure.h"
#include "base/random.h"

namespace baton::sim {
namespace {

using engine::KvLayout;
using engine::KvPool;

// A fifth of all that the simulator computes: never a call.
[[gnu::always_inline]] inline uint64_t Mix(uint64_t a, uint64_t b) {
  return SplitMix64(SplitMix64(a) ^ b);
}

// Rows of a simulated model are a few words: cheaper than a call of memcpy.
[[gnu::always_inline]] inline void CopyWords(uint8_t* to, const uint8_t* from, size_t size) {
  size_t at = 0;
  for (; at + 8 <= size; at += 8) std::memcpy(to + at, from + at, 8);
  for (; at < size; ++at) to[at] = from[at];
}

// One position's K and V of all heads, in wire order of (K or V, head).
struct Row {
  // A run of bytes of the row, and where the position `token` of a block has it.
  struct Piece {
    size_t at = 0;
    uint64_t offset = 0;  // + token * stride
    uint64_t stride = 0;
    size_t size = 0;
  };
  std::vector<uint8_t> bytes;
  std::vector<Piece> pieces;

  explicit Row(const KvLayout& layout, bool paired = false) {
    const size_t size = layout.row_bytes();
    const size_t scale = KvScaleBytes(layout.type);
    const uint64_t pair = 2 * (size + scale);  // both rows, both scales
    size_t at = 0;
    for (uint32_t i = 0; i < 2 * layout.kv_heads; ++i) {
      const uint32_t which = i / layout.kv_heads;
      const uint32_t head = i % layout.kv_heads;
      const uint64_t first = head * kBlockTokens * pair;
      Piece row{at, first + which * size, pair, size};
      Piece scales{at + size, first + 2 * size + which * scale, pair, scale};
      if (!paired) {
        row = {at, layout.rows_offset(which, head), size, size};
        scales = {at + size, layout.scales_offset(which, head), scale, scale};
      }
      pieces.push_back(row);
      if (scale > 0) pieces.push_back(scales);
      at += size + scale;
    }
    bytes.resize(at);
  }

  void Fill(uint64_t value, uint32_t layer) {
    for (size_t at = 0; at < bytes.size(); at += 8) {
      const uint64_t word = CounterRandom(value, layer, at);
      std::memcpy(bytes.data() + at, &word, std::min<size_t>(8, bytes.size() - at));
    }
  }
  uint64_t Hash() const {
    uint64_t hash = 0;
    for (size_t at = 0; at < bytes.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
      hash = Mix(hash, word);
    }
    return hash;
  }
  void Store(const KvPool& pool, uint32_t layer, BlockIndex block, uint32_t token) const {
    uint8_t* const base = pool.at(layer, block);
    for (const Piece& piece : pieces) {
      CopyWords(base + piece.offset + token * piece.stride, bytes.data() + piece.at, piece.size);
    }
  }
  void Load(const KvPool& pool, uint32_t layer, BlockIndex block, uint32_t token) {
    const uint8_t* const base = pool.at(layer, block);
    for (const Piece& piece : pieces) {
      CopyWords(bytes.data() + piece.at, base + piece.offset + token * piece.stride, piece.size);
    }
  }
};

uint64_t FirstInput(TokenId token, uint32_t position, uint64_t weights) {
  return Mix((weights << 32) + static_cast<uint64_t>(token), position);
}

OutputToken Draw(uint64_t state, const engine::SampleSpec& spec, uint32_t vocab_size) {
  const SamplingParams& params = spec.params;
  uint64_t hash = Mix(state, spec.output_index);
  if (params.temperature > 0) hash = Mix(Mix(hash, params.seed), params.choice);
  for (const auto& [id, bias] : params.logit_bias) hash = Mix(hash, static_cast<uint64_t>(id));
  if (!spec.history.empty()) hash = Mix(hash, spec.prompt_tokens);
  for (const TokenId id : spec.history) hash = Mix(hash, static_cast<uint64_t>(id));

  const auto banned = [&](TokenId id) {
    return std::find(spec.banned.begin(), spec.banned.end(), id) != spec.banned.end();
  };
  ENSURE(spec.banned.size() < vocab_size);
  OutputToken drawn;
  drawn.id = static_cast<TokenId>(hash % vocab_size);
  while (banned(drawn.id)) drawn.id = (drawn.id + 1) % static_cast<TokenId>(vocab_size);
  if (params.logprobs < 0) return drawn;
  drawn.logprob = -static_cast<float>(UnitInterval(Mix(hash, 1)));
  for (int32_t i = 0; i < params.logprobs; ++i) {
    const auto id = static_cast<TokenId>((static_cast<uint32_t>(drawn.id) + i) % vocab_size);
    drawn.top.push_back({id, drawn.logprob - static_cast<float>(i)});
  }
  return drawn;
}

// What the workers should ask for, by the definition of its fields: they are what the Oracle
// judges, so it does not ask them.
engine::SampleSpec SampleOf(const Sequence& known) {
  const SamplingParams& params = known.sampling;
  engine::SampleSpec spec;
  spec.params = params;
  spec.output_index = static_cast<uint32_t>(known.outputs.size());
  spec.prompt_tokens = static_cast<uint32_t>(known.prompt.size());
  if (params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
      params.frequency_penalty != 0.0f) {
    spec.history = known.prompt;
    spec.history.insert(spec.history.end(), known.outputs.begin(), known.outputs.end());
  }
  if (spec.output_index < known.min_tokens) spec.banned = known.stop_ids;
  return spec;
}

}  // namespace

HashEngine::HashEngine(const HashEngineOptions& options, const KvPool& pool, const Clock& clock)
    : options_(options), pool_(pool), clock_(clock) {
  ENSURE(pool.base != nullptr && pool.layout.layers > 0);
  info_.layers = pool.layout.layers;
  info_.vocab_size = options.vocab_size;
  info_.context_max = options.context_max;
}

void HashEngine::Submit(engine::Step step) {
  ENSURE(!step_.has_value());
  ENSURE(step.id > last_step_ && !step.slices.empty());
  std::vector<BlockIndex> written;
  inputs_.clear();
  size_t tokens = 0;
  for (const engine::Slice& slice : step.slices) {
    const uint32_t end = slice.position + static_cast<uint32_t>(slice.tokens.size());
    ENSURE(!slice.tokens.empty() && end <= options_.context_max);
    ENSURE(slice.block_table.size() >= BlocksFor(end));
    for (const BlockIndex block : slice.block_table) ENSURE(block < pool_.layout.blocks);
    for (uint32_t i = slice.position / kBlockTokens; i < BlocksFor(end); ++i) {
      written.push_back(slice.block_table[i]);
    }
    std::vector<uint64_t>& inputs = inputs_.emplace_back();
    for (uint32_t i = 0; i < slice.tokens.size(); ++i) {
      const TokenId token = slice.tokens[i];
      ENSURE(token >= 0 && static_cast<uint32_t>(token) < options_.vocab_size);
      inputs.push_back(FirstInput(token, slice.position + i, options_.weights));
    }
    tokens += slice.tokens.size();
  }
  std::sort(written.begin(), written.end());
  ENSURE(std::adjacent_find(written.begin(), written.end()) == written.end());
  last_step_ = step.id;
  started_ = clock_.Now();
  duration_ = options_.step + static_cast<double>(tokens) * options_.token;
  layers_done_ = 0;
  step_ = std::move(step);
  ++steps_;
}

absl::Time HashEngine::LayerTime(uint32_t layer) const {
  return started_ + duration_ * (layer + 1) / (info_.layers + 1);
}

absl::Time HashEngine::NextEvent() const {
  if (!step_.has_value()) return absl::InfiniteFuture();
  if (layers_done_ < info_.layers && step_->layer_events) return LayerTime(layers_done_);
  return started_ + duration_;
}

void HashEngine::RunLayer(uint32_t layer) {
  Row row(pool_.layout, options_.rows_paired);
  for (size_t s = 0; s < step_->slices.size(); ++s) {
    const engine::Slice& slice = step_->slices[s];
    const auto block = [&](uint32_t position) {
      return slice.block_table[position / kBlockTokens];
    };
    uint64_t digest = 0;
    for (uint32_t position = 0; position < slice.position; ++position) {
      row.Load(pool_, layer, block(position), position % kBlockTokens);
      digest = Mix(digest, row.Hash());
    }
    for (uint32_t i = 0; i < slice.tokens.size(); ++i) {
      const uint32_t position = slice.position + i;
      row.Fill(inputs_[s][i], layer);
      row.Store(pool_, layer, block(position), position % kBlockTokens);
      digest = Mix(digest, row.Hash());
      inputs_[s][i] = Mix(inputs_[s][i], digest);
    }
  }
}

std::vector<engine::Sampled> HashEngine::Sample() const {
  std::vector<engine::Sampled> sampled;
  for (size_t s = 0; s < step_->slices.size(); ++s) {
    const engine::Slice& slice = step_->slices[s];
    if (!slice.sample.has_value()) continue;
    sampled.push_back({slice.tag, Draw(inputs_[s].back(), *slice.sample, options_.vocab_size)});
  }
  return sampled;
}

void HashEngine::Poll(std::vector<engine::Event>& events) {
  if (!step_.has_value()) return;
  const absl::Time now = clock_.Now();
  while (layers_done_ < info_.layers && now >= LayerTime(layers_done_)) {
    RunLayer(layers_done_);
    if (step_->layer_events) events.push_back(engine::LayerDone{step_->id, layers_done_});
    ++layers_done_;
  }
  if (now < started_ + duration_) return;
  ENSURE(layers_done_ == info_.layers);
  events.push_back(engine::StepDone{step_->id, absl::OkStatus(), Sample()});
  step_.reset();
}

std::vector<OutputToken> Oracle(const Sequence& sequence, const HashEngineOptions& options,
                                const KvLayout& layout) {
  Sequence known = sequence;
  std::vector<OutputToken> drawn;
  std::vector<uint64_t> digests(layout.layers, 0);
  Row row(layout);
  for (uint32_t position = 0;; ++position) {
    uint64_t value = FirstInput(known.at(position), position, options.weights);
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      row.Fill(value, layer);
      digests[layer] = Mix(digests[layer], row.Hash());
      value = Mix(value, digests[layer]);
    }
    if (position + 1 < known.size()) continue;
    OutputToken token = Draw(value, SampleOf(known), options.vocab_size);
    known.outputs.push_back(token.id);
    drawn.push_back(std::move(token));
    const TokenId id = drawn.back().id;
    const bool stop =
        std::find(known.stop_ids.begin(), known.stop_ids.end(), id) != known.stop_ids.end();
    if (stop || --known.remaining_tokens == 0 || known.size() >= options.context_max) return drawn;
  }
}

}  // namespace baton::sim
