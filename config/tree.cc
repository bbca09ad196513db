// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "config/tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace baton::config {
namespace {

constexpr size_t kBytesMax = 1 << 20;
constexpr size_t kNodesMax = 10000;
constexpr int kDepthMax = 32;

std::string Place(const std::string& name, const YAML::Mark& mark) {
  return absl::StrCat(name, ":", mark.line + 1, ":", mark.column + 1);
}

class Converter {
 public:
  explicit Converter(const std::string& name) : name_(name) {}

  absl::StatusOr<Tree> Convert(const YAML::Node& node, int depth) {
    Tree tree;
    tree.place = Place(name_, node.Mark());
    if (++nodes_ > kNodesMax || depth > kDepthMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(tree.place, ": the document is too large or too deep"));
    }
    const std::string tag = node.Tag();
    tree.quoted = tag == "!";
    if (!tag.empty() && tag != "?" && tag != "!") {
      return absl::InvalidArgumentError(absl::StrCat(tree.place, ": tags are not allowed: ", tag));
    }
    if (node.IsMap()) {
      RETURN_IF_ERROR(ConvertMap(node, depth, tree));
    } else if (node.IsSequence()) {
      tree.kind = Tree::Kind::kList;
      for (const YAML::Node& item : node) {
        ASSIGN_OR_RETURN(Tree child, Convert(item, depth + 1));
        tree.entries.emplace_back("", std::move(child));
      }
    } else if (node.IsScalar()) {
      tree.kind = Tree::Kind::kScalar;
      tree.scalar = node.Scalar();
    }
    return tree;
  }

 private:
  absl::Status ConvertMap(const YAML::Node& node, int depth, Tree& tree) {
    tree.kind = Tree::Kind::kMap;
    for (const auto& entry : node) {
      const std::string place = Place(name_, entry.first.Mark());
      if (!entry.first.IsScalar()) {
        return absl::InvalidArgumentError(absl::StrCat(place, ": a key must be a plain word"));
      }
      const std::string key = entry.first.Scalar();
      if (const Tree* first = tree.Find(key)) {
        return absl::InvalidArgumentError(
            absl::StrCat(place, ": duplicate key '", key, "', first given at ", first->place));
      }
      ASSIGN_OR_RETURN(Tree child, Convert(entry.second, depth + 1));
      child.place = place;
      tree.entries.emplace_back(key, std::move(child));
    }
    return absl::OkStatus();
  }

  const std::string& name_;
  size_t nodes_ = 0;
};

// Ignores everything: a document is parsed only to get past it.
class Skip final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// YAML::LoadAll would do, but never ends on input such as "," where the parser does not move.
bool HasTwoDocuments(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Skip skip;
  return parser.HandleNextDocument(skip) && parser.HandleNextDocument(skip);
}

}  // namespace

const Tree* Tree::Find(const std::string& key) const {
  for (const auto& [name, child] : entries) {
    if (kind == Kind::kMap && name == key) return &child;
  }
  return nullptr;
}

Tree* Tree::Find(const std::string& key) {
  return const_cast<Tree*>(static_cast<const Tree*>(this)->Find(key));
}

absl::StatusOr<Tree> ParseYaml(const std::string& text, const std::string& name) {
  if (text.size() > kBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": larger than 1 MiB"));
  }
  try {
    if (HasTwoDocuments(text)) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": more than one YAML document"));
    }
    return Converter(name).Convert(YAML::Load(text), 0);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(Place(name, error.mark), ": ", error.msg));
  }
}

absl::Status SetPath(Tree& root, const std::string& path, const std::string& value,
                     const std::string& place) {
  Tree* at = &root;
  for (const absl::string_view step : absl::StrSplit(path, '.')) {
    if (at->kind == Tree::Kind::kNull) at->kind = Tree::Kind::kMap;
    if (at->kind == Tree::Kind::kList) {
      size_t index = 0;
      if (!absl::SimpleAtoi(step, &index) || index >= at->entries.size()) {
        return absl::InvalidArgumentError(absl::StrCat(place, ": ", path, ": '", step,
                                                       "' is not one of the list's ",
                                                       at->entries.size(), " items"));
      }
      at = &at->entries[index].second;
      continue;
    }
    if (at->kind != Tree::Kind::kMap) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, ": ", path, ": no keys below '", at->scalar, "'"));
    }
    Tree* child = at->Find(std::string(step));
    if (child == nullptr) {
      at->entries.emplace_back(std::string(step), Tree{.place = place});
      child = &at->entries.back().second;
    }
    at = child;
  }
  if (!value.empty() && value[0] == '[') {
    ASSIGN_OR_RETURN(*at, ParseYaml(value, place));
  } else {
    *at = Tree{.kind = Tree::Kind::kScalar, .scalar = value, .quoted = true};
  }
  at->place = place;
  return absl::OkStatus();
}

}  // namespace baton::config
