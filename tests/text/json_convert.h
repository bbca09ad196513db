// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A test's JSON as the template's.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/text/json_value.h"

namespace baton::text {

inline JsonValue FromNlohmann(const nlohmann::ordered_json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    JsonValue::Array array;
    for (const auto& item : json) array.push_back(FromNlohmann(item));
    return array;
  }
  if (json.is_object()) {
    JsonValue::Object object;
    for (const auto& [key, item] : json.items()) object.emplace_back(key, FromNlohmann(item));
    return object;
  }
  return JsonValue();
}

}  // namespace baton::text
