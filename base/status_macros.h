// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// RETURN_IF_ERROR and ASSIGN_OR_RETURN pass an error on; Annotate adds where it happened.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton {

// The same code with "context: " in front of the message; OK stays OK.
inline absl::Status Annotate(const absl::Status& status, absl::string_view context) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(context, ": ", status.message()));
}

}  // namespace baton

#define RETURN_IF_ERROR(expression)                           \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define BATON_CONCAT_INNER(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_INNER(a, b)
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_IMPL(BATON_CONCAT(status_or_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                             \
  if (!result.ok()) return std::move(result).status();    \
  target = std::move(*result)
