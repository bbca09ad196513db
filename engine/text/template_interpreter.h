// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Runs a parsed chat template once: statements into text, expressions into values, with the
// meaning that Jinja's sandbox gives them.
//
// Bounded in steps, memory and depth by its Heap and by kCallDepthMax; every error is
// InvalidArgument and starts with the name of Python's exception.
//
// Thread: belongs to one rendering.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/text/template_ast.h"
#include "engine/text/template_value.h"

namespace baton::text {

// What a filter, test, method or function is given.
struct Arguments {
  Value self;  // what stands in front of the | or the dot
  std::vector<Value> list;
  std::vector<std::pair<std::string, Value>> named;

  // By place or by name; null if it was not given.
  const Value* Get(size_t place, absl::string_view name) const;
  absl::StatusOr<int64_t> Integer(size_t place, absl::string_view name, int64_t otherwise) const;
  bool Flag(size_t place, absl::string_view name) const;
  // The text of a string that must be given.
  absl::StatusOr<const MarkedText*> Text(size_t place, absl::string_view name) const;
  // As self, for a function that is called with all but the first `count` of these.
  Arguments Behind(const Value& new_self, size_t count) const;
};

class Interpreter {
 public:
  static constexpr uint32_t kCallDepthMax = 400;  // expressions and blocks in one another

  Interpreter(Heap& heap, std::optional<absl::Time> now) : heap_(heap), now_(now) {
    scopes_.emplace_back();
  }

  Heap& heap() { return heap_; }
  std::optional<absl::Time> now() const { return now_; }

  // Defines a variable that the template sees.
  void Define(absl::string_view name, Value value) { Assign(std::string(name), value); }

  // Everything the block writes.  The error has the line in front.
  absl::StatusOr<MarkedText> Render(const Block& block);

  absl::StatusOr<Value> Attribute(const Value& of, absl::string_view name);
  absl::StatusOr<Value> Item(const Value& of, const Value& key);

 private:
  struct Scope {
    bool function = false;  // sees only itself and the outermost scope
    std::vector<std::pair<std::string, Value>> names;
  };
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements.
  absl::StatusOr<Flow> Run(const Block& block);
  absl::StatusOr<Flow> Run(const Statement& statement);
  absl::StatusOr<Flow> RunIf(const Statement& statement);
  absl::StatusOr<Flow> RunFor(const Statement& statement);
  absl::StatusOr<std::vector<Value>> LoopItems(const Statement& statement);
  absl::StatusOr<Flow> RunScope(const Statement& statement);
  absl::Status RunSet(const Statement& statement);
  // Assigns `value` to the names of a for or set; several names take a list apart.
  absl::Status Unpack(const Statement& statement, const Value& value);
  // What the block writes, as a string, through the filters of the statement.
  absl::StatusOr<Value> Captured(const Statement& statement);
  absl::Status Write(const Value& value);

  // Expressions.
  absl::StatusOr<Value> Evaluate(const Expression& expression);
  absl::StatusOr<Value> EvaluateKind(const Expression& expression);
  absl::StatusOr<std::vector<Value>> EvaluateAll(const Expression& expression, size_t from);
  absl::StatusOr<Value> EvaluateDict(const Expression& expression);
  absl::StatusOr<Value> EvaluateSlice(const Expression& expression);
  absl::StatusOr<Value> EvaluateCall(const Expression& expression);
  absl::StatusOr<Value> EvaluateFilter(const Expression& expression);
  absl::StatusOr<Value> EvaluateTest(const Expression& expression);
  absl::StatusOr<Value> EvaluateBinary(const Expression& expression);
  absl::StatusOr<Value> EvaluateCompare(const Expression& expression);
  absl::StatusOr<Value> EvaluateSign(const Expression& expression);
  absl::StatusOr<Arguments> EvaluateArguments(const Expression& expression);
  absl::StatusOr<bool> Relation(const std::string& relation, const Value& a, const Value& b);
  absl::StatusOr<Value> Lookup(const std::string& name);
  absl::StatusOr<Value> CallMacro(const Statement& macro, const Arguments& arguments);

  void Assign(const std::string& name, Value value);

  Heap& heap_;
  const std::optional<absl::Time> now_;
  std::vector<Scope> scopes_;
  MarkedText out_;
  uint32_t depth_ = 0;
  uint32_t line_ = 1;  // of the statement that runs
};

// The interpreter's vocabulary; TypeError and the like, or "TemplateAssertionError: no … named".
absl::StatusOr<Value> ApplyFilter(Interpreter& in, absl::string_view name, const Arguments& args);
absl::StatusOr<bool> ApplyTest(Interpreter& in, absl::string_view name, const Arguments& args);
bool HasMethod(const Value& value, absl::string_view name);
absl::StatusOr<Value> CallMethod(Interpreter& in, absl::string_view name, const Arguments& args);
bool HasFunction(const Interpreter& in, absl::string_view name);
absl::StatusOr<Value> CallFunction(Interpreter& in, absl::string_view name, const Arguments& args);
// `item` in `container`, as Python decides.
absl::StatusOr<bool> Contains(Heap& heap, const Value& container, const Value& item);
// a OP b for + - * / // % ** ~.
absl::StatusOr<Value> Calculate(Heap& heap, absl::string_view operation, const Value& a,
                                const Value& b);

}  // namespace baton::text
