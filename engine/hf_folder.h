// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A Hugging Face folder, read as the GGUF file that a converter would make of it: its
// metadata under GGUF's keys, its tensors under GGUF's names, nothing copied but tables.
// (The rows of q and k stay as they are, which kRopeInterleavedKey says.)
//
// Needs config.json, tokenizer.json, and model.safetensors or the files of
// model.safetensors.index.json; reads tokenizer_config.json, generation_config.json and
// chat_template.jinja if they are there.  Models: llama, mistral, qwen2, qwen3.
//
// The folder is foreign: what is unknown in it is refused by name, and no file outside of
// it is opened.
//
// Fails: NotFound for a missing file, InvalidArgument "FILE: WHAT".
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "engine/gguf.h"
#include "engine/hf_metadata.h"

namespace baton::engine {

absl::StatusOr<Gguf> OpenFolder(const std::string& path);

// Its parts, each of the text of one file.
// config.json; generation_config.json may name more ends of an answer ({} if there is none).
// Appends the divisors of "llama3" RoPE scaling to `rope_factors`.
absl::Status ReadConfig(const nlohmann::json& config, MetadataWriter& out,
                        std::vector<float>& rope_factors);
// tokenizer.json with what tokenizer_config.json, config.json and generation_config.json say
// about special tokens.
struct TokenizerTexts {
  nlohmann::json tokenizer, tokenizer_config, config, generation_config;  // objects
  std::string chat_template;  // of a file of its own; may be empty
};
absl::Status ReadTokenizer(const TokenizerTexts& texts, MetadataWriter& out);
// "model.layers.3.mlp.up_proj.weight" as "blk.3.ffn_up.weight"; others as they are.
std::string GgufTensorName(const std::string& name);

}  // namespace baton::engine
