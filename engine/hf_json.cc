// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/hf_json.h"

#include <cmath>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace baton::engine {
namespace {

using nlohmann::json;

constexpr size_t kDepthMax = 64;

absl::Status Wrong(const char* key, absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is not ", wanted));
}

const json* Find(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

absl::StatusOr<json> ParseJsonObject(absl::string_view text, absl::string_view name) {
  std::vector<absl::flat_hash_set<std::string>> keys;
  std::string problem;
  // The parser calls for every key and every object's ends.
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (static_cast<size_t>(depth) > kDepthMax && problem.empty()) problem = "nested too deep";
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.empty()) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second && problem.empty()) {
        problem = absl::StrCat("key \"", absl::CHexEscape(key.substr(0, 80)), "\" is there twice");
      }
    }
    return problem.empty();
  };
  json parsed = json::parse(text.begin(), text.end(), watch, false);
  if (problem.empty() && !parsed.is_object()) problem = "not a JSON object";
  if (problem.empty()) return parsed;
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", problem));
}

absl::StatusOr<std::optional<uint64_t>> JsonUnsigned(const json& object, const char* key) {
  const json* value = Find(object, key);
  if (value == nullptr) return std::optional<uint64_t>();
  if (!value->is_number_unsigned()) return Wrong(key, "a whole number of 0 or more");
  return std::optional<uint64_t>(value->get<uint64_t>());
}

absl::StatusOr<std::optional<double>> JsonNumber(const json& object, const char* key) {
  const json* value = Find(object, key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return Wrong(key, "a number");
  return std::optional<double>(value->get<double>());
}

absl::StatusOr<std::optional<bool>> JsonBool(const json& object, const char* key) {
  const json* value = Find(object, key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return Wrong(key, "true or false");
  return std::optional<bool>(value->get<bool>());
}

absl::StatusOr<std::optional<std::string>> JsonString(const json& object, const char* key) {
  const json* value = Find(object, key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return Wrong(key, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

absl::StatusOr<const json*> JsonObject(const json& object, const char* key) {
  const json* value = Find(object, key);
  if (value != nullptr && !value->is_object()) return Wrong(key, "an object");
  return value;
}

absl::StatusOr<const json*> JsonArray(const json& object, const char* key) {
  const json* value = Find(object, key);
  if (value != nullptr && !value->is_array()) return Wrong(key, "an array");
  return value;
}

}  // namespace baton::engine
