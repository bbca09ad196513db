// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// GGUF to ModelWeights: which tensors a model has, their shapes, and its dimensions.
//
// Architectures: "llama" (Llama 2/3.x, SmolLM2, Mistral, TinyLlama), "qwen2", "qwen3" (dense).
// A tensor or a switch
// that the forward pass would have to know, and does not, is an error: a model is never
// run wrong in silence.
//
// Thread:    pure functions.
// Ownership: the weights are views into `file`, which outlives them.
// Fails:     InvalidArgument or NotFound, naming the file and the key or tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "engine/gguf.h"
#include "engine/model_spec.h"

namespace baton::engine {

// A GGUF file, or a Hugging Face folder (hf_folder.h).
absl::StatusOr<Gguf> OpenModel(const std::string& path);

// Our own keys: whether rotated pairs lie side by side in the rows of q and k, and all ids
// that end an answer (GGUF has room for three).
inline constexpr char kRopeInterleavedKey[] = "baton.rope_interleaved";
inline constexpr char kEndTokensKey[] = "baton.end_token_ids";

absl::StatusOr<ModelWeights> LoadModel(const Gguf& file);

// Ids in [0, vocab) that stand for no token: rows that pad the vocabulary, and tokens that
// the file calls unused.  Ascending.  They must never be sampled.
std::vector<TokenId> VocabularyHoles(const Gguf& file, uint32_t vocab);

// Names a model: equal for equal files, whatever they are called; 32 hex digits (K6).
//
// Covered are the whole header (metadata, tokenizer, template, the tensors' names, types
// and shapes), the file's size, and of each tensor up to 16 pages of 4 KiB, evenly spaced.
// It tells models apart; it is no proof against damage or forgery.  Costs a tenth of a second.
std::string ModelFingerprint(const Gguf& file);

}  // namespace baton::engine
