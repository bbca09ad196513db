// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Reads safetensors: an 8-byte length, a JSON header, then the tensors' bytes.
//
// The file is foreign: sizes, shapes and places are checked before use; tensors lie in the
// data and apart from one another.  Types: F32, F16, BF16.
//
// Ownership: the views borrow `bytes`.
// Fails:     InvalidArgument "NAME: [tensor T: ]WHAT".
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/gguf.h"

namespace baton::engine {

// By the names in the file; dimensions in GGUF's order, contiguous one first.
using TensorTable = absl::btree_map<std::string, GgufTensor, std::less<>>;

// Adds the file's tensors to `tensors`; a name that is there already is an error.
absl::Status DecodeSafetensors(absl::Span<const uint8_t> bytes, absl::string_view name,
                               TensorTable& tensors);

}  // namespace baton::engine
