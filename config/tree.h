// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A YAML document as a plain tree with places, so that nothing behind it knows yaml-cpp.
//
// Refuses what would be ambiguous: duplicate keys (with both places), keys that are not
// scalars, several documents, tags, more than 1 MiB or 10,000 nodes (aliases included).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace baton::config {

struct Tree {
  enum class Kind { kNull, kScalar, kMap, kList } kind = Kind::kNull;
  std::string scalar;
  bool quoted = false;  // a quoted scalar is text, never null
  struct Entry;
  std::vector<Entry> entries;  // of a map, in order; a list's have no key
  std::string place;           // file:line:column, "flag", "environment"

  const Tree* Find(const std::string& key) const;
  Tree* Find(const std::string& key);
};

struct Tree::Entry {
  Entry(std::string key, Tree value) : first(std::move(key)), second(std::move(value)) {}
  std::string first;
  Tree second;
};

absl::StatusOr<Tree> ParseYaml(const std::string& text, const std::string& name);

// Puts a scalar at `path` ("workers.prefill.0.threads"), making maps on the way.  A list is
// replaced by a YAML flow value ("[a, b]").  InvalidArgument if the path runs through a scalar
// or past the end of a list.
absl::Status SetPath(Tree& root, const std::string& path, const std::string& value,
                     const std::string& place);

}  // namespace baton::config
