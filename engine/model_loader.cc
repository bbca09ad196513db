// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/model_loader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "engine/hf_folder.h"

namespace baton::engine {
namespace {

// Larger than any model we know; small enough that no product of two overflows 64 bits.
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kHiddenMax = 1 << 17;
constexpr uint64_t kHeadsMax = 1024;
constexpr uint64_t kHeadDimMax = 1024;
constexpr uint64_t kFfnMax = 1 << 20;
constexpr uint64_t kVocabMax = 1 << 22;
constexpr uint64_t kContextMax = 1 << 24;
constexpr int64_t kTokenTypeUnused = 5;

// Takes metadata and tensors out of the file, and remembers which tensors nobody took.
class Loader {
 public:
  explicit Loader(const Gguf& file) : file_(file) {
    for (const auto& [name, tensor] : file.tensors()) left_.insert(name);
  }

  absl::StatusOr<ModelWeights> Load();

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_.name(), ": ", what));
  }
  std::string Key(absl::string_view rest) const {
    return absl::StrCat(spec_.architecture, ".", rest);
  }

  absl::Status Dimension(absl::string_view rest, uint64_t max, uint32_t& value) const;
  absl::Status OptionalDimension(absl::string_view rest, uint64_t max, uint32_t& value) const;
  absl::Status OptionalNumber(absl::string_view rest, float& value) const;
  absl::Status ReadSpec();
  absl::Status ReadHeads();
  absl::Status CheckSwitches() const;
  absl::Status CheckSpec() const;

  absl::Status Take(const std::string& name, uint64_t rows, uint64_t columns, TensorView& view);
  absl::Status TakeOptional(const std::string& name, uint64_t rows, uint64_t columns,
                            TensorView& view);
  absl::Status TakeLayer(uint32_t layer, LayerWeights& weights);

  const Gguf& file_;
  absl::btree_set<std::string> left_;
  ModelSpec spec_;
};

absl::Status Loader::Dimension(absl::string_view rest, uint64_t max, uint32_t& value) const {
  ASSIGN_OR_RETURN(const uint64_t number, file_.Unsigned(Key(rest), max));
  if (number == 0) return Error(absl::StrCat("metadata ", Key(rest), ": is 0"));
  value = static_cast<uint32_t>(number);
  return absl::OkStatus();
}

absl::Status Loader::OptionalDimension(absl::string_view rest, uint64_t max,
                                       uint32_t& value) const {
  return file_.Has(Key(rest)) ? Dimension(rest, max, value) : absl::OkStatus();
}

absl::Status Loader::OptionalNumber(absl::string_view rest, float& value) const {
  if (!file_.Has(Key(rest))) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double number, file_.Number(Key(rest)));
  value = static_cast<float>(number);
  return absl::OkStatus();
}

absl::Status Loader::ReadHeads() {
  RETURN_IF_ERROR(Dimension("attention.head_count", kHeadsMax, spec_.heads));
  spec_.kv_heads = spec_.heads;
  RETURN_IF_ERROR(OptionalDimension("attention.head_count_kv", kHeadsMax, spec_.kv_heads));
  if (!file_.Has(Key("attention.key_length")) && spec_.hidden % spec_.heads != 0) {
    return Error(absl::StrCat(spec_.hidden, " hidden elements do not divide into ", spec_.heads,
                              " heads, and ", Key("attention.key_length"), " is missing"));
  }
  spec_.head_dim = spec_.hidden / spec_.heads;
  RETURN_IF_ERROR(OptionalDimension("attention.key_length", kHeadDimMax, spec_.head_dim));
  uint32_t value_length = spec_.head_dim;
  RETURN_IF_ERROR(OptionalDimension("attention.value_length", kHeadDimMax, value_length));
  if (value_length != spec_.head_dim) {
    return Error(absl::StrCat("heads with ", spec_.head_dim, " elements of K and ", value_length,
                              " of V; Baton needs them equal"));
  }
  spec_.rope_dims = spec_.head_dim;
  return OptionalDimension("rope.dimension_count", kHeadDimMax, spec_.rope_dims);
}

absl::Status Loader::ReadSpec() {
  ASSIGN_OR_RETURN(const absl::string_view architecture, file_.String("general.architecture"));
  if (architecture != "llama" && architecture != "qwen2" && architecture != "qwen3") {
    return Error(absl::StrCat("architecture '", absl::CHexEscape(architecture.substr(0, 80)),
                              "'; Baton runs: llama, qwen2, qwen3"));
  }
  spec_.architecture = std::string(architecture);
  RETURN_IF_ERROR(Dimension("block_count", kLayersMax, spec_.layers));
  RETURN_IF_ERROR(Dimension("embedding_length", kHiddenMax, spec_.hidden));
  RETURN_IF_ERROR(Dimension("feed_forward_length", kFfnMax, spec_.ffn));
  RETURN_IF_ERROR(Dimension("context_length", kContextMax, spec_.context));
  RETURN_IF_ERROR(ReadHeads());
  ASSIGN_OR_RETURN(const double epsilon, file_.Number(Key("attention.layer_norm_rms_epsilon")));
  spec_.rms_epsilon = static_cast<float>(epsilon);
  RETURN_IF_ERROR(OptionalNumber("rope.freq_base", spec_.rope_theta));
  // GGUF's converter permutes q and k of this architecture only.
  spec_.rope_interleaved = architecture == "llama";
  if (file_.Has(kRopeInterleavedKey)) {
    ASSIGN_OR_RETURN(spec_.rope_interleaved, file_.Bool(kRopeInterleavedKey));
  }
  RETURN_IF_ERROR(CheckSwitches());
  return CheckSpec();
}

// Metadata that changes the computation in a way that the forward pass does not know.
absl::Status Loader::CheckSwitches() const {
  uint32_t experts = 0;
  if (file_.Has(Key("expert_count"))) {
    ASSIGN_OR_RETURN(experts, file_.Unsigned(Key("expert_count"), UINT32_MAX));
  }
  if (experts != 0) return Error("a mixture of experts; Baton runs dense models");
  const std::string scaling_key = Key("rope.scaling.type");
  if (file_.Has(scaling_key)) {
    ASSIGN_OR_RETURN(const absl::string_view scaling, file_.String(scaling_key));
    if (scaling != "none") {
      return Error(absl::StrCat("metadata ", scaling_key, ": '",
                                absl::CHexEscape(scaling.substr(0, 80)),
                                "'; Baton knows 'none' and the factors of rope_freqs.weight"));
    }
  }
  for (const char* rest : {"rope.scale_linear", "rope.scaling.factor"}) {
    float factor = 1;
    RETURN_IF_ERROR(OptionalNumber(rest, factor));
    if (factor != 1) return Error(absl::StrCat("metadata ", Key(rest), ": only 1 is supported"));
  }
  return absl::OkStatus();
}

absl::Status Loader::CheckSpec() const {
  if (spec_.kv_heads > spec_.heads || spec_.heads % spec_.kv_heads != 0) {
    return Error(
        absl::StrCat(spec_.heads, " heads do not share ", spec_.kv_heads, " KV heads evenly"));
  }
  if (spec_.head_dim % 2 != 0 || spec_.rope_dims % 2 != 0 || spec_.rope_dims > spec_.head_dim) {
    return Error(absl::StrCat("heads of ", spec_.head_dim, " elements with ", spec_.rope_dims,
                              " rotated ones"));
  }
  if (!(spec_.rms_epsilon > 0 && spec_.rms_epsilon < 1)) {
    return Error(absl::StrCat("an RMS epsilon of ", spec_.rms_epsilon));
  }
  if (!(spec_.rope_theta >= 1)) return Error(absl::StrCat("a RoPE base of ", spec_.rope_theta));
  return absl::OkStatus();
}

absl::Status Loader::Take(const std::string& name, uint64_t rows, uint64_t columns,
                          TensorView& view) {
  const auto found = file_.tensors().find(name);
  if (found == file_.tensors().end()) return Error(absl::StrCat("tensor ", name, " is missing"));
  const TensorView& tensor = found->second.view;
  if (tensor.rows != rows || tensor.columns != columns) {
    return Error(absl::StrCat("tensor ", name, " is ", tensor.rows, " x ", tensor.columns,
                              " (rows x columns); the metadata says ", rows, " x ", columns));
  }
  view = tensor;
  left_.erase(name);
  return absl::OkStatus();
}

absl::Status Loader::TakeOptional(const std::string& name, uint64_t rows, uint64_t columns,
                                  TensorView& view) {
  return left_.contains(name) ? Take(name, rows, columns, view) : absl::OkStatus();
}

absl::Status Loader::TakeLayer(uint32_t layer, LayerWeights& weights) {
  const auto name = [layer](absl::string_view rest) {
    return absl::StrCat("blk.", layer, ".", rest);
  };
  const uint64_t hidden = spec_.hidden;
  const uint64_t q_rows = uint64_t{spec_.heads} * spec_.head_dim;
  const uint64_t kv_rows = uint64_t{spec_.kv_heads} * spec_.head_dim;
  RETURN_IF_ERROR(Take(name("attn_norm.weight"), 1, hidden, weights.attention_norm));
  RETURN_IF_ERROR(Take(name("attn_q.weight"), q_rows, hidden, weights.q));
  RETURN_IF_ERROR(Take(name("attn_k.weight"), kv_rows, hidden, weights.k));
  RETURN_IF_ERROR(Take(name("attn_v.weight"), kv_rows, hidden, weights.v));
  RETURN_IF_ERROR(TakeOptional(name("attn_q.bias"), 1, q_rows, weights.q_bias));
  RETURN_IF_ERROR(TakeOptional(name("attn_k.bias"), 1, kv_rows, weights.k_bias));
  RETURN_IF_ERROR(TakeOptional(name("attn_v.bias"), 1, kv_rows, weights.v_bias));
  RETURN_IF_ERROR(TakeOptional(name("attn_q_norm.weight"), 1, spec_.head_dim, weights.q_norm));
  RETURN_IF_ERROR(TakeOptional(name("attn_k_norm.weight"), 1, spec_.head_dim, weights.k_norm));
  RETURN_IF_ERROR(Take(name("attn_output.weight"), hidden, q_rows, weights.attention_output));
  RETURN_IF_ERROR(Take(name("ffn_norm.weight"), 1, hidden, weights.ffn_norm));
  RETURN_IF_ERROR(Take(name("ffn_gate.weight"), spec_.ffn, hidden, weights.gate));
  RETURN_IF_ERROR(Take(name("ffn_up.weight"), spec_.ffn, hidden, weights.up));
  return Take(name("ffn_down.weight"), hidden, spec_.ffn, weights.down);
}

absl::StatusOr<ModelWeights> Loader::Load() {
  RETURN_IF_ERROR(ReadSpec());
  const auto embedding = file_.tensors().find("token_embd.weight");
  if (embedding == file_.tensors().end()) return Error("tensor token_embd.weight is missing");
  const uint64_t vocab = embedding->second.view.rows;
  if (vocab > kVocabMax) return Error(absl::StrCat("a vocabulary of ", vocab));
  spec_.vocab = static_cast<uint32_t>(vocab);
  uint32_t claimed = spec_.vocab;
  RETURN_IF_ERROR(OptionalDimension("vocab_size", kVocabMax, claimed));
  if (claimed != spec_.vocab) {
    return Error(absl::StrCat("metadata ", Key("vocab_size"), ": ", claimed,
                              ", but token_embd.weight has ", spec_.vocab, " rows"));
  }

  ModelWeights weights;
  RETURN_IF_ERROR(Take("token_embd.weight", vocab, spec_.hidden, weights.embedding));
  weights.output = weights.embedding;
  RETURN_IF_ERROR(TakeOptional("output.weight", vocab, spec_.hidden, weights.output));
  RETURN_IF_ERROR(Take("output_norm.weight", 1, spec_.hidden, weights.output_norm));
  RETURN_IF_ERROR(TakeOptional("rope_freqs.weight", 1, spec_.rope_dims / 2, weights.rope_factors));
  weights.layers.resize(spec_.layers);
  for (uint32_t layer = 0; layer < spec_.layers; ++layer) {
    RETURN_IF_ERROR(TakeLayer(layer, weights.layers[layer]));
  }
  if (!left_.empty()) {
    return Error(absl::StrCat("tensor ", absl::CHexEscape(*left_.begin()), " is not part of a ",
                              spec_.architecture, " model of ", spec_.layers, " layers"));
  }
  weights.spec = spec_;
  return weights;
}

// Two independent 64-bit lanes over 8-byte words.  Not cryptographic.
class Hash128 {
 public:
  void Add(absl::Span<const uint8_t> bytes) {
    AddWord(bytes.size());
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof(word), bytes.size() - at));
      AddWord(word);
    }
  }
  void AddWord(uint64_t word) {
    a_ = SplitMix64(a_ ^ word);
    b_ = (b_ + word) * 0x9fb21c651e98df25u;
    b_ ^= b_ >> 29;
  }
  std::string Hex() const { return absl::StrFormat("%016x%016x", SplitMix64(a_), SplitMix64(b_)); }

 private:
  uint64_t a_ = 0x6261746f6e206d6f;
  uint64_t b_ = 0x64656c2068617368;
};

}  // namespace

absl::StatusOr<Gguf> OpenModel(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? OpenFolder(path) : Gguf::Open(path);
}

absl::StatusOr<ModelWeights> LoadModel(const Gguf& file) { return Loader(file).Load(); }

std::vector<TokenId> VocabularyHoles(const Gguf& file, uint32_t vocab) {
  std::vector<TokenId> holes;
  uint64_t tokens = vocab;
  if (const GgufValue* list = file.Find("tokenizer.ggml.tokens"); list != nullptr) {
    tokens = std::min<uint64_t>(tokens, list->count);
  }
  const auto types = file.Integers("tokenizer.ggml.token_type");
  for (uint64_t id = 0; types.ok() && id < std::min<uint64_t>(tokens, types->size()); ++id) {
    if ((*types)[id] == kTokenTypeUnused) holes.push_back(static_cast<TokenId>(id));
  }
  for (uint64_t id = tokens; id < vocab; ++id) holes.push_back(static_cast<TokenId>(id));
  return holes;
}

std::string ModelFingerprint(const Gguf& file) {
  constexpr uint64_t kPages = 16;
  constexpr uint64_t kPageBytes = 4096;
  Hash128 hash;
  hash.AddWord(file.bytes().size());
  hash.Add(file.bytes().subspan(0, file.data_offset()));
  for (const auto& [name, tensor] : file.tensors()) {
    hash.Add({reinterpret_cast<const uint8_t*>(name.data()), name.size()});
    hash.AddWord(static_cast<uint64_t>(tensor.view.type));
    for (const uint64_t size : tensor.dimensions) hash.AddWord(size);
    const auto bytes = absl::MakeConstSpan(tensor.view.data, tensor.view.size_bytes);
    if (bytes.size() <= kPages * kPageBytes) {
      hash.Add(bytes);
      continue;
    }
    const uint64_t stride = (bytes.size() - kPageBytes) / (kPages - 1);
    for (uint64_t page = 0; page < kPages; ++page) {
      hash.Add(bytes.subspan(page * stride, kPageBytes));
    }
  }
  return hash.Hex();
}

}  // namespace baton::engine
