// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/chat_template.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/text/template_interpreter.h"

namespace baton::text {
namespace {

// A conversation of ten thousand messages takes about a tenth of the steps.
constexpr uint64_t kStepsMax = 10'000'000;
// Intermediate results are kept until the end, so memory is a multiple of the input's.
constexpr size_t kBytesMin = 32u << 20;
constexpr size_t kBytesPerInput = 16;

constexpr absl::string_view kReserved[] = {"messages", "tools", "add_generation_prompt",
                                           "bos_token", "eos_token"};

size_t TextBytes(const JsonValue& json, uint32_t depth = 0) {
  if (depth > Heap::kDepthMax) return 0;
  size_t bytes = sizeof(Value);
  if (const auto* text = std::get_if<std::string>(&json.value)) bytes += text->size();
  if (const auto* array = std::get_if<JsonValue::Array>(&json.value)) {
    for (const JsonValue& item : *array) bytes += TextBytes(item, depth + 1);
  }
  if (const auto* object = std::get_if<JsonValue::Object>(&json.value)) {
    for (const auto& [key, item] : *object) bytes += key.size() + TextBytes(item, depth + 1);
  }
  return bytes;
}

absl::Status DefineInput(const ChatInput& input, Interpreter& in) {
  Heap& heap = in.heap();
  ASSIGN_OR_RETURN(const Value messages, heap.FromJson(input.messages));
  in.Define("messages", messages);
  in.Define("add_generation_prompt", Value::Bool(input.add_generation_prompt));
  if (input.tools.has_value()) {
    ASSIGN_OR_RETURN(const Value tools, heap.FromJson(*input.tools));
    in.Define("tools", tools);
  }
  for (const auto& [name, json] : input.extra) {
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
      return absl::InvalidArgumentError(absl::StrCat("'", name, "' cannot be an extra variable"));
    }
    ASSIGN_OR_RETURN(const Value value, heap.FromJson(json));
    in.Define(name, value);
  }
  return absl::OkStatus();
}

std::vector<Fragment> Fragments(const MarkedText& text) {
  std::vector<Fragment> fragments;
  size_t begin = 0;
  for (const MarkedText::Run& run : text.runs()) {
    fragments.push_back({text.text().substr(begin, run.end - begin), !run.input});
    begin = run.end;
  }
  return fragments;
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view source, std::string bos_token,
                                                 std::string eos_token) {
  if (source.size() > kTemplateBytesMax) {
    return absl::InvalidArgumentError("chat template: larger than 1 MiB");
  }
  absl::StatusOr<Block> block = ParseTemplate(source);
  if (!block.ok()) return Annotate(block.status(), "chat template");
  return ChatTemplate(*std::move(block), std::move(bos_token), std::move(eos_token));
}

absl::StatusOr<std::vector<Fragment>> ChatTemplate::Render(const ChatInput& input) const {
  size_t bytes = TextBytes(input.messages);
  if (input.tools.has_value()) bytes += TextBytes(*input.tools);
  for (const auto& [name, json] : input.extra) bytes += TextBytes(json);
  Heap heap(kBytesMin + kBytesPerInput * std::min(bytes, kTextBytesMax), kStepsMax);
  Interpreter interpreter(heap, input.now);
  interpreter.Define("bos_token", heap.String(bos_token_, false));
  interpreter.Define("eos_token", heap.String(eos_token_, false));
  if (absl::Status status = DefineInput(input, interpreter); !status.ok()) {
    return Annotate(status, "chat template");
  }
  const auto text = interpreter.Render(block_);
  if (!text.ok()) return Annotate(text.status(), "chat template");
  return Fragments(*text);
}

namespace {

// The text of one part of a message.
absl::StatusOr<std::string> PartText(const JsonValue& part) {
  const auto* object = std::get_if<JsonValue::Object>(&part.value);
  if (object == nullptr) return absl::InvalidArgumentError("a content part is not an object");
  const std::string* type = nullptr;
  const std::string* text = nullptr;
  for (const auto& [key, value] : *object) {
    if (key == "type") type = std::get_if<std::string>(&value.value);
    if (key == "text") text = std::get_if<std::string>(&value.value);
  }
  if (type == nullptr) return absl::InvalidArgumentError("a content part without a type");
  if (*type != "text") {
    return absl::InvalidArgumentError(
        absl::StrCat("a content part of type '", *type, "'; this model takes only text"));
  }
  if (text == nullptr) return absl::InvalidArgumentError("a text part without text");
  return *text;
}

}  // namespace

absl::StatusOr<JsonValue> FlattenContent(JsonValue messages) {
  auto* list = std::get_if<JsonValue::Array>(&messages.value);
  if (list == nullptr) return absl::InvalidArgumentError("messages is not an array");
  for (size_t i = 0; i < list->size(); ++i) {
    auto* message = std::get_if<JsonValue::Object>(&(*list)[i].value);
    if (message == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("messages[", i, "] is not an object"));
    }
    for (auto& [key, content] : *message) {
      const auto* parts = std::get_if<JsonValue::Array>(&content.value);
      if (key != "content" || parts == nullptr) continue;
      std::string text;
      for (const JsonValue& part : *parts) {
        absl::StatusOr<std::string> piece = PartText(part);
        if (!piece.ok()) return Annotate(piece.status(), absl::StrCat("messages[", i, "]"));
        if (&part != &parts->front()) text += '\n';
        text += *piece;
      }
      content = JsonValue(std::move(text));
    }
  }
  return messages;
}

}  // namespace baton::text
