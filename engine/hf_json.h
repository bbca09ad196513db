// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// JSON from a Hugging Face folder: foreign text, checked.
//
// Pure functions.  Fails: InvalidArgument "NAME: WHAT".
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::engine {

// An object without a key that is there twice, nested at most 64 deep.
absl::StatusOr<nlohmann::json> ParseJsonObject(absl::string_view text, absl::string_view name);

// Members; none if absent or null.  InvalidArgument names the key if it has another type.
absl::StatusOr<std::optional<uint64_t>> JsonUnsigned(const nlohmann::json& object, const char* key);
absl::StatusOr<std::optional<double>> JsonNumber(const nlohmann::json& object, const char* key);
absl::StatusOr<std::optional<bool>> JsonBool(const nlohmann::json& object, const char* key);
absl::StatusOr<std::optional<std::string>> JsonString(const nlohmann::json& object,
                                                      const char* key);
// Null if absent or null.
absl::StatusOr<const nlohmann::json*> JsonObject(const nlohmann::json& object, const char* key);
absl::StatusOr<const nlohmann::json*> JsonArray(const nlohmann::json& object, const char* key);

}  // namespace baton::engine
