// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Cuts a Jinja template into tokens, with trim_blocks and lstrip_blocks on, as chat
// templates expect: the newline behind a block tag and the blanks in front of one on its
// line are not text.
//
// Pure; linear.  Errors are InvalidArgument with the line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace baton::text {

struct TemplateToken {
  enum Kind : uint8_t {
    kData,  // text between tags
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // its value
    kInteger,
    kFloat,
    kOperator,
    kEnd,  // of the template
  };
  Kind kind = kEnd;
  std::string text;
  uint32_t line = 1;
};

absl::StatusOr<std::vector<TemplateToken>> LexTemplate(absl::string_view source);

}  // namespace baton::text
