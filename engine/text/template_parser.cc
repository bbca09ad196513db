// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Statements of the template language.  Expressions are template_expressions.cc's.
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/text/template_ast.h"
#include "engine/text/template_expressions.h"
#include "engine/text/template_lexer.h"

namespace baton::text {
namespace {

constexpr uint32_t kBlockDepthMax = 64;

using Token = TemplateToken;
using StatementPtr = std::unique_ptr<Statement>;

class Parser {
 public:
  explicit Parser(TokenReader& tokens) : tokens_(tokens), expressions_(tokens) {}

  absl::StatusOr<Block> Run() {
    std::string end;
    ASSIGN_OR_RETURN(Block block, Body({}, end));
    return block;
  }

 private:
  // Statements up to a block tag named in `ends`, whose name is read and put into `end`;
  // up to the end of the template if there are none.
  absl::StatusOr<Block> Body(const std::vector<absl::string_view>& ends, std::string& end) {
    if (++depth_ > kBlockDepthMax) return tokens_.Error("blocks are nested too deeply");
    Block block;
    while (!tokens_.Is(Token::kEnd)) {
      if (tokens_.Is(Token::kData)) {
        block.push_back(New(Statement::kText));
        block.back()->text = tokens_.Take().text;
      } else if (tokens_.Is(Token::kOutputBegin)) {
        tokens_.Take();
        block.push_back(New(Statement::kOutput));
        ASSIGN_OR_RETURN(block.back()->expression, expressions_.Tuple());
        RETURN_IF_ERROR(tokens_.Expect(Token::kOutputEnd));
      } else {
        RETURN_IF_ERROR(tokens_.Expect(Token::kBlockBegin));
        if (!tokens_.Is(Token::kName)) return tokens_.Error("a block tag without a name");
        end = tokens_.Take().text;
        for (const absl::string_view name : ends) {
          if (name != end) continue;
          --depth_;
          return block;
        }
        ASSIGN_OR_RETURN(StatementPtr statement, Tag(end));
        block.push_back(std::move(statement));
      }
    }
    if (!ends.empty()) return tokens_.Error(absl::StrCat("'", ends.back(), "' is missing"));
    --depth_;
    return block;
  }

  StatementPtr New(Statement::Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = tokens_.line();
    return statement;
  }
  absl::Status EndTag() { return tokens_.Expect(Token::kBlockEnd); }

  absl::StatusOr<StatementPtr> Tag(const std::string& name) {
    if (name == "if") return If();
    if (name == "for") return For();
    if (name == "set") return Set();
    if (name == "macro") return Macro();
    if (name == "filter") return Filter();
    if (name == "with") return With();
    if (name == "generation") return Generation();
    if (name == "break" || name == "continue") return Jump(name);
    return tokens_.Error(absl::StrCat("tag '", name, "' is not known"));
  }

  absl::StatusOr<StatementPtr> If() {
    StatementPtr statement = New(Statement::kIf);
    std::string end = "elif";
    while (end == "elif") {
      Statement::Branch branch;
      ASSIGN_OR_RETURN(branch.condition, expressions_.Tuple());
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(branch.body, Body({"elif", "else", "endif"}, end));
      statement->branches.push_back(std::move(branch));
    }
    RETURN_IF_ERROR(EndTag());
    if (end == "else") {
      ASSIGN_OR_RETURN(statement->otherwise, Body({"endif"}, end));
      RETURN_IF_ERROR(EndTag());
    }
    return statement;
  }

  absl::StatusOr<StatementPtr> For() {
    StatementPtr statement = New(Statement::kFor);
    RETURN_IF_ERROR(Names(*statement));
    if (!tokens_.TakeName("in")) return tokens_.Error("'in' is missing");
    ASSIGN_OR_RETURN(statement->expression, expressions_.TupleWithoutCondition());
    if (tokens_.TakeName("if")) {
      ASSIGN_OR_RETURN(statement->condition, expressions_.One());
    }
    if (tokens_.TakeName("recursive")) return tokens_.Error("recursive loops are not supported");
    RETURN_IF_ERROR(EndTag());
    std::string end;
    ++loops_;
    ASSIGN_OR_RETURN(statement->body, Body({"else", "endfor"}, end));
    --loops_;
    RETURN_IF_ERROR(EndTag());
    if (end == "else") {
      ASSIGN_OR_RETURN(statement->otherwise, Body({"endfor"}, end));
      RETURN_IF_ERROR(EndTag());
    }
    return statement;
  }

  // NAME | NAME, NAME… | (NAME, NAME…)
  absl::Status Names(Statement& statement) {
    const bool bracket = tokens_.TakeOperator("(");
    do {
      if (!tokens_.Is(Token::kName)) return tokens_.Error("a name is missing");
      statement.names.push_back(tokens_.Take().text);
    } while (tokens_.TakeOperator(","));
    if (bracket && !tokens_.TakeOperator(")")) return tokens_.Error("')' is missing");
    return absl::OkStatus();
  }

  absl::StatusOr<StatementPtr> Set() {
    StatementPtr statement = New(Statement::kSet);
    RETURN_IF_ERROR(Names(*statement));
    if (statement->names.size() == 1 && tokens_.TakeOperator(".")) {
      if (!tokens_.Is(Token::kName)) return tokens_.Error("a name is missing");
      statement->text = tokens_.Take().text;
    }
    if (tokens_.TakeOperator("=")) {
      ASSIGN_OR_RETURN(statement->expression, expressions_.Tuple());
      RETURN_IF_ERROR(EndTag());
      return statement;
    }
    if (statement->names.size() != 1 || !statement->text.empty()) {
      return tokens_.Error("'=' is missing");
    }
    statement->kind = Statement::kSetBlock;
    if (tokens_.IsOperator("|")) {
      ASSIGN_OR_RETURN(statement->expression, expressions_.FiltersOfBody());
    }
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(BodyUntil("endset", *statement));
    return statement;
  }

  absl::Status BodyUntil(absl::string_view name, Statement& statement) {
    std::string end;
    ASSIGN_OR_RETURN(statement.body, Body({name}, end));
    return EndTag();
  }

  absl::StatusOr<StatementPtr> Macro() {
    StatementPtr statement = New(Statement::kMacro);
    if (!tokens_.Is(Token::kName)) return tokens_.Error("a macro without a name");
    statement->text = tokens_.Take().text;
    if (!tokens_.TakeOperator("(")) return tokens_.Error("'(' is missing");
    while (!tokens_.TakeOperator(")")) {
      if (!statement->names.empty() && !tokens_.TakeOperator(",")) {
        return tokens_.Error("',' is missing");
      }
      if (!tokens_.Is(Token::kName)) return tokens_.Error("a name is missing");
      statement->names.push_back(tokens_.Take().text);
      if (tokens_.TakeOperator("=")) {
        ASSIGN_OR_RETURN(auto value, expressions_.One());
        statement->defaults.push_back(std::move(value));
      } else if (!statement->defaults.empty()) {
        return tokens_.Error("a parameter without a default behind one with it");
      }
    }
    RETURN_IF_ERROR(EndTag());
    const uint32_t loops = std::exchange(loops_, 0);
    RETURN_IF_ERROR(BodyUntil("endmacro", *statement));
    loops_ = loops;
    return statement;
  }

  absl::StatusOr<StatementPtr> Filter() {
    StatementPtr statement = New(Statement::kFilter);
    ASSIGN_OR_RETURN(statement->expression, expressions_.FiltersOfBody());
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(BodyUntil("endfilter", *statement));
    return statement;
  }

  absl::StatusOr<StatementPtr> With() {
    StatementPtr statement = New(Statement::kScope);
    while (!tokens_.Is(Token::kBlockEnd)) {
      if (!statement->names.empty() && !tokens_.TakeOperator(",")) {
        return tokens_.Error("',' is missing");
      }
      if (!tokens_.Is(Token::kName)) return tokens_.Error("a name is missing");
      statement->names.push_back(tokens_.Take().text);
      if (!tokens_.TakeOperator("=")) return tokens_.Error("'=' is missing");
      ASSIGN_OR_RETURN(auto value, expressions_.One());
      statement->defaults.push_back(std::move(value));
    }
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(BodyUntil("endwith", *statement));
    return statement;
  }

  // {% generation %} marks what a model said, for training; the text is what is inside.
  absl::StatusOr<StatementPtr> Generation() {
    StatementPtr statement = New(Statement::kGroup);
    RETURN_IF_ERROR(EndTag());
    RETURN_IF_ERROR(BodyUntil("endgeneration", *statement));
    return statement;
  }

  absl::StatusOr<StatementPtr> Jump(const std::string& name) {
    if (loops_ == 0) return tokens_.Error(absl::StrCat("'", name, "' outside a loop"));
    StatementPtr statement = New(name == "break" ? Statement::kBreak : Statement::kContinue);
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  TokenReader& tokens_;
  ExpressionParser expressions_;
  uint32_t depth_ = 0;
  uint32_t loops_ = 0;  // around the current statement
};

}  // namespace

absl::StatusOr<Block> ParseTemplate(absl::string_view source) {
  ASSIGN_OR_RETURN(std::vector<TemplateToken> tokens, LexTemplate(source));
  TokenReader reader(std::move(tokens));
  return Parser(reader).Run();
}

}  // namespace baton::text
