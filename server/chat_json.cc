// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/chat_json.h"

#include <utility>

#include "base/status_macros.h"

namespace baton::server {
namespace {

constexpr uint32_t kDepthMax = 64;

absl::StatusOr<text::JsonValue> Convert(const nlohmann::ordered_json& json, uint32_t depth) {
  if (depth > kDepthMax) return absl::InvalidArgumentError("JSON is nested too deeply");
  if (json.is_boolean()) return text::JsonValue(json.get<bool>());
  // An integer that int64 cannot hold is a number all the same.
  const bool large = json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX;
  if (json.is_number_integer() && !large) return text::JsonValue(json.get<int64_t>());
  if (json.is_number()) return text::JsonValue(json.get<double>());
  if (json.is_string()) return text::JsonValue(json.get_ref<const std::string&>());
  if (json.is_array()) {
    text::JsonValue::Array array;
    for (const auto& item : json) {
      ASSIGN_OR_RETURN(text::JsonValue value, Convert(item, depth + 1));
      array.push_back(std::move(value));
    }
    return text::JsonValue(std::move(array));
  }
  if (json.is_object()) {
    text::JsonValue::Object object;
    for (const auto& [key, item] : json.items()) {
      ASSIGN_OR_RETURN(text::JsonValue value, Convert(item, depth + 1));
      object.emplace_back(key, std::move(value));
    }
    return text::JsonValue(std::move(object));
  }
  return text::JsonValue();
}

}  // namespace

absl::StatusOr<text::JsonValue> ToJsonValue(const nlohmann::ordered_json& json) {
  return Convert(json, 0);
}

absl::StatusOr<text::ChatInput> ToChatInput(const nlohmann::ordered_json& request) {
  if (!request.is_object()) return absl::InvalidArgumentError("not a JSON object");
  text::ChatInput input;
  const auto messages = request.find("messages");
  if (messages == request.end() || !messages->is_array()) {
    return absl::InvalidArgumentError("messages: an array is required");
  }
  ASSIGN_OR_RETURN(input.messages, ToJsonValue(*messages));
  if (const auto flag = request.find("add_generation_prompt"); flag != request.end()) {
    if (!flag->is_boolean()) {
      return absl::InvalidArgumentError("add_generation_prompt: true or false is required");
    }
    input.add_generation_prompt = flag->get<bool>();
  }
  if (const auto tools = request.find("tools"); tools != request.end() && !tools->is_null()) {
    ASSIGN_OR_RETURN(input.tools, ToJsonValue(*tools));
  }
  const auto extra = request.find("chat_template_kwargs");
  if (extra != request.end() && !extra->is_null()) {
    if (!extra->is_object()) {
      return absl::InvalidArgumentError("chat_template_kwargs: an object is required");
    }
    ASSIGN_OR_RETURN(text::JsonValue object, ToJsonValue(*extra));
    input.extra = std::get<text::JsonValue::Object>(std::move(object.value));
  }
  return input;
}

}  // namespace baton::server
