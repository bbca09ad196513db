// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A parsed chat template: expressions and statements as plain trees.
//
// A tree is at most kTemplateDepthMax nodes deep, so that walking it by recursion is safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::text {

inline constexpr uint32_t kTemplateDepthMax = 200;

struct Expression {
  enum Kind : uint8_t {
    kNone,
    kTrue,
    kFalse,
    kInteger,    // integer
    kFloat,      // number
    kString,     // text
    kName,       // text
    kList,       // operands
    kTuple,      // operands
    kDict,       // operands: key, value, key, value…
    kAttribute,  // operands[0] . text
    kItem,       // operands[0] [ operands[1] ]
    kSlice,      // operands[0] [ operands[1] : operands[2] : operands[3] ]; null: left out
    kCall,       // operands[0] ( operands[1…], named )
    kFilter,     // operands[0] | text ( operands[1…], named )
    kTest,       // operands[0] is text ( operands[1…], named )
    kNot,
    kNegative,
    kPositive,
    kBinary,  // text is the operator: + - * / // % ** ~
    kAnd,
    kOr,
    kCompare,    // operands[0] texts[0] operands[1] texts[1] operands[2]…: a < b < c
    kCondition,  // operands[0] if operands[1] else operands[2] (null: left out)
  };
  Kind kind = kNone;
  uint32_t depth = 1;  // of the tree below and with it
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<std::string> texts;
  std::vector<std::unique_ptr<Expression>> operands;
  std::vector<std::pair<std::string, std::unique_ptr<Expression>>> named;
};

struct Statement {
  enum Kind : uint8_t {
    kText,      // text
    kOutput,    // expression
    kIf,        // branches, otherwise
    kFor,       // names in expression [if condition]: body, otherwise
    kSet,       // names, or names[0].text of a namespace, = expression
    kSetBlock,  // names[0] = body, through the filters in expression if there is one
    kMacro,     // text(names, defaults): body
    kFilter,    // body through the filters in expression
    kScope,     // {% with names = defaults %}: body
    kGroup,     // body, in no scope of its own
    kBreak,
    kContinue,
  };
  struct Branch {
    std::unique_ptr<Expression> condition;
    std::vector<std::unique_ptr<Statement>> body;
  };
  Kind kind = kText;
  uint32_t line = 1;
  std::string text;
  std::vector<std::string> names;
  std::vector<std::unique_ptr<Expression>> defaults;  // of the last names
  std::unique_ptr<Expression> expression;
  std::unique_ptr<Expression> condition;
  std::vector<Branch> branches;
  std::vector<std::unique_ptr<Statement>> body;
  std::vector<std::unique_ptr<Statement>> otherwise;
};

// In the expression of kSetBlock and kFilter the filtered text is this name's.
inline constexpr char kBodyName[] = "the block's text";

using Block = std::vector<std::unique_ptr<Statement>>;

// InvalidArgument: "line N: TemplateSyntaxError: …".
absl::StatusOr<Block> ParseTemplate(absl::string_view source);

}  // namespace baton::text
