// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/template_interpreter.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/text/template_strings.h"

namespace baton::text {

const Value* Arguments::Get(size_t place, absl::string_view name) const {
  if (place < list.size()) return &list[place];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

absl::StatusOr<int64_t> Arguments::Integer(size_t place, absl::string_view name,
                                           int64_t otherwise) const {
  const Value* value = Get(place, name);
  if (value == nullptr || value->Is(ValueKind::kNone)) return otherwise;
  if (value->Is(ValueKind::kBool)) return value->boolean ? 1 : 0;
  if (!value->Is(ValueKind::kInteger)) {
    return TypeError(absl::StrCat("'", TypeName(*value), "' for ", name, ", which is an int"));
  }
  return value->integer;
}

bool Arguments::Flag(size_t place, absl::string_view name) const {
  const Value* value = Get(place, name);
  return value != nullptr && Truthy(*value);
}

absl::StatusOr<const MarkedText*> Arguments::Text(size_t place, absl::string_view name) const {
  const Value* value = Get(place, name);
  if (value == nullptr) return TypeError(absl::StrCat("the argument ", name, " is missing"));
  if (!value->Is(ValueKind::kString)) {
    return TypeError(absl::StrCat("'", TypeName(*value), "' for ", name, ", which is a str"));
  }
  return value->text;
}

Arguments Arguments::Behind(const Value& new_self, size_t count) const {
  Arguments rest;
  rest.self = new_self;
  if (count < list.size()) {
    rest.list.assign(list.begin() + static_cast<ptrdiff_t>(count), list.end());
  }
  return rest;
}

absl::StatusOr<MarkedText> Interpreter::Render(const Block& block) {
  const auto flow = Run(block);
  if (!flow.ok()) return Annotate(flow.status(), absl::StrCat("line ", line_));
  RETURN_IF_ERROR(heap_.Check());
  return std::move(out_);
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Block& block) {
  for (const auto& statement : block) {
    ASSIGN_OR_RETURN(const Flow flow, Run(*statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::Run(const Statement& statement) {
  line_ = statement.line;
  heap_.Spend(1);
  RETURN_IF_ERROR(heap_.Check());
  if (++depth_ > kCallDepthMax) return absl::InvalidArgumentError("RecursionError: too deep");
  const absl::Cleanup leave = [this] { --depth_; };
  switch (statement.kind) {
    case Statement::kText:
      RETURN_IF_ERROR(heap_.CheckRoom(out_.size() + statement.text.size()));
      heap_.Spend(statement.text.size() / 64);
      out_.Append(statement.text, false);
      return Flow::kNext;
    case Statement::kOutput: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
      RETURN_IF_ERROR(Write(value));
      return Flow::kNext;
    }
    case Statement::kIf:
      return RunIf(statement);
    case Statement::kFor:
      return RunFor(statement);
    case Statement::kSet:
      RETURN_IF_ERROR(RunSet(statement));
      return Flow::kNext;
    case Statement::kSetBlock: {
      ASSIGN_OR_RETURN(const Value value, Captured(statement));
      Assign(statement.names[0], value);
      return Flow::kNext;
    }
    case Statement::kMacro:
      Assign(statement.text, heap_.Macro(&statement));
      return Flow::kNext;
    case Statement::kFilter: {
      ASSIGN_OR_RETURN(const Value value, Captured(statement));
      RETURN_IF_ERROR(Write(value));
      return Flow::kNext;
    }
    case Statement::kScope:
      return RunScope(statement);
    case Statement::kGroup:
      return Run(statement.body);
    case Statement::kBreak:
      return Flow::kBreak;
    case Statement::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::Status Interpreter::Write(const Value& value) {
  ASSIGN_OR_RETURN(const MarkedText text, ToText(heap_, value));
  RETURN_IF_ERROR(heap_.CheckRoom(out_.size() + text.size()));
  out_.Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunIf(const Statement& statement) {
  for (const Statement::Branch& branch : statement.branches) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
    if (Truthy(condition)) return Run(branch.body);
  }
  return Run(statement.otherwise);
}

// The items of a for statement that its condition lets through.
absl::StatusOr<std::vector<Value>> Interpreter::LoopItems(const Statement& statement) {
  ASSIGN_OR_RETURN(const Value over, Evaluate(*statement.expression));
  ASSIGN_OR_RETURN(std::vector<Value> items, Items(heap_, over));
  if (statement.condition == nullptr) return items;
  std::vector<Value> kept;
  for (const Value& item : items) {
    scopes_.emplace_back();
    const absl::Cleanup leave = [this] { scopes_.pop_back(); };
    RETURN_IF_ERROR(Unpack(statement, item));
    ASSIGN_OR_RETURN(const Value condition, Evaluate(*statement.condition));
    if (Truthy(condition)) kept.push_back(item);
  }
  return kept;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunFor(const Statement& statement) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, LoopItems(statement));
  if (items.empty()) return Run(statement.otherwise);
  LoopData loop{&items, 0};
  for (; loop.index < items.size(); ++loop.index) {
    heap_.Spend(1);
    scopes_.emplace_back();
    const absl::Cleanup leave = [this] { scopes_.pop_back(); };
    Assign("loop", heap_.Loop(&loop));
    RETURN_IF_ERROR(Unpack(statement, items[loop.index]));
    ASSIGN_OR_RETURN(const Flow flow, Run(statement.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::StatusOr<Interpreter::Flow> Interpreter::RunScope(const Statement& statement) {
  std::vector<Value> values;
  for (const auto& expression : statement.defaults) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*expression));
    values.push_back(value);
  }
  scopes_.emplace_back();
  const absl::Cleanup leave = [this] { scopes_.pop_back(); };
  for (size_t i = 0; i < values.size(); ++i) Assign(statement.names[i], values[i]);
  return Run(statement.body);
}

absl::Status Interpreter::RunSet(const Statement& statement) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.expression));
  if (statement.text.empty()) return Unpack(statement, value);
  ASSIGN_OR_RETURN(const Value space, Lookup(statement.names[0]));
  if (!space.Is(ValueKind::kNamespace)) {
    return absl::InvalidArgumentError(
        "TemplateRuntimeError: cannot assign attribute on non-namespace object");
  }
  for (auto& [key, old] : space.space->items) {
    if (!key.Is(ValueKind::kString) || key.text->text() != statement.text) continue;
    old = value;
    return absl::OkStatus();
  }
  heap_.Spend(space.space->items.size() / 8);
  space.space->items.emplace_back(heap_.String(statement.text, false), value);
  return absl::OkStatus();
}

absl::Status Interpreter::Unpack(const Statement& statement, const Value& value) {
  if (statement.names.size() == 1) {
    Assign(statement.names[0], value);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::vector<Value> parts, Items(heap_, value));
  if (parts.size() != statement.names.size()) {
    return absl::InvalidArgumentError(absl::StrCat("ValueError: ", parts.size(), " values for ",
                                                   statement.names.size(), " names"));
  }
  for (size_t i = 0; i < parts.size(); ++i) Assign(statement.names[i], parts[i]);
  return absl::OkStatus();
}

absl::StatusOr<Value> Interpreter::Captured(const Statement& statement) {
  MarkedText outer = std::exchange(out_, MarkedText());
  scopes_.emplace_back();
  const absl::StatusOr<Flow> flow = Run(statement.body);
  const Value text = heap_.String(std::exchange(out_, std::move(outer)));
  scopes_.pop_back();
  if (!flow.ok()) return flow.status();
  if (statement.expression == nullptr) return text;
  scopes_.emplace_back();
  const absl::Cleanup leave = [this] { scopes_.pop_back(); };
  Assign(kBodyName, text);
  return Evaluate(*statement.expression);
}

absl::StatusOr<Value> Interpreter::CallMacro(const Statement& macro, const Arguments& arguments) {
  if (arguments.list.size() > macro.names.size()) {
    return TypeError(absl::StrCat("macro '", macro.text, "' takes ", macro.names.size(),
                                  " arguments, ", arguments.list.size(), " given"));
  }
  for (const auto& [name, value] : arguments.named) {
    if (std::find(macro.names.begin(), macro.names.end(), name) == macro.names.end()) {
      return TypeError(absl::StrCat("macro '", macro.text, "' has no argument '", name, "'"));
    }
  }
  scopes_.emplace_back();
  const absl::Cleanup leave = [this] { scopes_.pop_back(); };
  scopes_.back().function = true;
  const size_t required = macro.names.size() - macro.defaults.size();
  for (size_t i = 0; i < macro.names.size(); ++i) {
    Value value = heap_.Undefined(macro.names[i]);
    if (const Value* given = arguments.Get(i, macro.names[i])) {
      value = *given;
    } else if (i >= required) {
      ASSIGN_OR_RETURN(value, Evaluate(*macro.defaults[i - required]));
    }
    Assign(macro.names[i], value);
  }
  MarkedText outer = std::exchange(out_, MarkedText());
  const absl::StatusOr<Flow> flow = Run(macro.body);
  const Value text = heap_.String(std::exchange(out_, std::move(outer)));
  if (!flow.ok()) return flow.status();
  return text;
}

void Interpreter::Assign(const std::string& name, Value value) {
  for (auto& [key, old] : scopes_.back().names) {
    if (key != name) continue;
    old = value;
    return;
  }
  scopes_.back().names.emplace_back(name, value);
}

absl::StatusOr<Value> Interpreter::Lookup(const std::string& name) {
  for (size_t i = scopes_.size(); i > 0;) {
    const Scope& scope = scopes_[--i];
    heap_.Spend(scope.names.size() / 8);
    for (const auto& [key, value] : scope.names) {
      if (key == name) return value;
    }
    if (scope.function) i = 1;  // then only the outermost
  }
  if (HasFunction(*this, name)) return heap_.Function(name);
  return heap_.Undefined(absl::StrCat("'", name, "'"));
}

}  // namespace baton::text
