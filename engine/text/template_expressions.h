// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Expressions of the template language, by recursive descent with bounded depth.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/text/template_ast.h"
#include "engine/text/template_lexer.h"

namespace baton::text {

// The tokens of a template, read once from front to end.
class TokenReader {
 public:
  // REQUIRES: the last token is kEnd.
  explicit TokenReader(std::vector<TemplateToken> tokens) : tokens_(std::move(tokens)) {}

  const TemplateToken& Peek() const { return tokens_[at_]; }
  const TemplateToken& Take() {
    const TemplateToken& token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool Is(TemplateToken::Kind kind) const { return Peek().kind == kind; }
  bool IsName(absl::string_view name) const {
    return Is(TemplateToken::kName) && Peek().text == name;
  }
  bool IsOperator(absl::string_view text) const {
    return Is(TemplateToken::kOperator) && Peek().text == text;
  }
  bool TakeName(absl::string_view name) { return IsName(name) && (Take(), true); }
  bool TakeOperator(absl::string_view text) { return IsOperator(text) && (Take(), true); }
  absl::Status Expect(TemplateToken::Kind kind) {
    if (!Is(kind)) return Error(absl::StrCat("an unexpected '", Peek().text, "'"));
    Take();
    return absl::OkStatus();
  }
  uint32_t line() const { return Peek().line; }
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("line ", line(), ": TemplateSyntaxError: ", what));
  }

 private:
  const std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
};

class ExpressionParser {
 public:
  using Ptr = std::unique_ptr<Expression>;

  explicit ExpressionParser(TokenReader& tokens) : tokens_(tokens) {}

  absl::StatusOr<Ptr> One();                    // with `a if b else c`
  absl::StatusOr<Ptr> Tuple();                  // one, or several with commas
  absl::StatusOr<Ptr> TupleWithoutCondition();  // for … in THIS if …
  absl::StatusOr<Ptr> FiltersOfBody();          // [|] a | b(c): applied to kBodyName

 private:
  absl::StatusOr<Ptr> TupleOf(bool with_condition);
  absl::StatusOr<Ptr> Or();
  absl::StatusOr<Ptr> And();
  absl::StatusOr<Ptr> Not();
  absl::StatusOr<Ptr> Compare();
  absl::StatusOr<Ptr> Sum();
  absl::StatusOr<Ptr> Concat();
  absl::StatusOr<Ptr> Product();
  absl::StatusOr<Ptr> Power();
  absl::StatusOr<Ptr> Unary(bool with_filters);
  absl::StatusOr<Ptr> Primary();
  absl::StatusOr<Ptr> Bracket();
  absl::StatusOr<Ptr> Dict();
  absl::StatusOr<Ptr> Postfix(Ptr of);
  absl::StatusOr<Ptr> Subscript(Ptr of);
  absl::StatusOr<Ptr> FiltersAndTests(Ptr of);
  absl::StatusOr<Ptr> Filter(Ptr of);
  absl::StatusOr<Ptr> Test(Ptr of);
  absl::Status Arguments(Expression& call);
  // a OP b OP c, to the left; `next` parses an operand.
  absl::StatusOr<Ptr> Chain(const std::vector<absl::string_view>& operators,
                            absl::StatusOr<Ptr> (ExpressionParser::*next)());

  // A node whose depth is that of its operands plus one; an error if that is too deep.
  absl::StatusOr<Ptr> Finish(Ptr node) const;
  static Ptr New(Expression::Kind kind, std::string text = "");
  static Ptr New(Expression::Kind kind, std::string text, Ptr operand);

  TokenReader& tokens_;
  uint32_t depth_ = 0;  // of brackets and operators around the current token
};

}  // namespace baton::text
