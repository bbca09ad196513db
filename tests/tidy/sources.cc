// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "tests/tidy/sources.h"

#include <cstdio>
#include <fstream>

#include "base/ensure.h"

namespace baton::tidy {
namespace {

std::vector<Source> Read() {
  const std::string root = BATON_SOURCE_DIR;
  const std::string command =
      "git -C '" + root + "' ls-files --cached --others --exclude-standard 2>/dev/null";
  std::FILE* pipe = popen(command.c_str(), "r");
  ENSURE(pipe != nullptr);
  std::vector<Source> sources;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) {
    Source source;
    source.path = buffer;
    while (!source.path.empty() && source.path.back() == '\n') source.path.pop_back();
    std::ifstream file(root + "/" + source.path);
    if (!file) continue;  // deleted in the work tree
    for (std::string line; std::getline(file, line);) source.lines.push_back(line);
    sources.push_back(std::move(source));
  }
  pclose(pipe);
  return sources;
}

}  // namespace

bool Source::EndsIn(const std::string& suffix) const {
  return path.size() >= suffix.size() &&
         path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0;
}

const std::vector<Source>& Sources() {
  static const std::vector<Source> sources = Read();
  return sources;
}

std::string At(const Source& source, size_t line, const std::string& what) {
  return source.path + ":" + std::to_string(line + 1) + ": " + what;
}

std::string Code(const std::string& line) {
  std::string out;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == '\\') {
        ++i;
      } else if (line[i] == quote) {
        quote = 0;
        out += line[i];
      }
      continue;
    }
    if (line.compare(i, 2, "//") == 0) break;
    const bool digit_separator = line[i] == '\'' && i > 0 && std::isdigit(line[i - 1]) != 0;
    if (line[i] == '"' || (line[i] == '\'' && !digit_separator)) quote = line[i];
    out += line[i];
  }
  return out;
}

}  // namespace baton::tidy
