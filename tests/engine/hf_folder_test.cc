// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A Hugging Face folder is the same model as the GGUF file made of it, bit for bit; what is
// wrong or unknown in one is refused by name.
#include "engine/hf_folder.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/match.h"
#include "engine/cpu/float16.h"
#include "engine/forward.h"
#include "engine/hf_json.h"
#include "engine/hf_safetensors.h"
#include "engine/model_loader.h"
#include "engine/text/text_model.h"
#include "tests/engine/gguf_writer.h"

namespace baton::engine {
namespace {

using nlohmann::json;
using test::GgufWriter;

constexpr uint32_t kHeads = 4, kKvHeads = 2, kHeadDim = 16;

// A folder that goes away with its test.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() / ("baton-hf-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void Remove(const std::string& name) const { std::filesystem::remove(path_ / name); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

struct Tensor {
  std::vector<uint64_t> shape;  // rows first
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

std::string Encode(const Tensor& tensor, const std::string& type) {
  std::string bytes;
  for (const float value : tensor.values) {
    if (type == "F32") {
      bytes.append(reinterpret_cast<const char*>(&value), 4);
    } else {
      const uint16_t half = type == "F16" ? cpu::FloatToHalf(value) : cpu::FloatToBrain(value);
      bytes.append(reinterpret_cast<const char*>(&half), 2);
    }
  }
  return bytes;
}

std::string Framed(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + header + data;
}

std::string Safetensors(const Tensors& tensors, const std::string& type) {
  json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::string bytes = Encode(tensor, type);
    header[name] = {{"dtype", type},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  return Framed(header.dump(), data);
}

// As a file would give it: whole numbers are unsigned.
json Parsed(const json& value) { return json::parse(value.dump()); }

json Config() {
  return {{"model_type", "llama"},          {"hidden_size", kHeads * kHeadDim},
          {"intermediate_size", 96},        {"num_hidden_layers", 2},
          {"num_attention_heads", kHeads},  {"num_key_value_heads", kKvHeads},
          {"max_position_embeddings", 256}, {"vocab_size", 128},
          {"rms_norm_eps", 1e-5},           {"rope_theta", 10000.0},
          {"rope_scaling", nullptr},        {"hidden_act", "silu"},
          {"eos_token_id", {2, 3}},         {"tie_word_embeddings", true}};
}

json TokenizerJson() {
  json vocab = json::object();
  vocab["<s>"] = 1;
  for (int i = 0; i < 26; ++i) vocab[std::string(1, static_cast<char>('a' + i))] = 4 + i;
  vocab["ab"] = 30;
  vocab["abc"] = 31;
  const auto added = [](int id, const char* text, bool special) {
    return json{{"id", id},        {"content", text},     {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", special}};
  };
  return {{"added_tokens",
           {added(1, "<s>", true), added(2, "</s>", true), added(3, "<|end|>", true),
            added(40, "<tool>", false)}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Digits"}, {"individual_digits", true}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}}},
          {"post_processor", nullptr},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"byte_fallback", false},
            {"vocab", vocab},
            {"merges", {"a b", json::array({"ab", "c"})}}}}};
}

// The same random weights under both names; GGUF's rows of q and k are permuted.
struct Twins {
  Tensors tensors;
  GgufWriter gguf;
};

// Row i of a head's first half and row i of its second half come side by side.
Tensor Permuted(const Tensor& tensor) {
  Tensor result = tensor;
  const uint64_t columns = tensor.shape[1];
  for (uint64_t row = 0; row < tensor.shape[0]; ++row) {
    const uint64_t head = row / kHeadDim, i = row % kHeadDim;
    const uint64_t source = head * kHeadDim + i / 2 + (i % 2) * (kHeadDim / 2);
    std::copy_n(tensor.values.begin() + source * columns, columns,
                result.values.begin() + row * columns);
  }
  return result;
}

Twins MakeTwins() {
  Twins twins;
  GgufWriter& gguf = twins.gguf;
  gguf.AddString("general.architecture", "llama");
  gguf.AddUint("llama.block_count", 2);
  gguf.AddUint("llama.embedding_length", kHeads * kHeadDim);
  gguf.AddUint("llama.feed_forward_length", 96);
  gguf.AddUint("llama.context_length", 256);
  gguf.AddUint("llama.attention.head_count", kHeads);
  gguf.AddUint("llama.attention.head_count_kv", kKvHeads);
  gguf.AddFloat("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  gguf.AddFloat("llama.rope.freq_base", 10000.0f);
  Random random(3);
  const auto add = [&](const std::string& name, std::vector<uint64_t> shape, bool rotated = false) {
    Tensor tensor{shape, {}};
    uint64_t count = 1;
    for (const uint64_t size : shape) count *= size;
    for (uint64_t i = 0; i < count; ++i) {
      const double mean = shape.size() == 1 ? 1 : 0;
      tensor.values.push_back(static_cast<float>(mean + 0.2 * (2 * random.Unit() - 1)));
    }
    twins.tensors[name] = tensor;
    std::vector<uint64_t> dimensions(shape.rbegin(), shape.rend());
    gguf.AddTensor(GgufTensorName(name), dimensions,
                   rotated ? Permuted(tensor).values : tensor.values);
  };
  const uint64_t hidden = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
  add("model.embed_tokens.weight", {128, hidden});
  add("model.norm.weight", {hidden});
  for (int l = 0; l < 2; ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    add(layer + "input_layernorm.weight", {hidden});
    add(layer + "self_attn.q_proj.weight", {hidden, hidden}, true);
    add(layer + "self_attn.k_proj.weight", {kv, hidden}, true);
    add(layer + "self_attn.v_proj.weight", {kv, hidden});
    add(layer + "self_attn.o_proj.weight", {hidden, hidden});
    add(layer + "post_attention_layernorm.weight", {hidden});
    add(layer + "mlp.gate_proj.weight", {96, hidden});
    add(layer + "mlp.up_proj.weight", {96, hidden});
    add(layer + "mlp.down_proj.weight", {hidden, 96});
  }
  return twins;
}

void WriteTexts(const Folder& folder, const json& config = Config(),
                const json& tokenizer = TokenizerJson()) {
  folder.Write("config.json", config.dump());
  folder.Write("tokenizer.json", tokenizer.dump());
}

std::vector<float> Logits(const Gguf& file) {
  const auto weights = LoadModel(file);
  REQUIRE(weights.status().ToString() == "OK");
  const auto forward = Forward::Create(*weights, {});
  REQUIRE(forward.status().ToString() == "OK");
  const KvLayout layout{2, kKvHeads, kHeadDim, 2, KvType::kBf16};
  std::vector<uint8_t> memory(layout.pool_bytes());
  const std::vector<TokenId> tokens = {5, 9, 77, 3, 127, 0, 64, 5, 5, 20, 21, 22, 90, 3, 4, 11, 17};
  const std::vector<BlockIndex> table = {1, 0};
  const ForwardSlice slice{tokens, 0, table, ForwardSlice::Logits::kAll};
  std::vector<float> logits;
  (*forward)->Run({&slice, 1}, {memory.data(), layout}, {}, logits);
  return logits;
}

// Why the folder is refused; the message names the folder.
std::string Why(const Folder& folder) {
  auto file = OpenModel(folder.path());
  absl::Status status = file.status();
  if (status.ok()) status = LoadModel(*file).status();
  INFO(status.ToString());
  CHECK(!status.ok());
  CHECK(absl::StrContains(status.message(), folder.path()));
  return std::string(status.message());
}

TEST_CASE("a folder gives the bits of the GGUF file that is made of it") {
  const Twins twins = MakeTwins();
  const auto bytes = twins.gguf.Write();
  const auto gguf = Gguf::Decode(bytes, "gguf");
  REQUIRE(gguf.ok());
  const auto expected = Logits(*gguf);
  Folder folder;
  WriteTexts(folder);
  SECTION("in one file") { folder.Write("model.safetensors", Safetensors(twins.tensors, "F32")); }
  SECTION("in one file of bf16, which F32 becomes anyway; the norms differ") {
    folder.Write("model.safetensors", Safetensors(twins.tensors, "BF16"));
    const auto file = OpenModel(folder.path());
    REQUIRE(file.status().ToString() == "OK");
    const auto logits = Logits(*file);
    for (size_t i = 0; i < logits.size(); ++i) {
      REQUIRE(logits[i] == Approx(expected[i]).margin(0.05));
    }
    return;
  }
  SECTION("in shards") {
    Tensors shards[2];
    json map = json::object();
    for (const auto& [name, tensor] : twins.tensors) {
      const size_t shard = map.size() % 2;
      shards[shard][name] = tensor;
      map[name] = "model-" + std::to_string(shard) + ".safetensors";
    }
    for (size_t i = 0; i < 2; ++i) {
      folder.Write("model-" + std::to_string(i) + ".safetensors", Safetensors(shards[i], "F32"));
    }
    folder.Write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
  }
  const auto file = OpenModel(folder.path());
  REQUIRE(file.status().ToString() == "OK");
  CHECK(Logits(*file) == expected);
}

TEST_CASE("a folder's fingerprint changes with its weights, its types and its tokenizer") {
  Twins twins = MakeTwins();
  Folder folder;
  const auto fingerprint = [&](const std::string& type, const json& tokenizer) {
    WriteTexts(folder, Config(), tokenizer);
    folder.Write("model.safetensors", Safetensors(twins.tensors, type));
    const auto file = OpenModel(folder.path());
    REQUIRE(file.status().ToString() == "OK");
    return ModelFingerprint(*file);
  };
  const std::string first = fingerprint("F32", TokenizerJson());
  CHECK(fingerprint("F32", TokenizerJson()) == first);
  CHECK(fingerprint("F16", TokenizerJson()) != first);
  json other = TokenizerJson();
  other["model"]["merges"].erase(1);
  CHECK(fingerprint("F32", other) != first);
  twins.tensors["model.norm.weight"].values[0] += 1;
  CHECK(fingerprint("F32", TokenizerJson()) != first);
}

TEST_CASE("a folder's tokenizer, special tokens and template are read") {
  Folder folder;
  WriteTexts(folder);
  folder.Write("model.safetensors", Safetensors(MakeTwins().tensors, "F16"));
  folder.Write("generation_config.json", R"({"eos_token_id": [3, 2, 40]})");
  folder.Write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "add_bos_token": true,
                   "chat_template": "{{ messages[0].content }}{{ eos_token }}"})");
  const auto file = OpenModel(folder.path());
  REQUIRE(file.status().ToString() == "OK");
  const auto text = text::TextModel::Load(*file);
  REQUIRE(text.status().ToString() == "OK");
  CHECK(text->tokenizer().end_ids() == std::vector<TokenId>{2, 3, 40});
  CHECK(text->tokenizer().IsControl(3));
  CHECK(!text->tokenizer().IsControl(40));
  CHECK(text->chat_status().ok());
  const auto ids = text->EncodePrompt("abcab<tool></s>");
  REQUIRE(ids.ok());
  // <s>, abc, ab, <tool>; the typed marker's letter only: "<", "/" and ">" are no tokens here.
  CHECK(*ids == std::vector<TokenId>{1, 31, 30, 40, 4 + 's' - 'a'});
  CHECK(VocabularyHoles(*file, 128).size() == 128 - 41 + 41 - 32);  // gaps, and behind the last
}

TEST_CASE("Llama 3's pre-tokenizer is known by its pattern, and its post-processor adds bos") {
  TokenizerTexts texts{.tokenizer = Parsed(TokenizerJson()),
                       .tokenizer_config = json::object(),
                       .config = json::object(),
                       .generation_config = json::object()};
  texts.tokenizer["model"]["ignore_merges"] = true;
  texts.tokenizer["pre_tokenizer"]["pretokenizers"] = {
      {{"type", "Split"},
       {"pattern",
        {{"Regex", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                   R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}},
       {"behavior", "Isolated"},
       {"invert", false}},
      {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}};
  texts.tokenizer["post_processor"] = {{"type", "Sequence"},
                                       {"processors",
                                        {{{"type", "ByteLevel"}},
                                         {{"type", "TemplateProcessing"},
                                          {"single",
                                           {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                                            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}}}}}};
  MetadataWriter out;
  REQUIRE(ReadTokenizer(texts, out).ToString() == "OK");
  ModelParts parts;
  parts.header = std::move(out).Take();
  const auto file = Gguf::Assemble(std::move(parts), "json");
  REQUIRE(file.ok());
  const auto data = text::ReadTokenizerData(*file);
  REQUIRE(data.ok());
  CHECK(data->pre_tokenizer == "llama-bpe");
  CHECK(data->add_bos);
  CHECK(data->bos == 1);
}

TEST_CASE("llama3 RoPE scaling becomes its divisors") {
  json config = Config();
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 32.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  MetadataWriter out;
  std::vector<float> factors;
  REQUIRE(ReadConfig(Parsed(config), out, factors).ToString() == "OK");
  REQUIRE(factors.size() == kHeadDim / 2);
  for (uint32_t i = 0; i < factors.size(); ++i) {
    // As the model's makers wrote it, by wavelengths.
    const double frequency = std::pow(10000.0, -2.0 * i / kHeadDim);
    const double wavelength = 2 * M_PI / frequency;
    double scaled = frequency / 32;
    if (wavelength < 64 / 4.0) {
      scaled = frequency;
    } else if (wavelength <= 64 / 1.0) {
      const double smooth = (64 / wavelength - 1) / (4 - 1);
      scaled = (1 - smooth) * frequency / 32 + smooth * frequency;
    }
    CHECK(factors[i] == Approx(frequency / scaled).epsilon(1e-6));
  }
  CHECK(factors.front() == 1);
  CHECK(factors.back() == 32);
}

TEST_CASE("what a folder has that Baton does not run is refused by name") {
  Folder folder;
  const Tensors tensors = MakeTwins().tensors;
  folder.Write("model.safetensors", Safetensors(tensors, "F32"));
  const auto with = [&](const char* key, const json& value) {
    json config = Config();
    config[key] = value;
    WriteTexts(folder, config);
    return Why(folder);
  };
  const auto tokenizer = [&](auto change) {
    json changed = TokenizerJson();
    change(changed);
    WriteTexts(folder, Config(), changed);
    return Why(folder);
  };
  const auto contains = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(absl::StrContains(text, part));
  };
  contains(with("model_type", "mamba"), "model_type 'mamba'; Baton runs: llama");
  contains(with("hidden_act", "gelu"), "hidden_act 'gelu'");
  contains(with("sliding_window", 128), "a sliding window of 128");
  contains(with("quantization_config", {{"bits", 4}}), "quantization_config");
  contains(with("rope_scaling", {{"type", "yarn"}, {"factor", 2.0}}), "RoPE scaling 'yarn'");
  contains(with("hidden_size", "64"), "\"hidden_size\" is not a whole number");
  contains(with("hidden_size", nullptr), "\"hidden_size\" is missing");
  contains(with("num_hidden_layers", 3), "tensor blk.2.attn_norm.weight is missing");
  contains(with("vocab_size", 130), "130, but token_embd.weight has 128 rows");
  contains(tokenizer([](json& t) { t["normalizer"] = {{"type", "NFC"}}; }), "normalizer");
  contains(tokenizer([](json& t) { t["model"]["type"] = "Unigram"; }), "'Unigram'");
  contains(tokenizer([](json& t) { t["model"]["byte_fallback"] = true; }), "byte_fallback");
  contains(tokenizer([](json& t) {
             t["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "x"}}}};
           }),
           "pre_tokenizer [Split (unknown pattern)]; Baton knows");
  contains(tokenizer([](json& t) { t["model"]["ignore_merges"] = true; }),
           "\"ignore_merges\" with the pre_tokenizer 'smollm'");
  contains(tokenizer([](json& t) { t["added_tokens"][0]["lstrip"] = true; }), "lstrip");
  contains(tokenizer([](json& t) { t["model"]["vocab"]["zz"] = 5; }), "token id 5 is there twice");

  WriteTexts(folder);
  Tensors more = tensors;
  more["model.layers.0.self_attn.o_proj.bias"] = {{64}, std::vector<float>(64)};
  folder.Write("model.safetensors", Safetensors(more, "F32"));
  contains(Why(folder), "tensor blk.0.attn_output.bias is not part of a llama model");
  folder.Remove("model.safetensors");
  contains(Why(folder), "model.safetensors: No such file");
  const auto index = [&](const json& map) {
    folder.Write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
    return Why(folder);
  };
  contains(index({{"t", "../model.safetensors"}}), "in no plain .safetensors file");
  folder.Write("a.safetensors", Safetensors(tensors, "F32"));
  contains(index({{"missing", "a.safetensors"}}), "tensor missing is not in its file");
  folder.Write("b.safetensors", Safetensors(tensors, "F32"));
  contains(index({{"x", "a.safetensors"}, {"y", "b.safetensors"}}), "is in another file too");
}

TEST_CASE("a malformed safetensors file is refused by what is wrong") {
  const auto why = [](const std::string& bytes) {
    TensorTable tensors;
    const absl::Status status = DecodeSafetensors(
        {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "file", tensors);
    CHECK(absl::StartsWith(status.message(), "file: "));
    return std::string(status.message());
  };
  const auto one = [&](const char* entry) {
    return why(Framed(std::string("{\"t\":") + entry + "}", std::string(16, '\0')));
  };
  CHECK_THAT(why("short"), Catch::Contains("shorter than its length"));
  CHECK_THAT(why(Framed("{", "") + "x"), Catch::Contains("not a JSON object"));
  CHECK_THAT(why(std::string(8, '\xff') + "{}"),
             Catch::Contains("a header of 18446744073709551615"));
  CHECK_THAT(why(Framed(R"({"t":1,"t":2})", "")), Catch::Contains("\"t\" is there twice"));
  CHECK_THAT(why(Framed(std::string(200, '['), "")), Catch::Contains("nested too deep"));
  CHECK_THAT(one(R"(1)"), Catch::Contains("tensor t: not an object"));
  CHECK_THAT(one(R"({"dtype":"I64","shape":[2],"data_offsets":[0,16]})"),
             Catch::Contains("cannot run type I64"));
  CHECK_THAT(one(R"({"dtype":"F32","shape":[],"data_offsets":[0,4]})"),
             Catch::Contains("0 dimensions"));
  CHECK_THAT(one(R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})"),
             Catch::Contains("a dimension of 0"));
  CHECK_THAT(one(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"),
             Catch::Contains("\"shape\" is malformed"));
  CHECK_THAT(one(R"({"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,16]})"),
             Catch::Contains("a dimension of"));
  CHECK_THAT(one(R"({"dtype":"F32","shape":[5],"data_offsets":[0,20]})"),
             Catch::Contains("bytes 0 to 20 are not in the data (16 bytes)"));
  CHECK_THAT(one(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"),
             Catch::Contains("are not in the data"));
  CHECK_THAT(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"),
             Catch::Contains("16 bytes; its shape needs 12"));
  CHECK_THAT(why(Framed(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                        std::string(16, '\0'))),
             Catch::Contains("tensor b overlaps another"));
}

TEST_CASE("the default model's tokenizer as JSON is the same tokenizer") {
  const auto gguf =
      Gguf::Open(std::string(BATON_SOURCE_DIR) + "/models/smollm2-135m-instruct-q4_1.gguf");
  if (!gguf.ok()) {
    WARN("SKIPPED: " << gguf.status().message() << " (run deploy/get_model.sh)");
    return;
  }
  const auto expected = text::ReadTokenizerData(*gguf);
  REQUIRE(expected.ok());
  TokenizerTexts texts;
  texts.config = texts.generation_config = json::object();
  texts.tokenizer_config = {{"eos_token", "<|im_end|>"}, {"bos_token", "<|im_start|>"}};
  texts.tokenizer = TokenizerJson();
  json vocab = json::object(), added = json::array();
  for (size_t i = 0; i < expected->tokens.size(); ++i) {
    vocab[expected->tokens[i]] = i;
    if (expected->types[i] != text::TokenType::kControl) continue;
    added.push_back({{"id", i}, {"content", expected->tokens[i]}, {"special", true}});
  }
  texts.tokenizer["added_tokens"] = added;
  texts.tokenizer["model"]["vocab"] = vocab;
  texts.tokenizer["model"]["merges"] = expected->merges;
  texts.tokenizer = Parsed(texts.tokenizer);
  MetadataWriter out;
  REQUIRE(ReadTokenizer(texts, out).ToString() == "OK");
  ModelParts parts;
  parts.header = std::move(out).Take();
  const auto file = Gguf::Assemble(std::move(parts), "json");
  REQUIRE(file.ok());
  const auto data = text::ReadTokenizerData(*file);
  REQUIRE(data.ok());
  CHECK(data->pre_tokenizer == expected->pre_tokenizer);
  CHECK(data->tokens == expected->tokens);
  CHECK(data->types == expected->types);
  CHECK(data->merges == expected->merges);
  CHECK(data->bos == expected->bos);
}

}  // namespace
}  // namespace baton::engine
