// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A JSON value, for what callers hand to a chat template.  Objects keep their order, which
// a template can see.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace baton::text {

struct JsonValue {
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;

  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value = nullptr;

  JsonValue() = default;
  JsonValue(bool v) : value(v) {}                      // NOLINT: values convert
  JsonValue(int v) : value(int64_t{v}) {}              // NOLINT
  JsonValue(int64_t v) : value(v) {}                   // NOLINT
  JsonValue(double v) : value(v) {}                    // NOLINT
  JsonValue(std::string v) : value(std::move(v)) {}    // NOLINT
  JsonValue(const char* v) : value(std::string(v)) {}  // NOLINT
  JsonValue(Array v) : value(std::move(v)) {}          // NOLINT
  JsonValue(Object v) : value(std::move(v)) {}         // NOLINT
};

}  // namespace baton::text
