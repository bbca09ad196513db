// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/json_fields.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace baton::server {
namespace {

using nlohmann::json;

constexpr int kDepthMax = 64;

// The deepest nesting of brackets outside of strings; linear, no recursion.
int Depth(absl::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

ApiError BadJson(absl::string_view what) {
  ApiError error;
  error.message = absl::StrCat("The request body is not valid JSON: ", what);
  return error;
}

}  // namespace

std::optional<ApiError> ParseJson(absl::string_view body, json* to) {
  if (Depth(body) > kDepthMax) return BadJson(absl::StrCat("nested deeper than ", kDepthMax));
  try {
    *to = json::parse(body.begin(), body.end());
  } catch (const json::exception& error) {
    // "[json.exception.parse_error.101] parse error at …: …"
    const std::string what = error.what();
    const size_t end = what.find("] ");
    return BadJson(end == std::string::npos ? what : what.substr(end + 2, 200));
  }
  if (!to->is_object()) return BadJson("it must be an object");
  return std::nullopt;
}

std::optional<int64_t> IntegerOf(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double number = value.get<double>();
    if (std::trunc(number) != number || std::abs(number) > 0x1p53) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  return std::nullopt;
}

const json* JsonFields::Find(const char* name) const {
  if (error_) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonFields::Fail(absl::string_view name, absl::string_view what, absl::string_view code) {
  if (error_) return;
  ApiError error;
  error.param = absl::StrCat(prefix_, name);
  error.message = absl::StrCat("'", error.param, "' ", what);
  error.code = std::string(code.empty() ? "invalid_value" : code);
  error_ = std::move(error);
}

void JsonFields::Get(const char* name, std::string* to, size_t bytes_max) {
  const json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(name, "must be a string", "invalid_type");
  *to = value->get<std::string>();
  if (to->size() > bytes_max) Fail(name, absl::StrCat("is longer than ", bytes_max, " bytes"));
}

void JsonFields::Get(const char* name, bool* to) {
  const json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Fail(name, "must be true or false", "invalid_type");
  *to = value->get<bool>();
}

void JsonFields::Get(const char* name, float* to, double low, double high) {
  const json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return Fail(name, "must be a number", "invalid_type");
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) {
    return Fail(name, absl::StrCat("must be from ", low, " to ", high));
  }
  *to = static_cast<float>(number);
}

std::optional<int64_t> JsonFields::Integral(const char* name, int64_t low, int64_t high) {
  const json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = IntegerOf(*value);
  if (!number) {
    Fail(name, "must be an integer", "invalid_type");
    return std::nullopt;
  }
  if (*number < low || *number > high) {
    Fail(name, absl::StrCat("must be from ", low, " to ", high));
    return std::nullopt;
  }
  return number;
}

void JsonFields::GetStrings(const char* name, std::vector<std::string>* to, size_t count_max) {
  const json* value = Find(name);
  if (value == nullptr) return;
  const char* const kWant = "must be a string or an array of strings";
  if (value->is_string()) {
    to->push_back(value->get<std::string>());
  } else if (value->is_array()) {
    if (value->size() > count_max) {
      return Fail(name, absl::StrCat("has more than ", count_max, " entries"));
    }
    for (const json& one : *value) {
      if (!one.is_string()) return Fail(name, kWant, "invalid_type");
      to->push_back(one.get<std::string>());
    }
  } else {
    Fail(name, kWant, "invalid_type");
  }
}

void JsonFields::GetIds(const char* name, std::vector<TokenId>* to, size_t count_max) {
  const json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return Fail(name, "must be an array of token ids", "invalid_type");
  if (value->size() > count_max) {
    return Fail(name, absl::StrCat("has more than ", count_max, " entries"));
  }
  for (const json& one : *value) {
    const std::optional<int64_t> id = IntegerOf(one);
    if (!id) return Fail(name, "must be an array of token ids", "invalid_type");
    if (*id < 0 || *id > INT32_MAX) {
      return Fail(name, absl::StrCat("has a token id that is not in the vocabulary: ", *id));
    }
    to->push_back(static_cast<TokenId>(*id));
  }
}

void JsonFields::Refuse(const char* name, const json& harmless) {
  const json* value = Find(name);
  if (value == nullptr || *value == harmless) return;
  if (value->is_array() && value->empty()) return;
  Fail(name, "is not supported by this server", "unsupported_parameter");
}

}  // namespace baton::server
