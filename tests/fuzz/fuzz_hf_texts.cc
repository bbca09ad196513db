// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as the texts of a Hugging Face folder, split at zero bytes: config.json,
// tokenizer.json, tokenizer_config.json, generation_config.json.  What is accepted becomes a
// model's metadata and a tokenizer.
// DEPS: model_file text_model
#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/gguf.h"
#include "engine/hf_folder.h"
#include "engine/hf_json.h"
#include "engine/model_loader.h"
#include "engine/text/text_model.h"

namespace {

volatile uint64_t sink;

nlohmann::json Next(const uint8_t*& at, const uint8_t* end) {
  const uint8_t* stop = std::find(at, end, 0);
  const absl::string_view text(reinterpret_cast<const char*>(at), stop - at);
  at = stop == end ? end : stop + 1;
  auto parsed = baton::engine::ParseJsonObject(text, "fuzz");
  return parsed.ok() ? *std::move(parsed) : nlohmann::json::object();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* const end = data + size;
  baton::engine::TokenizerTexts texts;
  texts.config = Next(data, end);
  texts.tokenizer = Next(data, end);
  texts.tokenizer_config = Next(data, end);
  texts.generation_config = Next(data, end);
  baton::engine::MetadataWriter metadata;
  std::vector<float> factors;
  if (!ReadConfig(texts.config, metadata, factors).ok()) metadata = {};
  sink = factors.size();
  if (!ReadTokenizer(texts, metadata).ok()) return 0;
  baton::engine::ModelParts parts;
  parts.header = std::move(metadata).Take();
  const auto file = baton::engine::Gguf::Assemble(std::move(parts), "fuzz");
  if (!file.ok()) __builtin_trap();  // what we wrote must be readable
  sink = LoadModel(*file).ok();
  sink = baton::text::TextModel::Load(*file).ok();
  return 0;
}
