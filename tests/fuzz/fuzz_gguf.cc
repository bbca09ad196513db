// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as a GGUF file: decoded, every value and tensor read, loaded as a model.
// DEPS: model_file
#include <cstdint>

#include "engine/gguf.h"
#include "engine/model_loader.h"

namespace {

volatile uint64_t sink;

uint64_t ReadAll(const baton::engine::Gguf& file) {
  uint64_t sum = 0;
  for (const auto& [key, value] : file.values()) {
    if (const auto list = file.Strings(key); list.ok()) {
      for (const auto text : *list) sum += text.empty() ? 0 : text.back();
    }
    if (const auto list = file.Floats(key); list.ok()) sum += list->size();
    if (const auto list = file.Integers(key); list.ok()) sum += list->size();
    if (const auto number = file.Unsigned(key); number.ok()) sum += *number;
    if (const auto number = file.Number(key); number.ok()) sum += *number > 0;
    if (const auto text = file.String(key); text.ok()) sum += text->size();
    if (const auto yes = file.Bool(key); yes.ok()) sum += *yes;
  }
  for (const auto& [name, tensor] : file.tensors()) {
    sum += tensor.view.data[0] + tensor.view.data[tensor.view.size_bytes - 1];
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = baton::engine::Gguf::Decode({data, size}, "fuzz");
  if (!file.ok()) return 0;
  sink = ReadAll(*file);
  if (const auto model = baton::engine::LoadModel(*file); model.ok()) {
    sink = baton::engine::VocabularyHoles(*file, model->spec.vocab).size();
  }
  sink = baton::engine::ModelFingerprint(*file).size();
  return 0;
}
