// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Reads the fields of a JSON object with OpenAI's manners: null is absent, a wrong type or
// range is an error that names the field.  The first error wins; later calls change nothing.
//
// ParseJson bounds nesting before it parses and never throws.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/openai_request.h"

namespace baton::server {

// The object in `body`, or why there is none.
std::optional<ApiError> ParseJson(absl::string_view body, nlohmann::json* to);

class JsonFields {
 public:
  // `prefix` stands before field names in errors ("messages[0].").
  explicit JsonFields(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // The field, or null if absent, null, or an error came before.
  const nlohmann::json* Find(const char* name) const;
  bool Has(const char* name) const { return Find(name) != nullptr; }

  // Each leaves *to alone if the field is absent.
  void Get(const char* name, std::string* to, size_t bytes_max = 1u << 20);
  void Get(const char* name, bool* to);
  void Get(const char* name, float* to, double low, double high);
  template <typename Integer>
  void GetInteger(const char* name, Integer* to, int64_t low, int64_t high) {
    if (const auto value = Integral(name, low, high)) *to = static_cast<Integer>(*value);
  }
  std::optional<int64_t> Integral(const char* name, int64_t low, int64_t high);
  // A string, or an array of up to `count_max`.
  void GetStrings(const char* name, std::vector<std::string>* to, size_t count_max);
  void GetIds(const char* name, std::vector<TokenId>* to, size_t count_max);

  // The field must be absent, null, or equal to `harmless`.
  void Refuse(const char* name, const nlohmann::json& harmless);
  void Fail(absl::string_view name, absl::string_view what, absl::string_view code = "");
  void Take(std::optional<ApiError> error) {
    if (!error_) error_ = std::move(error);
  }

  bool ok() const { return !error_; }
  std::optional<ApiError> error() const { return error_; }

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  std::optional<ApiError> error_;
};

// An integer that fits 64 bits, also if written as 3.0; nothing else.
std::optional<int64_t> IntegerOf(const nlohmann::json& value);

}  // namespace baton::server
