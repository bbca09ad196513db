// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// tiny_model FILE: writes a whole model with random weights and a vocabulary of bytes, small
// enough for a daemon inside an emulated machine.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <vector>

#include "tests/engine/gguf_writer.h"
#include "tests/text/tiny_vocabulary.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: tiny_model FILE\n");
    return 2;
  }
  const baton::text::TokenizerData data = baton::text::TinyData();
  baton::test::TinyShape shape;
  shape.layers = 4;
  shape.hidden = 128;
  shape.kv_heads = 4;
  shape.ffn = 128;
  shape.vocab = static_cast<uint32_t>(data.tokens.size());
  shape.context = 2048;
  baton::test::GgufWriter writer = baton::test::TinyModel(shape, 1);
  writer.AddString("tokenizer.ggml.model", data.model);
  writer.AddString("tokenizer.ggml.pre", data.pre_tokenizer);
  writer.AddStrings("tokenizer.ggml.tokens", data.tokens);
  writer.AddStrings("tokenizer.ggml.merges", data.merges);
  std::vector<int32_t> types;
  for (const baton::text::TokenType type : data.types) types.push_back(static_cast<int32_t>(type));
  writer.AddInts("tokenizer.ggml.token_type", types);
  writer.AddUint("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*data.bos));
  writer.AddUint("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(data.end_ids.at(0)));
  const std::vector<uint8_t> bytes = writer.Write();
  std::ofstream out(argv[1], std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) std::fprintf(stderr, "tiny_model: cannot write %s\n", argv[1]);
  return out ? 0 : 1;
}
