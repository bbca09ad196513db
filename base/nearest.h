// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The known word nearest to a mistyped one, for "did you mean …?".
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace baton {

// Edit distance (insert, delete, replace, each 1).  O(a·b).
size_t EditDistance(absl::string_view a, absl::string_view b);

// The nearest of `known` within a third of the word's length (at least 2), or "".
std::string Nearest(absl::string_view word, const std::vector<std::string>& known);

}  // namespace baton
