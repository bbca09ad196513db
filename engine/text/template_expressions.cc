// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/template_expressions.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "base/status_macros.h"

namespace baton::text {
namespace {

using Token = TemplateToken;

constexpr uint32_t kNestingMax = 80;  // brackets in brackets

}  // namespace

using Ptr = ExpressionParser::Ptr;

Ptr ExpressionParser::New(Expression::Kind kind, std::string text) {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->text = std::move(text);
  return node;
}

Ptr ExpressionParser::New(Expression::Kind kind, std::string text, Ptr operand) {
  Ptr node = New(kind, std::move(text));
  node->operands.push_back(std::move(operand));
  return node;
}

absl::StatusOr<Ptr> ExpressionParser::Finish(Ptr node) const {
  uint32_t deepest = 0;
  for (const Ptr& operand : node->operands) {
    if (operand != nullptr) deepest = std::max(deepest, operand->depth);
  }
  for (const auto& [name, value] : node->named) deepest = std::max(deepest, value->depth);
  node->depth = deepest + 1;
  if (node->depth > kTemplateDepthMax) return tokens_.Error("an expression is too deep");
  return node;
}

absl::StatusOr<Ptr> ExpressionParser::One() {
  if (++depth_ > kNestingMax) return tokens_.Error("brackets are nested too deeply");
  const absl::Cleanup leave = [this] { --depth_; };
  ASSIGN_OR_RETURN(Ptr value, Or());
  while (tokens_.TakeName("if")) {
    Ptr node = New(Expression::kCondition, "", std::move(value));
    ASSIGN_OR_RETURN(Ptr condition, Or());
    node->operands.push_back(std::move(condition));
    Ptr otherwise;
    if (tokens_.TakeName("else")) {
      ASSIGN_OR_RETURN(otherwise, One());
    }
    node->operands.push_back(std::move(otherwise));
    ASSIGN_OR_RETURN(value, Finish(std::move(node)));
  }
  return value;
}

absl::StatusOr<Ptr> ExpressionParser::Tuple() { return TupleOf(true); }
absl::StatusOr<Ptr> ExpressionParser::TupleWithoutCondition() { return TupleOf(false); }

absl::StatusOr<Ptr> ExpressionParser::TupleOf(bool with_condition) {
  ASSIGN_OR_RETURN(Ptr first, with_condition ? One() : Or());
  if (!tokens_.IsOperator(",")) return first;
  Ptr tuple = New(Expression::kTuple, "", std::move(first));
  while (tokens_.TakeOperator(",")) {
    const bool ends =
        tokens_.IsOperator(")") || tokens_.Is(Token::kOutputEnd) || tokens_.Is(Token::kBlockEnd);
    if (ends) break;
    ASSIGN_OR_RETURN(Ptr next, with_condition ? One() : Or());
    tuple->operands.push_back(std::move(next));
  }
  return Finish(std::move(tuple));
}

absl::StatusOr<Ptr> ExpressionParser::FiltersOfBody() {
  Ptr value = New(Expression::kName, kBodyName);
  tokens_.TakeOperator("|");
  ASSIGN_OR_RETURN(value, Filter(std::move(value)));
  return FiltersAndTests(std::move(value));
}

absl::StatusOr<Ptr> ExpressionParser::Or() {
  ASSIGN_OR_RETURN(Ptr left, And());
  while (tokens_.TakeName("or")) {
    Ptr node = New(Expression::kOr, "", std::move(left));
    ASSIGN_OR_RETURN(Ptr right, And());
    node->operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<Ptr> ExpressionParser::And() {
  ASSIGN_OR_RETURN(Ptr left, Not());
  while (tokens_.TakeName("and")) {
    Ptr node = New(Expression::kAnd, "", std::move(left));
    ASSIGN_OR_RETURN(Ptr right, Not());
    node->operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<Ptr> ExpressionParser::Not() {
  if (!tokens_.TakeName("not")) return Compare();
  if (++depth_ > kNestingMax) return tokens_.Error("operators are nested too deeply");
  const absl::Cleanup leave = [this] { --depth_; };
  ASSIGN_OR_RETURN(Ptr operand, Not());
  return Finish(New(Expression::kNot, "", std::move(operand)));
}

absl::StatusOr<Ptr> ExpressionParser::Compare() {
  ASSIGN_OR_RETURN(Ptr left, Sum());
  Ptr node = New(Expression::kCompare, "", std::move(left));
  while (true) {
    std::string relation;
    for (const absl::string_view text : {"==", "!=", "<", "<=", ">", ">="}) {
      if (tokens_.TakeOperator(text)) {
        relation = std::string(text);
        break;
      }
    }
    if (relation.empty() && tokens_.TakeName("in")) relation = "in";
    if (relation.empty() && tokens_.TakeName("not")) {
      if (!tokens_.TakeName("in")) return tokens_.Error("'in' is missing behind 'not'");
      relation = "not in";
    }
    if (relation.empty()) break;
    node->texts.push_back(relation);
    ASSIGN_OR_RETURN(Ptr right, Sum());
    node->operands.push_back(std::move(right));
  }
  if (node->texts.empty()) return std::move(node->operands[0]);
  return Finish(std::move(node));
}

absl::StatusOr<Ptr> ExpressionParser::Chain(const std::vector<absl::string_view>& operators,
                                            absl::StatusOr<Ptr> (ExpressionParser::*next)()) {
  ASSIGN_OR_RETURN(Ptr left, (this->*next)());
  while (tokens_.Is(Token::kOperator) &&
         std::find(operators.begin(), operators.end(), tokens_.Peek().text) != operators.end()) {
    const std::string text = tokens_.Take().text;
    Ptr node = New(Expression::kBinary, text, std::move(left));
    ASSIGN_OR_RETURN(Ptr right, (this->*next)());
    node->operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<Ptr> ExpressionParser::Sum() { return Chain({"+", "-"}, &ExpressionParser::Concat); }
absl::StatusOr<Ptr> ExpressionParser::Concat() { return Chain({"~"}, &ExpressionParser::Product); }
absl::StatusOr<Ptr> ExpressionParser::Product() {
  return Chain({"*", "/", "//", "%"}, &ExpressionParser::Power);
}

absl::StatusOr<Ptr> ExpressionParser::Power() {
  ASSIGN_OR_RETURN(Ptr left, Unary(true));
  while (tokens_.TakeOperator("**")) {
    Ptr node = New(Expression::kBinary, "**", std::move(left));
    ASSIGN_OR_RETURN(Ptr right, Unary(true));
    node->operands.push_back(std::move(right));
    ASSIGN_OR_RETURN(left, Finish(std::move(node)));
  }
  return left;
}

absl::StatusOr<Ptr> ExpressionParser::Unary(bool with_filters) {
  if (++depth_ > kNestingMax) return tokens_.Error("operators are nested too deeply");
  const absl::Cleanup leave = [this] { --depth_; };
  Ptr value;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const bool negative = tokens_.Take().text == "-";
    ASSIGN_OR_RETURN(Ptr operand, Unary(false));
    ASSIGN_OR_RETURN(value, Finish(New(negative ? Expression::kNegative : Expression::kPositive, "",
                                       std::move(operand))));
  } else {
    ASSIGN_OR_RETURN(Ptr primary, Primary());
    ASSIGN_OR_RETURN(value, Postfix(std::move(primary)));
  }
  if (!with_filters) return value;
  return FiltersAndTests(std::move(value));
}

absl::StatusOr<Ptr> ExpressionParser::Primary() {
  if (tokens_.IsOperator("(") || tokens_.IsOperator("[")) return Bracket();
  if (tokens_.TakeOperator("{")) return Dict();
  if (tokens_.Is(Token::kString)) {
    Ptr node = New(Expression::kString);
    while (tokens_.Is(Token::kString)) node->text += tokens_.Take().text;  // 'a' 'b' is 'ab'
    return node;
  }
  if (tokens_.Is(Token::kInteger)) {
    Ptr node = New(Expression::kInteger);
    if (!absl::SimpleAtoi(tokens_.Peek().text, &node->integer)) {
      return tokens_.Error("a number is too large");
    }
    tokens_.Take();
    return node;
  }
  if (tokens_.Is(Token::kFloat)) {
    Ptr node = New(Expression::kFloat);
    if (!absl::SimpleAtod(tokens_.Peek().text, &node->number)) {
      return tokens_.Error("a number is not one");
    }
    tokens_.Take();
    return node;
  }
  if (!tokens_.Is(Token::kName)) {
    return tokens_.Error(absl::StrCat("an unexpected '", tokens_.Peek().text, "'"));
  }
  const std::string name = tokens_.Take().text;
  if (name == "true" || name == "True") return New(Expression::kTrue);
  if (name == "false" || name == "False") return New(Expression::kFalse);
  if (name == "none" || name == "None") return New(Expression::kNone);
  return New(Expression::kName, name);
}

// ( … ) or [ … ]
absl::StatusOr<Ptr> ExpressionParser::Bracket() {
  const bool list = tokens_.Take().text == "[";
  const absl::string_view close = list ? "]" : ")";
  Ptr node = New(list ? Expression::kList : Expression::kTuple);
  bool comma = false;
  while (!tokens_.TakeOperator(close)) {
    if (!node->operands.empty()) {
      if (!tokens_.TakeOperator(",")) return tokens_.Error("',' is missing");
      comma = true;
      if (tokens_.TakeOperator(close)) break;
    }
    ASSIGN_OR_RETURN(Ptr item, One());
    node->operands.push_back(std::move(item));
  }
  const bool grouping = !list && !comma && node->operands.size() == 1;
  if (grouping) return std::move(node->operands[0]);
  return Finish(std::move(node));
}

absl::StatusOr<Ptr> ExpressionParser::Dict() {
  Ptr node = New(Expression::kDict);
  while (!tokens_.TakeOperator("}")) {
    if (!node->operands.empty()) {
      if (!tokens_.TakeOperator(",")) return tokens_.Error("',' is missing");
      if (tokens_.TakeOperator("}")) break;
    }
    ASSIGN_OR_RETURN(Ptr key, One());
    if (!tokens_.TakeOperator(":")) return tokens_.Error("':' is missing");
    ASSIGN_OR_RETURN(Ptr value, One());
    node->operands.push_back(std::move(key));
    node->operands.push_back(std::move(value));
  }
  return Finish(std::move(node));
}

absl::StatusOr<Ptr> ExpressionParser::Postfix(Ptr of) {
  while (true) {
    if (tokens_.TakeOperator(".")) {
      if (tokens_.Is(Token::kName)) {
        of = New(Expression::kAttribute, tokens_.Take().text, std::move(of));
      } else if (tokens_.Is(Token::kInteger)) {
        Ptr node = New(Expression::kItem, "", std::move(of));
        ASSIGN_OR_RETURN(Ptr index, Primary());
        node->operands.push_back(std::move(index));
        of = std::move(node);
      } else {
        return tokens_.Error("a name is missing behind '.'");
      }
    } else if (tokens_.TakeOperator("[")) {
      ASSIGN_OR_RETURN(of, Subscript(std::move(of)));
    } else if (tokens_.TakeOperator("(")) {
      of = New(Expression::kCall, "", std::move(of));
      RETURN_IF_ERROR(Arguments(*of));
    } else {
      return of;
    }
    ASSIGN_OR_RETURN(of, Finish(std::move(of)));
  }
}

// [a], [a:b], [a:b:c] with any of them left out; the bracket is read.
absl::StatusOr<Ptr> ExpressionParser::Subscript(Ptr of) {
  Ptr parts[3];
  size_t colons = 0;
  while (!tokens_.TakeOperator("]")) {
    if (tokens_.TakeOperator(":")) {
      if (++colons == 3) return tokens_.Error("a slice has three parts");
      continue;
    }
    if (parts[colons] != nullptr) return tokens_.Error("']' is missing");
    ASSIGN_OR_RETURN(parts[colons], One());
  }
  if (colons == 0 && parts[0] == nullptr) return tokens_.Error("an index is missing");
  Ptr node = New(colons == 0 ? Expression::kItem : Expression::kSlice, "", std::move(of));
  const size_t count = colons == 0 ? 1 : 3;
  for (size_t i = 0; i < count; ++i) node->operands.push_back(std::move(parts[i]));
  return node;
}

// a, b, name=c ) behind the bracket.
absl::Status ExpressionParser::Arguments(Expression& call) {
  bool first = true;
  while (!tokens_.TakeOperator(")")) {
    if (!first) {
      if (!tokens_.TakeOperator(",")) return tokens_.Error("',' is missing");
      if (tokens_.TakeOperator(")")) break;
    }
    first = false;
    ASSIGN_OR_RETURN(Ptr value, One());
    if (value->kind == Expression::kName && tokens_.TakeOperator("=")) {
      std::string name = value->text;
      ASSIGN_OR_RETURN(value, One());
      call.named.emplace_back(std::move(name), std::move(value));
    } else if (!call.named.empty()) {
      return tokens_.Error("an argument without a name behind one with a name");
    } else {
      call.operands.push_back(std::move(value));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Ptr> ExpressionParser::FiltersAndTests(Ptr of) {
  while (true) {
    if (tokens_.TakeOperator("|")) {
      ASSIGN_OR_RETURN(of, Filter(std::move(of)));
    } else if (tokens_.TakeName("is")) {
      ASSIGN_OR_RETURN(of, Test(std::move(of)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(of, Postfix(std::move(of)));
    } else {
      return of;
    }
  }
}

absl::StatusOr<Ptr> ExpressionParser::Filter(Ptr of) {
  if (!tokens_.Is(Token::kName)) return tokens_.Error("a filter's name is missing");
  Ptr node = New(Expression::kFilter, tokens_.Take().text, std::move(of));
  if (tokens_.TakeOperator("(")) RETURN_IF_ERROR(Arguments(*node));
  return Finish(std::move(node));
}

absl::StatusOr<Ptr> ExpressionParser::Test(Ptr of) {
  const bool negated = tokens_.TakeName("not");
  if (!tokens_.Is(Token::kName)) return tokens_.Error("a test's name is missing");
  Ptr node = New(Expression::kTest, tokens_.Take().text, std::move(of));
  const auto keyword = [this] {
    return tokens_.IsName("else") || tokens_.IsName("or") || tokens_.IsName("and") ||
           tokens_.IsName("is") || tokens_.IsName("if") || tokens_.IsName("in") ||
           tokens_.IsName("not");
  };
  const bool operand = tokens_.Is(Token::kString) || tokens_.Is(Token::kInteger) ||
                       tokens_.Is(Token::kFloat) || tokens_.IsOperator("[") ||
                       tokens_.IsOperator("{") || (tokens_.Is(Token::kName) && !keyword());
  if (tokens_.TakeOperator("(")) {
    RETURN_IF_ERROR(Arguments(*node));
  } else if (operand) {  // x is divisibleby 3
    ASSIGN_OR_RETURN(Ptr primary, Primary());
    ASSIGN_OR_RETURN(Ptr argument, Postfix(std::move(primary)));
    node->operands.push_back(std::move(argument));
  }
  ASSIGN_OR_RETURN(node, Finish(std::move(node)));
  if (!negated) return node;
  return Finish(New(Expression::kNot, "", std::move(node)));
}

}  // namespace baton::text
