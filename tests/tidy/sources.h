// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The tracked files of the tree, as the tidy tests read them.
#pragma once

#include <string>
#include <vector>

namespace baton::tidy {

struct Source {
  std::string path;                // relative to the root
  std::vector<std::string> lines;  // without line ends
  std::string folder() const { return path.substr(0, path.find('/')); }
  bool EndsIn(const std::string& suffix) const;
  bool IsCode() const { return EndsIn(".h") || EndsIn(".cc") || EndsIn(".inc"); }
  bool In(const std::string& prefix) const { return path.rfind(prefix, 0) == 0; }
};

// What `git ls-files` lists (tracked, and new files that are not ignored).
const std::vector<Source>& Sources();

// "path:line: what", for messages.
std::string At(const Source& source, size_t line, const std::string& what);

// The line without comments and without the contents of string literals.
std::string Code(const std::string& line);

}  // namespace baton::tidy
