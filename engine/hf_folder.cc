// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/hf_folder.h"

#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/hf_json.h"
#include "engine/hf_safetensors.h"
#include "engine/mapped_file.h"

namespace baton::engine {
namespace {

using nlohmann::json;

constexpr uint64_t kTextBytesMax = 64 << 20;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > kTextBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", file.bytes().size(), " bytes; ", kTextBytesMax, " are allowed"));
  }
  return std::string(file.bytes().begin(), file.bytes().end());
}

absl::StatusOr<json> ReadObject(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ParseJsonObject(text, path);
}

absl::StatusOr<json> ReadOptionalObject(const std::string& path) {
  return Exists(path) ? ReadObject(path) : json::object();
}

// A file beside the index, never one elsewhere.
bool IsPlainName(absl::string_view name) {
  return absl::EndsWith(name, ".safetensors") && name.find('/') == absl::string_view::npos &&
         name.find('\0') == absl::string_view::npos;
}

absl::Status AddFile(const std::string& path, TensorTable& tensors,
                     std::vector<MappedFile>& files) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  RETURN_IF_ERROR(DecodeSafetensors(file.bytes(), path, tensors));
  files.push_back(std::move(file));
  return absl::OkStatus();
}

absl::Status AddShards(const std::string& folder, const std::string& index_path,
                       TensorTable& tensors, std::vector<MappedFile>& files) {
  ASSIGN_OR_RETURN(const json index, ReadObject(index_path));
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(index_path, ": ", what));
  };
  const auto map = JsonObject(index, "weight_map");
  if (!map.ok() || *map == nullptr) return error("\"weight_map\" is missing");
  std::set<std::string> names;
  for (const auto& [tensor, file] : (*map)->items()) {
    if (!file.is_string() || !IsPlainName(file.get<std::string>())) {
      return error(absl::StrCat("tensor ", absl::CHexEscape(tensor.substr(0, 80)),
                                " is in no plain .safetensors file"));
    }
    names.insert(file.get<std::string>());
  }
  for (const std::string& name : names) {
    RETURN_IF_ERROR(AddFile(absl::StrCat(folder, "/", name), tensors, files));
  }
  for (const auto& [tensor, file] : (*map)->items()) {
    if (!tensors.contains(tensor)) {
      return error(
          absl::StrCat("tensor ", absl::CHexEscape(tensor.substr(0, 80)), " is not in its file"));
    }
  }
  return absl::OkStatus();
}

// Tensors under GGUF's names.
absl::Status ReadTensors(const std::string& folder, ModelParts& parts) {
  const std::string one = absl::StrCat(folder, "/model.safetensors");
  const std::string index = absl::StrCat(folder, "/model.safetensors.index.json");
  TensorTable tensors;
  if (!Exists(one) && Exists(index)) {
    RETURN_IF_ERROR(AddShards(folder, index, tensors, parts.files));
  } else {
    RETURN_IF_ERROR(AddFile(one, tensors, parts.files));
  }
  for (auto& [name, tensor] : tensors) {
    if (absl::EndsWith(name, ".rotary_emb.inv_freq")) continue;  // computed
    if (!parts.tensors.emplace(GgufTensorName(name), std::move(tensor)).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          folder, ": tensor ", absl::CHexEscape(name.substr(0, 80)), " is there by two names"));
    }
  }
  return absl::OkStatus();
}

void AddRopeFactors(const std::vector<float>& factors, ModelParts& parts) {
  if (factors.empty()) return;
  std::vector<uint8_t>& bytes = parts.memory.emplace_back(factors.size() * sizeof(float));
  std::memcpy(bytes.data(), factors.data(), bytes.size());
  GgufTensor& tensor = parts.tensors["rope_freqs.weight"];
  tensor.dimensions = {factors.size()};
  tensor.view = {TensorType::kF32, 1, factors.size(), bytes.data(), bytes.size()};
}

}  // namespace

std::string GgufTensorName(const std::string& name) {
  static constexpr std::pair<absl::string_view, absl::string_view> kOutside[] = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"}};
  static constexpr std::pair<absl::string_view, absl::string_view> kInLayer[] = {
      {"input_layernorm.", "attn_norm."},    {"self_attn.q_proj.", "attn_q."},
      {"self_attn.k_proj.", "attn_k."},      {"self_attn.v_proj.", "attn_v."},
      {"self_attn.o_proj.", "attn_output."}, {"self_attn.q_norm.", "attn_q_norm."},
      {"self_attn.k_norm.", "attn_k_norm."}, {"post_attention_layernorm.", "ffn_norm."},
      {"mlp.gate_proj.", "ffn_gate."},       {"mlp.up_proj.", "ffn_up."},
      {"mlp.down_proj.", "ffn_down."}};
  for (const auto& [from, to] : kOutside) {
    if (name == from) return std::string(to);
  }
  constexpr absl::string_view kLayers = "model.layers.";
  if (!absl::StartsWith(name, kLayers)) return name;
  const size_t dot = name.find('.', kLayers.size());
  if (dot == std::string::npos) return name;
  const absl::string_view number =
      absl::string_view(name).substr(kLayers.size(), dot - kLayers.size());
  const absl::string_view rest = absl::string_view(name).substr(dot + 1);
  for (const auto& [from, to] : kInLayer) {
    if (!absl::StartsWith(rest, from)) continue;
    return absl::StrCat("blk.", number, ".", to, rest.substr(from.size()));
  }
  return name;
}

absl::StatusOr<Gguf> OpenFolder(const std::string& path) {
  const auto file = [&](const char* name) { return absl::StrCat(path, "/", name); };
  TokenizerTexts texts;
  ASSIGN_OR_RETURN(texts.config, ReadObject(file("config.json")));
  MetadataWriter metadata;
  std::vector<float> rope_factors;
  if (const absl::Status status = ReadConfig(texts.config, metadata, rope_factors); !status.ok()) {
    return Annotate(status, file("config.json"));
  }
  ASSIGN_OR_RETURN(texts.tokenizer, ReadObject(file("tokenizer.json")));
  ASSIGN_OR_RETURN(texts.tokenizer_config, ReadOptionalObject(file("tokenizer_config.json")));
  ASSIGN_OR_RETURN(texts.generation_config, ReadOptionalObject(file("generation_config.json")));
  if (Exists(file("chat_template.jinja"))) {
    ASSIGN_OR_RETURN(texts.chat_template, ReadText(file("chat_template.jinja")));
  }
  if (const absl::Status status = ReadTokenizer(texts, metadata); !status.ok()) {
    return Annotate(status, file("tokenizer.json"));
  }
  ModelParts parts;
  RETURN_IF_ERROR(ReadTensors(path, parts));
  AddRopeFactors(rope_factors, parts);
  parts.header = std::move(metadata).Take();
  return Gguf::Assemble(std::move(parts), path);
}

}  // namespace baton::engine
