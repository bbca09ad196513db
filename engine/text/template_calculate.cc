// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Operators of the template language, and its tests (`x is defined`).
#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/text/template_interpreter.h"
#include "engine/text/template_strings.h"

namespace baton::text {
namespace {

absl::Status Overflow() {
  return absl::InvalidArgumentError("OverflowError: a number is too large");
}
absl::Status DivisionByZero() {
  return absl::InvalidArgumentError("ZeroDivisionError: division by zero");
}

bool IsExact(const Value& value) {
  return value.Is(ValueKind::kInteger) || value.Is(ValueKind::kBool);
}
int64_t AsInteger(const Value& value) {
  return value.Is(ValueKind::kBool) ? (value.boolean ? 1 : 0) : value.integer;
}
double AsNumber(const Value& value) {
  return value.Is(ValueKind::kFloat) ? value.number : static_cast<double>(AsInteger(value));
}

// Rounds to minus infinity, as Python's // and %.
absl::StatusOr<Value> FloorDivide(int64_t a, int64_t b, bool remainder) {
  if (b == 0) return DivisionByZero();
  if (b == -1) return remainder ? Value::Integer(0) : Value::Integer(-a);
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return Value::Integer(remainder ? rest : quotient);
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::Integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Integer(exponent % 2 == 0 ? 1 : -1);
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return Overflow();
  }
  return Value::Integer(result);
}

absl::StatusOr<Value> CalculateExact(absl::string_view operation, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (operation == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (operation == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (operation == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (operation == "**") {
    return IntegerPower(a, b);
  } else if (operation == "/") {
    if (b == 0) return DivisionByZero();
    return Value::Float(static_cast<double>(a) / static_cast<double>(b));
  } else {
    if (a == INT64_MIN) return Overflow();
    return FloorDivide(a, b, operation == "%");
  }
  if (overflow) return Overflow();
  return Value::Integer(result);
}

absl::StatusOr<Value> CalculateFloat(absl::string_view operation, double a, double b) {
  if (operation == "+") return Value::Float(a + b);
  if (operation == "-") return Value::Float(a - b);
  if (operation == "*") return Value::Float(a * b);
  if (operation == "**") return Value::Float(std::pow(a, b));
  if (b == 0) return DivisionByZero();
  if (operation == "/") return Value::Float(a / b);
  const double floor = std::floor(a / b);
  return Value::Float(operation == "//" ? floor : a - floor * b);
}

}  // namespace

absl::StatusOr<Value> Calculate(Heap& heap, absl::string_view operation, const Value& a,
                                const Value& b) {
  if (operation == "~") {
    ASSIGN_OR_RETURN(MarkedText text, ToText(heap, a));
    ASSIGN_OR_RETURN(const MarkedText right, ToText(heap, b));
    RETURN_IF_ERROR(heap.CheckRoom(text.size() + right.size()));
    text.Append(right);
    return heap.String(std::move(text));
  }
  if (a.Is(ValueKind::kUndefined)) return UndefinedError(a);
  if (b.Is(ValueKind::kUndefined)) return UndefinedError(b);
  if (IsExact(a) && IsExact(b)) return CalculateExact(operation, AsInteger(a), AsInteger(b));
  if (a.IsNumber() && b.IsNumber()) return CalculateFloat(operation, AsNumber(a), AsNumber(b));
  if (operation == "+" && a.Is(ValueKind::kString) && b.Is(ValueKind::kString)) {
    MarkedText text = *a.text;
    RETURN_IF_ERROR(heap.CheckRoom(text.size() + b.text->size()));
    text.Append(*b.text);
    return heap.String(std::move(text));
  }
  if (operation == "+" && a.IsSequence() && a.kind == b.kind) {
    std::vector<Value> items = a.list->items;
    items.insert(items.end(), b.list->items.begin(), b.list->items.end());
    heap.Spend(items.size() / 8);
    return heap.List(std::move(items), a.kind);
  }
  if (operation == "*" && a.Is(ValueKind::kString) && IsExact(b)) {
    ASSIGN_OR_RETURN(MarkedText text, Repeat(heap, *a.text, AsInteger(b)));
    return heap.String(std::move(text));
  }
  if (operation == "*" && IsExact(a) && b.Is(ValueKind::kString)) {
    return Calculate(heap, operation, b, a);
  }
  return TypeError(absl::StrCat("unsupported operand types for ", operation, ": '", TypeName(a),
                                "' and '", TypeName(b), "'"));
}

absl::StatusOr<bool> Contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind) {
    case ValueKind::kUndefined:
      return false;
    case ValueKind::kString:
      if (!item.Is(ValueKind::kString)) {
        return TypeError(absl::StrCat("'in <string>' needs a string, not '", TypeName(item), "'"));
      }
      heap.Spend(1 + container.text->size() / 64);
      return container.text->text().find(item.text->text()) != std::string::npos;
    case ValueKind::kList:
    case ValueKind::kTuple:
      for (const Value& element : container.list->items) {
        if (Equals(heap, element, item)) return true;
      }
      return false;
    case ValueKind::kDict:
      return Find(heap, *container.dict, item) != nullptr;
    default:
      return TypeError(absl::StrCat("'", TypeName(container), "' is not iterable"));
  }
}

namespace {

bool IsIterable(const Value& value) {
  return value.IsSequence() || value.Is(ValueKind::kString) || value.Is(ValueKind::kDict) ||
         value.Is(ValueKind::kUndefined) || value.Is(ValueKind::kLoop);
}

bool IsCallable(const Value& value) {
  return value.Is(ValueKind::kMacro) || value.Is(ValueKind::kFunction) ||
         value.Is(ValueKind::kMethod);
}

// Tests of the value alone.
std::optional<bool> SimpleTest(absl::string_view name, const Value& value) {
  if (name == "defined") return !value.Is(ValueKind::kUndefined);
  if (name == "undefined") return value.Is(ValueKind::kUndefined);
  if (name == "none") return value.Is(ValueKind::kNone);
  if (name == "string") return value.Is(ValueKind::kString);
  if (name == "mapping") return value.Is(ValueKind::kDict);
  if (name == "iterable") return IsIterable(value);
  if (name == "sequence") {
    return value.IsSequence() || value.Is(ValueKind::kString) || value.Is(ValueKind::kDict) ||
           value.Is(ValueKind::kUndefined);
  }
  if (name == "number") return value.IsNumber();
  if (name == "integer") return value.Is(ValueKind::kInteger);
  if (name == "float") return value.Is(ValueKind::kFloat);
  if (name == "boolean") return value.Is(ValueKind::kBool);
  if (name == "true") return value.Is(ValueKind::kBool) && value.boolean;
  if (name == "false") return value.Is(ValueKind::kBool) && !value.boolean;
  if (name == "callable") return IsCallable(value);
  if (name == "escaped") return false;
  return std::nullopt;
}

// The operator that a test stands for, or an empty string.
absl::string_view RelationOf(absl::string_view name) {
  static constexpr std::pair<absl::string_view, absl::string_view> kRelations[] = {
      {"equalto", "=="}, {"eq", "=="},         {"==", "=="},      {"ne", "!="},
      {"!=", "!="},      {"lt", "<"},          {"lessthan", "<"}, {"<", "<"},
      {"gt", ">"},       {"greaterthan", ">"}, {">", ">"},        {"le", "<="},
      {"<=", "<="},      {"ge", ">="},         {">=", ">="},      {"in", "in"},
  };
  for (const auto& [test, relation] : kRelations) {
    if (test == name) return relation;
  }
  return "";
}

absl::StatusOr<bool> RelationTest(Heap& heap, absl::string_view relation, const Value& a,
                                  const Value& b) {
  if (relation == "==") return Equals(heap, a, b);
  if (relation == "!=") return !Equals(heap, a, b);
  if (relation == "in") return Contains(heap, b, a);
  if (relation == "<") return Less(heap, a, b);
  if (relation == ">") return Less(heap, b, a);
  ASSIGN_OR_RETURN(const bool less, relation == "<=" ? Less(heap, a, b) : Less(heap, b, a));
  return less || Equals(heap, a, b);
}

absl::StatusOr<bool> ModuloTest(Heap& heap, const Value& value, int64_t by, int64_t rest) {
  ASSIGN_OR_RETURN(const Value modulo, Calculate(heap, "%", value, Value::Integer(by)));
  return Equals(heap, modulo, Value::Integer(rest));
}

}  // namespace

absl::StatusOr<bool> ApplyTest(Interpreter& in, absl::string_view name, const Arguments& args) {
  const Value& value = args.self;
  if (const auto simple = SimpleTest(name, value)) return *simple;
  const absl::string_view relation = RelationOf(name);
  const bool needs_other = !relation.empty() || name == "divisibleby" || name == "sameas";
  const Value* other = args.Get(0, "other");
  if (needs_other && other == nullptr) {
    return TypeError(absl::StrCat("test '", name, "' needs an argument"));
  }
  if (!relation.empty()) return RelationTest(in.heap(), relation, value, *other);
  if (name == "odd") return ModuloTest(in.heap(), value, 2, 1);
  if (name == "even") return ModuloTest(in.heap(), value, 2, 0);
  if (name == "divisibleby") {
    ASSIGN_OR_RETURN(const Value rest, Calculate(in.heap(), "%", value, *other));
    return Equals(in.heap(), rest, Value::Integer(0));
  }
  if (name == "sameas") return value.kind == other->kind && Equals(in.heap(), value, *other);
  if (name == "upper" || name == "lower") {
    ASSIGN_OR_RETURN(const MarkedText text, ToText(in.heap(), value));
    const auto wrong = name == "upper" ? absl::ascii_islower : absl::ascii_isupper;
    return std::none_of(text.text().begin(), text.text().end(), wrong) &&
           std::any_of(text.text().begin(), text.text().end(), absl::ascii_isalpha);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("TemplateAssertionError: no test named '", name, "'"));
}

}  // namespace baton::text
