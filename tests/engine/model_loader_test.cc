// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// GGUF to ModelWeights: what is taken, and what is refused by name.
#include "engine/model_loader.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/engine/gguf_writer.h"

namespace baton::engine {
namespace {

using test::GgufWriter;
using test::TinyModel;

void CheckRefused(const GgufWriter& writer, const std::string& why) {
  const auto bytes = writer.Write();
  const auto file = Gguf::Decode(bytes, "file");
  REQUIRE(file.status().ToString() == "OK");
  const absl::Status status = LoadModel(*file).status();
  INFO(status.ToString());
  CHECK(!status.ok());
  CHECK(absl::StartsWith(status.message(), "file: "));
  CHECK(absl::StrContains(status.message(), why));
}

std::string FingerprintOf(const GgufWriter& writer) {
  const auto bytes = writer.Write();
  const auto file = Gguf::Decode(bytes, "file");
  REQUIRE(file.ok());
  return ModelFingerprint(*file);
}

}  // namespace

TEST_CASE("a llama file becomes its spec and weights") {
  const auto bytes = TinyModel({}, 1).Write();
  const auto file = Gguf::Decode(bytes, "file");
  REQUIRE(file.ok());
  const auto model = LoadModel(*file);
  REQUIRE(model.status().ToString() == "OK");
  CHECK(model->spec.layers == 2);
  CHECK(model->spec.head_dim == 16);
  CHECK(model->spec.kv_heads == 2);
  CHECK(model->spec.rope_dims == 16);
  CHECK(model->spec.rope_interleaved);
  CHECK(model->spec.vocab == 128);
  CHECK(model->layers.size() == 2);
  CHECK(model->layers[1].down.rows == 64);
  CHECK(model->layers[1].down.columns == 96);
  CHECK(!model->layers[1].q_bias.present());
  CHECK(!model->rope_factors.present());
  // Without output.weight the head is the embedding itself.
  CHECK(model->output.data == model->embedding.data);
}

TEST_CASE("a head of its own is taken if the file has one") {
  GgufWriter writer = TinyModel({}, 1);
  writer.AddTensor("output.weight", {64, 128}, std::vector<float>(64 * 128));
  const auto bytes = writer.Write();
  const auto file = Gguf::Decode(bytes, "file");
  REQUIRE(file.ok());
  const auto model = LoadModel(*file);
  REQUIRE(model.ok());
  CHECK(model->output.data != model->embedding.data);
}

TEST_CASE("Qwen's pairs lie half a head apart, and its biases and norms of heads are taken") {
  for (const char* architecture : {"qwen2", "qwen3"}) {
    GgufWriter writer = TinyModel({}, 1, architecture);
    const bool norms = std::string(architecture) == "qwen3";
    for (int l = 0; l < 2; ++l) {
      const std::string blk = "blk." + std::to_string(l) + ".attn_";
      if (norms) {
        writer.AddTensor(blk + "q_norm.weight", {16}, std::vector<float>(16));
        writer.AddTensor(blk + "k_norm.weight", {16}, std::vector<float>(16));
      } else {
        writer.AddTensor(blk + "q.bias", {64}, std::vector<float>(64));
        writer.AddTensor(blk + "k.bias", {32}, std::vector<float>(32));
        writer.AddTensor(blk + "v.bias", {32}, std::vector<float>(32));
      }
    }
    const auto bytes = writer.Write();
    const auto file = Gguf::Decode(bytes, "file");
    REQUIRE(file.ok());
    const auto model = LoadModel(*file);
    REQUIRE(model.status().ToString() == "OK");
    CHECK(!model->spec.rope_interleaved);
    CHECK(model->layers[1].q_norm.present() == norms);
    CHECK(model->layers[1].k_norm.present() == norms);
    CHECK(model->layers[1].v_bias.present() != norms);
  }
}

TEST_CASE("an unknown architecture is named") {
  GgufWriter writer;
  writer.AddString("general.architecture", "mamba");
  CheckRefused(writer, "architecture 'mamba'; Baton runs: llama");
}

TEST_CASE("a missing tensor or key and a wrong shape are named") {
  GgufWriter missing = TinyModel({}, 1);
  missing.tensors.erase(missing.tensors.begin() + 4);
  CheckRefused(missing, "tensor blk.0.attn_k.weight is missing");

  GgufWriter shape = TinyModel({}, 1);
  shape.tensors[4].dimensions = {32, 64};
  CheckRefused(shape,
               "tensor blk.0.attn_k.weight is 64 x 32 (rows x columns); the metadata says 32 x 64");

  GgufWriter key;
  key.AddString("general.architecture", "llama");
  CheckRefused(key, "metadata llama.block_count is missing");
}

TEST_CASE("what the forward pass does not know is refused, not ignored") {
  GgufWriter tensor = TinyModel({}, 1);
  tensor.AddTensor("blk.0.attn_output.bias", {64}, std::vector<float>(64));
  CheckRefused(tensor, "tensor blk.0.attn_output.bias is not part of a llama model");

  GgufWriter experts = TinyModel({}, 1);
  experts.AddUint("llama.expert_count", 8);
  CheckRefused(experts, "mixture of experts");

  GgufWriter scaling = TinyModel({}, 1);
  scaling.AddString("llama.rope.scaling.type", "yarn");
  CheckRefused(scaling, "llama.rope.scaling.type: 'yarn'");

  GgufWriter value = TinyModel({}, 1);
  value.AddUint("llama.attention.value_length", 32);
  CheckRefused(value, "16 elements of K and 32 of V");

  GgufWriter vocab = TinyModel({}, 1);
  vocab.AddUint("llama.vocab_size", 100);
  CheckRefused(vocab, "llama.vocab_size: 100, but token_embd.weight has 128 rows");
}

TEST_CASE("dimensions that do not fit together are refused") {
  test::TinyShape shape;
  shape.heads = 3;
  shape.kv_heads = 3;
  CheckRefused(TinyModel(shape, 1), "64 hidden elements do not divide into 3 heads");
  shape.heads = 4;
  CheckRefused(TinyModel(shape, 1), "4 heads do not share 3 KV heads evenly");
}

TEST_CASE("vocabulary holes are unused tokens and padding rows") {
  GgufWriter writer = TinyModel({}, 1);
  writer.AddStrings("tokenizer.ggml.tokens", {"a", "b", "c", "d"});
  writer.AddInts("tokenizer.ggml.token_type", {1, 5, 3, 1});
  const auto bytes = writer.Write();
  const auto file = Gguf::Decode(bytes, "file");
  REQUIRE(file.ok());
  CHECK(VocabularyHoles(*file, 6) == std::vector<TokenId>{1, 4, 5});
}

TEST_CASE("the fingerprint follows weights, metadata and types, and nothing else") {
  const std::string base = FingerprintOf(TinyModel({}, 1));
  CHECK(base.size() == 32);
  CHECK(base == FingerprintOf(TinyModel({}, 1)));
  CHECK(base != FingerprintOf(TinyModel({}, 2)));
  GgufWriter metadata = TinyModel({}, 1);
  metadata.AddString("tokenizer.chat_template", "x");
  CHECK(base != FingerprintOf(metadata));
  GgufWriter weight = TinyModel({}, 1);
  weight.tensors.back().data[0] ^= 1;
  CHECK(base != FingerprintOf(weight));
}

}  // namespace baton::engine
