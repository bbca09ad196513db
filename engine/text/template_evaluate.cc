// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The interpreter's expressions.
#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/text/template_interpreter.h"
#include "engine/text/template_strings.h"

namespace baton::text {
namespace {

absl::StatusOr<Value> LoopAttribute(Heap& heap, const Value& value, absl::string_view name) {
  const LoopData& loop = *value.loop;
  const std::vector<Value>& items = *loop.items;
  const int64_t index = static_cast<int64_t>(loop.index);
  const int64_t size = static_cast<int64_t>(items.size());
  if (name == "index") return Value::Integer(index + 1);
  if (name == "index0") return Value::Integer(index);
  if (name == "revindex") return Value::Integer(size - index);
  if (name == "revindex0") return Value::Integer(size - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == size);
  if (name == "length") return Value::Integer(size);
  if (name == "depth") return Value::Integer(1);
  if (name == "depth0") return Value::Integer(0);
  if (name == "previtem" && index > 0) return items[loop.index - 1];
  if (name == "nextitem" && index + 1 < size) return items[loop.index + 1];
  return heap.Undefined(absl::StrCat("'loop.", name, "'"));
}

// A slice's bound in [0, size] (stepping back: [-1, size - 1]).
int64_t Bound(int64_t bound, int64_t size, bool back) {
  if (bound < 0) bound += size;
  return std::clamp<int64_t>(bound, back ? -1 : 0, back ? size - 1 : size);
}

}  // namespace

absl::StatusOr<Value> Interpreter::Attribute(const Value& of, absl::string_view name) {
  if (of.Is(ValueKind::kUndefined)) return UndefinedError(of);
  if (of.Is(ValueKind::kLoop) && !HasMethod(of, name)) return LoopAttribute(heap_, of, name);
  if (HasMethod(of, name)) return heap_.Method(of, name);
  const DictData* dict = of.Is(ValueKind::kDict)        ? of.dict
                         : of.Is(ValueKind::kNamespace) ? of.space
                                                        : nullptr;
  if (dict != nullptr) {
    if (const Value* found = Find(heap_, *dict, name)) return *found;
  }
  return heap_.Undefined(absl::StrCat("'", TypeName(of), "' object's attribute '", name, "'"));
}

absl::StatusOr<Value> Interpreter::Item(const Value& of, const Value& key) {
  if (of.Is(ValueKind::kUndefined)) return UndefinedError(of);
  const bool sequence = of.IsSequence() || of.Is(ValueKind::kString);
  if (sequence && (key.Is(ValueKind::kInteger) || key.Is(ValueKind::kBool))) {
    ASSIGN_OR_RETURN(const int64_t size, Length(heap_, of));
    int64_t index = key.Is(ValueKind::kBool) ? (key.boolean ? 1 : 0) : key.integer;
    if (index < 0) index += size;
    if (index < 0 || index >= size) return heap_.Undefined("an item outside a list");
    if (of.IsSequence()) return of.list->items[static_cast<size_t>(index)];
    const size_t begin = OffsetOfCharacter(of.text->text(), index);
    const absl::string_view rest = absl::string_view(of.text->text()).substr(begin);
    return heap_.String(of.text->Slice(begin, begin + OffsetOfCharacter(rest, 1)));
  }
  if (of.Is(ValueKind::kDict)) {
    if (const Value* found = Find(heap_, *of.dict, key)) return *found;
  }
  if (key.Is(ValueKind::kString)) return Attribute(of, key.text->text());
  return heap_.Undefined(absl::StrCat("'", TypeName(of), "' object's item"));
}

absl::StatusOr<Value> Interpreter::Evaluate(const Expression& expression) {
  heap_.Spend(1);
  RETURN_IF_ERROR(heap_.Check());
  if (++depth_ > kCallDepthMax) return absl::InvalidArgumentError("RecursionError: too deep");
  const absl::Cleanup leave = [this] { --depth_; };
  return EvaluateKind(expression);
}

absl::StatusOr<Value> Interpreter::EvaluateKind(const Expression& expression) {
  switch (expression.kind) {
    case Expression::kNone:
      return Value::None();
    case Expression::kTrue:
      return Value::Bool(true);
    case Expression::kFalse:
      return Value::Bool(false);
    case Expression::kInteger:
      return Value::Integer(expression.integer);
    case Expression::kFloat:
      return Value::Float(expression.number);
    case Expression::kString:
      return heap_.String(expression.text, false);
    case Expression::kName:
      return Lookup(expression.text);
    case Expression::kList:
    case Expression::kTuple: {
      ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateAll(expression, 0));
      return heap_.List(std::move(items), expression.kind == Expression::kList ? ValueKind::kList
                                                                               : ValueKind::kTuple);
    }
    case Expression::kDict:
      return EvaluateDict(expression);
    case Expression::kAttribute: {
      ASSIGN_OR_RETURN(const Value of, Evaluate(*expression.operands[0]));
      return Attribute(of, expression.text);
    }
    case Expression::kItem: {
      ASSIGN_OR_RETURN(const Value of, Evaluate(*expression.operands[0]));
      ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[1]));
      return Item(of, key);
    }
    case Expression::kSlice:
      return EvaluateSlice(expression);
    case Expression::kCall:
      return EvaluateCall(expression);
    case Expression::kFilter:
      return EvaluateFilter(expression);
    case Expression::kTest:
      return EvaluateTest(expression);
    case Expression::kNot: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
      return Value::Bool(!Truthy(value));
    }
    case Expression::kNegative:
    case Expression::kPositive:
      return EvaluateSign(expression);
    case Expression::kBinary:
      return EvaluateBinary(expression);
    case Expression::kAnd:
    case Expression::kOr: {
      ASSIGN_OR_RETURN(const Value left, Evaluate(*expression.operands[0]));
      if (Truthy(left) == (expression.kind == Expression::kOr)) return left;
      return Evaluate(*expression.operands[1]);
    }
    case Expression::kCompare:
      return EvaluateCompare(expression);
    case Expression::kCondition: {
      ASSIGN_OR_RETURN(const Value condition, Evaluate(*expression.operands[1]));
      if (Truthy(condition)) return Evaluate(*expression.operands[0]);
      if (expression.operands[2] == nullptr) return heap_.Undefined("the else of an if");
      return Evaluate(*expression.operands[2]);
    }
  }
  return Value::None();
}

absl::StatusOr<std::vector<Value>> Interpreter::EvaluateAll(const Expression& expression,
                                                            size_t from) {
  std::vector<Value> values;
  for (size_t i = from; i < expression.operands.size(); ++i) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[i]));
    values.push_back(value);
  }
  return values;
}

absl::StatusOr<Value> Interpreter::EvaluateDict(const Expression& expression) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
    ASSIGN_OR_RETURN(const Value key, Evaluate(*expression.operands[i]));
    ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[i + 1]));
    items.emplace_back(key, value);
  }
  return heap_.Dict(std::move(items));
}

absl::StatusOr<Value> Interpreter::EvaluateSign(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*expression.operands[0]));
  return Calculate(heap_, expression.kind == Expression::kNegative ? "-" : "+", Value::Integer(0),
                   value);
}

absl::StatusOr<Value> Interpreter::EvaluateSlice(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value of, Evaluate(*expression.operands[0]));
  if (of.Is(ValueKind::kUndefined)) return UndefinedError(of);
  if (!of.IsSequence() && !of.Is(ValueKind::kString)) {
    return TypeError(absl::StrCat("'", TypeName(of), "' cannot be sliced"));
  }
  int64_t parts[3] = {0, 0, 1};
  bool given[3] = {false, false, false};
  for (size_t i = 0; i < 3; ++i) {
    const Expression* part = expression.operands[i + 1].get();
    if (part == nullptr) continue;
    ASSIGN_OR_RETURN(const Value value, Evaluate(*part));
    if (value.Is(ValueKind::kNone)) continue;
    if (!value.Is(ValueKind::kInteger)) return TypeError("slice indices must be integers");
    parts[i] = value.integer;
    given[i] = true;
  }
  const int64_t step = parts[2];
  if (step == 0) return absl::InvalidArgumentError("ValueError: slice step cannot be zero");
  const bool back = step < 0;
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(heap_, of));
  const int64_t size = static_cast<int64_t>(items.size());
  const int64_t begin = given[0] ? Bound(parts[0], size, back) : back ? size - 1 : 0;
  const int64_t end = given[1] ? Bound(parts[1], size, back) : back ? -1 : size;
  std::vector<Value> kept;
  MarkedText text;
  for (int64_t i = begin; back ? i > end : i < end;) {
    const Value& item = items[static_cast<size_t>(i)];
    if (of.Is(ValueKind::kString)) {
      text.Append(*item.text);
    } else {
      kept.push_back(item);
    }
    if (step > size || step < -size) break;
    i += step;
  }
  if (of.Is(ValueKind::kString)) return heap_.String(std::move(text));
  return heap_.List(std::move(kept), of.kind);
}

absl::StatusOr<Arguments> Interpreter::EvaluateArguments(const Expression& expression) {
  Arguments arguments;
  ASSIGN_OR_RETURN(arguments.list, EvaluateAll(expression, 1));
  for (const auto& [name, value] : expression.named) {
    ASSIGN_OR_RETURN(const Value evaluated, Evaluate(*value));
    arguments.named.emplace_back(name, evaluated);
  }
  return arguments;
}

absl::StatusOr<Value> Interpreter::EvaluateCall(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value callee, Evaluate(*expression.operands[0]));
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression));
  switch (callee.kind) {
    case ValueKind::kUndefined:
      return UndefinedError(callee);
    case ValueKind::kMacro:
      return CallMacro(*callee.macro, arguments);
    case ValueKind::kFunction:
      return CallFunction(*this, callee.text->text(), arguments);
    case ValueKind::kMethod:
      arguments.self = callee.method->self;
      return CallMethod(*this, callee.method->name, arguments);
    default:
      return TypeError(absl::StrCat("'", TypeName(callee), "' object is not callable"));
  }
}

absl::StatusOr<Value> Interpreter::EvaluateFilter(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value self, Evaluate(*expression.operands[0]));
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression));
  arguments.self = self;
  return ApplyFilter(*this, expression.text, arguments);
}

absl::StatusOr<Value> Interpreter::EvaluateTest(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value self, Evaluate(*expression.operands[0]));
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression));
  arguments.self = self;
  ASSIGN_OR_RETURN(const bool holds, ApplyTest(*this, expression.text, arguments));
  return Value::Bool(holds);
}

// A chain of + on strings is built in one piece: messages can be long.
absl::StatusOr<Value> Interpreter::EvaluateBinary(const Expression& expression) {
  std::vector<const Expression*> chain;  // innermost last
  const Expression* first = &expression;
  while (first->kind == Expression::kBinary && first->text == expression.text) {
    chain.push_back(first);
    first = first->operands[0].get();
  }
  ASSIGN_OR_RETURN(Value sum, Evaluate(*first));
  const bool joins = expression.text == "+" || expression.text == "~";
  MarkedText text;
  bool in_text = false;  // `text` holds the sum
  for (auto node = chain.rbegin(); node != chain.rend(); ++node) {
    ASSIGN_OR_RETURN(const Value right, Evaluate(*(*node)->operands[1]));
    const bool strings = (in_text || sum.Is(ValueKind::kString)) && right.Is(ValueKind::kString);
    if (joins && strings) {
      if (!in_text) text = *sum.text;
      in_text = true;
      heap_.Spend(1 + right.text->size() / 64);
      RETURN_IF_ERROR(heap_.CheckRoom(text.size() + right.text->size()));
      text.Append(*right.text);
      continue;
    }
    if (in_text) sum = heap_.String(std::exchange(text, MarkedText()));
    in_text = false;
    ASSIGN_OR_RETURN(sum, Calculate(heap_, expression.text, sum, right));
  }
  return in_text ? heap_.String(std::move(text)) : sum;
}

absl::StatusOr<Value> Interpreter::EvaluateCompare(const Expression& expression) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  for (size_t i = 0; i < expression.texts.size(); ++i) {
    ASSIGN_OR_RETURN(const Value right, Evaluate(*expression.operands[i + 1]));
    ASSIGN_OR_RETURN(const bool holds, Relation(expression.texts[i], left, right));
    if (!holds) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

absl::StatusOr<bool> Interpreter::Relation(const std::string& relation, const Value& a,
                                           const Value& b) {
  if (relation == "==") return Equals(heap_, a, b);
  if (relation == "!=") return !Equals(heap_, a, b);
  if (relation == "in") return Contains(heap_, b, a);
  if (relation == "<") return Less(heap_, a, b);
  if (relation == ">") return Less(heap_, b, a);
  if (relation == "<=" || relation == ">=") {
    ASSIGN_OR_RETURN(const bool less, relation == "<=" ? Less(heap_, a, b) : Less(heap_, b, a));
    return less || Equals(heap_, a, b);
  }
  ASSIGN_OR_RETURN(const bool contains, Contains(heap_, b, a));  // not in
  return !contains;
}

}  // namespace baton::text
