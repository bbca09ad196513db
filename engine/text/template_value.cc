// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/template_value.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

constexpr size_t kObjectBytes = 64;  // what a small object costs besides its text or items

double AsNumber(const Value& value) {
  return value.Is(ValueKind::kFloat)  ? value.number
         : value.Is(ValueKind::kBool) ? (value.boolean ? 1.0 : 0.0)
                                      : static_cast<double>(value.integer);
}

bool IsExact(const Value& value) {
  return value.Is(ValueKind::kInteger) || value.Is(ValueKind::kBool);
}
int64_t AsInteger(const Value& value) {
  return value.Is(ValueKind::kBool) ? (value.boolean ? 1 : 0) : value.integer;
}

uint32_t DepthOf(const Value& value) {
  if (value.IsSequence()) return value.list->depth;
  return value.Is(ValueKind::kDict) ? value.dict->depth : 0;
}

}  // namespace

absl::Status Heap::Check() const {
  if (steps_ == 0) return absl::InvalidArgumentError("the template takes too many steps");
  if (bytes_ == 0) return absl::InvalidArgumentError("the template takes too much memory");
  if (too_deep_) return absl::InvalidArgumentError("the template nests lists too deeply");
  return absl::OkStatus();
}

absl::Status Heap::CheckRoom(size_t bytes) const {
  if (bytes >= bytes_) return absl::InvalidArgumentError("the template takes too much memory");
  return Check();
}

Value Heap::String(MarkedText text) {
  Take(text.size() + kObjectBytes);
  texts_.push_back(std::move(text));
  Value value = Value::Of(ValueKind::kString);
  value.text = &texts_.back();
  return value;
}

Value Heap::List(std::vector<Value> items, ValueKind kind) {
  Take(items.size() * sizeof(Value) + kObjectBytes);
  uint32_t depth = 0;
  for (const Value& item : items) depth = std::max(depth, DepthOf(item));
  TakeDepth(depth + 1);
  lists_.push_back({std::move(items), depth + 1});
  Value value = Value::Of(kind);
  value.list = &lists_.back();
  return value;
}

Value Heap::Dict(std::vector<std::pair<Value, Value>> items) {
  Take(items.size() * 2 * sizeof(Value) + kObjectBytes);
  DictData dict;
  for (const auto& [key, item] : items) {
    if (!Check().ok()) break;
    dict.depth = std::max(dict.depth, std::max(DepthOf(key), DepthOf(item)) + 1);
    if (const Value* old = Find(*this, dict, key)) {
      const auto place = std::find_if(dict.items.begin(), dict.items.end(),
                                      [old](const auto& other) { return &other.second == old; });
      place->second = item;
    } else {
      dict.items.emplace_back(key, item);
    }
  }
  TakeDepth(dict.depth);
  dicts_.push_back(std::move(dict));
  Value value = Value::Of(ValueKind::kDict);
  value.dict = &dicts_.back();
  return value;
}

Value Heap::Namespace(std::vector<std::pair<Value, Value>> items) {
  Dict(std::move(items));
  Value value = Value::Of(ValueKind::kNamespace);
  value.space = &dicts_.back();
  return value;
}

Value Heap::Undefined(absl::string_view name) {
  Value value = String(name, false);
  value.kind = ValueKind::kUndefined;
  return value;
}

Value Heap::Function(absl::string_view name) {
  Value value = String(name, false);
  value.kind = ValueKind::kFunction;
  return value;
}

Value Heap::Method(Value self, absl::string_view name) {
  Take(kObjectBytes);
  methods_.push_back({self, std::string(name)});
  Value value = Value::Of(ValueKind::kMethod);
  value.method = &methods_.back();
  return value;
}

Value Heap::Loop(const LoopData* loop) {
  Value value = Value::Of(ValueKind::kLoop);
  value.loop = loop;
  return value;
}

Value Heap::Macro(const Statement* macro) {
  Value value = Value::Of(ValueKind::kMacro);
  value.macro = macro;
  return value;
}

absl::StatusOr<Value> Heap::FromJson(const JsonValue& json, uint32_t depth) {
  if (depth > kDepthMax) return absl::InvalidArgumentError("the messages are nested too deeply");
  Spend(1);
  RETURN_IF_ERROR(Check());
  if (const bool* v = std::get_if<bool>(&json.value)) return Value::Bool(*v);
  if (const int64_t* v = std::get_if<int64_t>(&json.value)) return Value::Integer(*v);
  if (const double* v = std::get_if<double>(&json.value)) return Value::Float(*v);
  if (const std::string* v = std::get_if<std::string>(&json.value)) {
    if (FirstInvalidUtf8(*v).has_value()) {
      return absl::InvalidArgumentError("a string of the messages is not UTF-8");
    }
    return String(*v, true);
  }
  if (const JsonValue::Array* v = std::get_if<JsonValue::Array>(&json.value)) {
    std::vector<Value> items;
    for (const JsonValue& element : *v) {
      ASSIGN_OR_RETURN(const Value item, FromJson(element, depth + 1));
      items.push_back(item);
    }
    return List(std::move(items));
  }
  if (const JsonValue::Object* v = std::get_if<JsonValue::Object>(&json.value)) {
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [key, element] : *v) {
      ASSIGN_OR_RETURN(const Value name, FromJson(JsonValue(key), depth));
      ASSIGN_OR_RETURN(const Value item, FromJson(element, depth + 1));
      items.emplace_back(name, item);
    }
    return Dict(std::move(items));
  }
  return Value::None();
}

absl::string_view TypeName(const Value& value) {
  switch (value.kind) {
    case ValueKind::kUndefined:
      return "Undefined";
    case ValueKind::kNone:
      return "NoneType";
    case ValueKind::kBool:
      return "bool";
    case ValueKind::kInteger:
      return "int";
    case ValueKind::kFloat:
      return "float";
    case ValueKind::kString:
      return "str";
    case ValueKind::kList:
      return "list";
    case ValueKind::kTuple:
      return "tuple";
    case ValueKind::kDict:
      return "dict";
    case ValueKind::kNamespace:
      return "namespace";
    case ValueKind::kLoop:
      return "loop";
    case ValueKind::kMacro:
    case ValueKind::kFunction:
    case ValueKind::kMethod:
      return "function";
  }
  return "";
}

absl::Status TypeError(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("TypeError: ", what));
}

absl::Status UndefinedError(const Value& value) {
  absl::string_view name = "a value";
  if (value.text != nullptr) name = value.text->text();
  return absl::InvalidArgumentError(absl::StrCat("UndefinedError: ", name, " is undefined"));
}

bool Truthy(const Value& value) {
  switch (value.kind) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return false;
    case ValueKind::kBool:
      return value.boolean;
    case ValueKind::kInteger:
      return value.integer != 0;
    case ValueKind::kFloat:
      return value.number != 0;
    case ValueKind::kString:
      return value.text->size() != 0;
    case ValueKind::kList:
    case ValueKind::kTuple:
      return !value.list->items.empty();
    case ValueKind::kDict:
      return !value.dict->items.empty();
    default:
      return true;
  }
}

namespace {

bool EqualLists(Heap& heap, const ListData& a, const ListData& b) {
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                    [&heap](const Value& x, const Value& y) { return Equals(heap, x, y); });
}

bool EqualDicts(Heap& heap, const DictData& a, const DictData& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = Find(heap, b, item.first);
    return other != nullptr && Equals(heap, item.second, *other);
  });
}

}  // namespace

bool Equals(Heap& heap, const Value& a, const Value& b) {
  heap.Spend(1);
  if (!heap.Check().ok()) return false;
  if (IsExact(a) && IsExact(b)) return AsInteger(a) == AsInteger(b);
  if (a.IsNumber() && b.IsNumber()) return AsNumber(a) == AsNumber(b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case ValueKind::kUndefined:
    case ValueKind::kNone:
      return true;
    case ValueKind::kString:
    case ValueKind::kFunction:
      heap.Spend(a.text->size() / 64);
      return a.text->text() == b.text->text();
    case ValueKind::kList:
    case ValueKind::kTuple:
      return a.list == b.list || EqualLists(heap, *a.list, *b.list);
    case ValueKind::kDict:
      return a.dict == b.dict || EqualDicts(heap, *a.dict, *b.dict);
    case ValueKind::kNamespace:
      return a.space == b.space;
    case ValueKind::kLoop:
      return a.loop == b.loop;
    case ValueKind::kMacro:
      return a.macro == b.macro;
    default:
      return false;
  }
}

absl::StatusOr<bool> Less(Heap& heap, const Value& a, const Value& b) {
  if (IsExact(a) && IsExact(b)) return AsInteger(a) < AsInteger(b);
  if (a.IsNumber() && b.IsNumber()) return AsNumber(a) < AsNumber(b);
  if (a.Is(ValueKind::kString) && b.Is(ValueKind::kString)) {
    heap.Spend(1 + a.text->size() / 64);
    return a.text->text() < b.text->text();
  }
  if (a.Is(ValueKind::kUndefined)) return UndefinedError(a);
  if (b.Is(ValueKind::kUndefined)) return UndefinedError(b);
  return TypeError(absl::StrCat("'", TypeName(a), "' and '", TypeName(b), "' have no order"));
}

const Value* Find(Heap& heap, const DictData& dict, const Value& key) {
  if (key.Is(ValueKind::kString)) return Find(heap, dict, key.text->text());
  for (const auto& [name, value] : dict.items) {
    if (Equals(heap, name, key)) return &value;
  }
  return nullptr;
}

const Value* Find(Heap& heap, const DictData& dict, absl::string_view key) {
  heap.Spend(1 + dict.items.size() / 8);
  for (const auto& [name, value] : dict.items) {
    if (name.Is(ValueKind::kString) && name.text->text() == key) return &value;
  }
  return nullptr;
}

absl::StatusOr<std::vector<Value>> Items(Heap& heap, const Value& value) {
  std::vector<Value> items;
  switch (value.kind) {
    case ValueKind::kUndefined:
      return items;
    case ValueKind::kList:
    case ValueKind::kTuple:
      heap.Spend(value.list->items.size() / 8);
      return value.list->items;
    case ValueKind::kDict:
      heap.Spend(value.dict->items.size() / 8);
      for (const auto& [key, item] : value.dict->items) items.push_back(key);
      return items;
    case ValueKind::kString: {
      const MarkedText& text = *value.text;
      for (size_t at = 0; at < text.size();) {
        heap.Spend(1);
        RETURN_IF_ERROR(heap.Check());
        const size_t size = DecodeUtf8(text.text(), at).size;
        items.push_back(heap.String(text.Slice(at, at + size)));
        at += size;
      }
      return items;
    }
    default:
      return TypeError(absl::StrCat("'", TypeName(value), "' is not iterable"));
  }
}

absl::StatusOr<int64_t> Length(Heap& heap, const Value& value) {
  switch (value.kind) {
    case ValueKind::kUndefined:
      return 0;
    case ValueKind::kString:
      heap.Spend(1 + value.text->size() / 64);
      return static_cast<int64_t>(CountCharacters(value.text->text()));
    case ValueKind::kList:
    case ValueKind::kTuple:
      return static_cast<int64_t>(value.list->items.size());
    case ValueKind::kDict:
      return static_cast<int64_t>(value.dict->items.size());
    default:
      return TypeError(absl::StrCat("'", TypeName(value), "' has no length"));
  }
}

}  // namespace baton::text
