// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What a template computes with.  Values are small and copied; what they point to lives in
// the Heap of one rendering and is not changed once made, but for namespaces.
//
// A Heap also holds the rendering's budget: bytes and steps.  Work that is not constant
// spends steps; when the budget is gone the interpreter stops with an error, so that no
// template and no input can hold a thread for long.
//
// Thread: a Heap and its values belong to one rendering.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/json_value.h"
#include "engine/text/marked_text.h"

namespace baton::text {

struct Statement;
struct Value;
struct ListData;
struct DictData;
struct LoopData;
struct MethodData;

enum class ValueKind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kLoop,      // a for loop's `loop`
  kMacro,     // defined by the template
  kFunction,  // a global, by name
  kMethod,    // of a value, by name
};

struct Value {
  ValueKind kind = ValueKind::kUndefined;
  union {
    int64_t integer = 0;
    bool boolean;
    double number;
    const MarkedText* text;  // kString; kFunction and kUndefined: a name
    const ListData* list;    // kList, kTuple
    const DictData* dict;    // kDict
    DictData* space;         // kNamespace
    const LoopData* loop;
    const Statement* macro;
    const MethodData* method;
  };

  static Value None() { return Of(ValueKind::kNone); }
  static Value Bool(bool v) {
    Value value = Of(ValueKind::kBool);
    value.boolean = v;
    return value;
  }
  static Value Integer(int64_t v) {
    Value value = Of(ValueKind::kInteger);
    value.integer = v;
    return value;
  }
  static Value Float(double v) {
    Value value = Of(ValueKind::kFloat);
    value.number = v;
    return value;
  }
  static Value Of(ValueKind kind) {
    Value value;
    value.kind = kind;
    return value;
  }
  bool Is(ValueKind k) const { return kind == k; }
  bool IsNumber() const {
    return Is(ValueKind::kInteger) || Is(ValueKind::kFloat) || Is(ValueKind::kBool);
  }
  bool IsSequence() const { return Is(ValueKind::kList) || Is(ValueKind::kTuple); }
};

struct ListData {
  std::vector<Value> items;
  uint32_t depth = 1;  // of lists and dicts in one another
};
struct DictData {
  std::vector<std::pair<Value, Value>> items;  // in the order of insertion
  uint32_t depth = 1;
};
struct LoopData {
  const std::vector<Value>* items = nullptr;
  size_t index = 0;  // from 0
};
struct MethodData {
  Value self;
  std::string name;
};

class Heap {
 public:
  Heap(size_t bytes, uint64_t steps) : bytes_(bytes), steps_(steps) {}

  // Makes `count` steps; the budget may be gone afterwards.
  void Spend(uint64_t count) { steps_ -= count < steps_ ? count : steps_; }
  // InvalidArgument if the budget is gone.
  absl::Status Check() const;
  // InvalidArgument if `bytes` more would be too many; takes nothing.
  absl::Status CheckRoom(size_t bytes) const;

  Value String(MarkedText text);
  Value String(absl::string_view text, bool input) { return String(MarkedText(text, input)); }
  Value List(std::vector<Value> items, ValueKind kind = ValueKind::kList);
  // Later items replace earlier ones of the same key.
  Value Dict(std::vector<std::pair<Value, Value>> items);
  Value Namespace(std::vector<std::pair<Value, Value>> items);
  Value Undefined(absl::string_view name);
  Value Function(absl::string_view name);
  Value Method(Value self, absl::string_view name);
  Value Loop(const LoopData* loop);
  Value Macro(const Statement* macro);

  // All text in it is marked as input.  InvalidArgument: nested too deeply, or not UTF-8.
  absl::StatusOr<Value> FromJson(const JsonValue& json, uint32_t depth = 0);

  // Lists are at most this deep, so that walking them by recursion is safe.
  static constexpr uint32_t kDepthMax = 64;

 private:
  void Take(size_t bytes) { bytes_ -= bytes < bytes_ ? bytes : bytes_; }
  void TakeDepth(uint32_t depth) { too_deep_ |= depth > kDepthMax; }

  size_t bytes_;
  uint64_t steps_;
  bool too_deep_ = false;
  std::deque<MarkedText> texts_;
  std::deque<ListData> lists_;
  std::deque<DictData> dicts_;
  std::deque<MethodData> methods_;
};

// Python's names: "str", "int", "NoneType"…
absl::string_view TypeName(const Value& value);

absl::Status TypeError(absl::string_view what);
absl::Status UndefinedError(const Value& value);

bool Truthy(const Value& value);
// As Python's ==.  Spends steps.
bool Equals(Heap& heap, const Value& a, const Value& b);
// As Python's <: numbers with numbers, strings with strings; else an error.
absl::StatusOr<bool> Less(Heap& heap, const Value& a, const Value& b);

// The value of `key`; null if there is none.
const Value* Find(Heap& heap, const DictData& dict, const Value& key);
const Value* Find(Heap& heap, const DictData& dict, absl::string_view key);

// As Python's str() and json.dumps(ensure_ascii=False).  indent < 0: one line.
absl::StatusOr<MarkedText> ToText(Heap& heap, const Value& value);
absl::StatusOr<MarkedText> ToJson(Heap& heap, const Value& value, int64_t indent, bool sort_keys);
std::string FloatText(double number);

// The items of what a for loop can go over; strings give characters, dicts their keys.
absl::StatusOr<std::vector<Value>> Items(Heap& heap, const Value& value);
absl::StatusOr<int64_t> Length(Heap& heap, const Value& value);

}  // namespace baton::text
