// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "config/config.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/nearest.h"
#include "base/status_macros.h"
#include "config/fields.h"
#include "config/tree.h"

namespace baton::config {
namespace {

constexpr size_t kWorkersMax = 1024;  // in one list

absl::Status Error(const std::string& place, const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(place, ": ", path, ": ", why));
}

const char* KindName(Tree::Kind kind) {
  switch (kind) {
    case Tree::Kind::kNull:
      return "nothing";
    case Tree::Kind::kScalar:
      return "a single value";
    case Tree::Kind::kMap:
      return "a map";
    case Tree::Kind::kList:
      return "a list";
  }
  return "?";
}

// Ports follow contract: prefill i 8101 + 10 i, decode i 8201 + 10 i, then admin, transfer.
Worker DefaultWorker(const std::string& role, size_t index, uint16_t base) {
  const auto port = static_cast<uint16_t>(base + 10 * index);
  Worker worker;
  worker.name = absl::StrCat(role, "-", index);
  worker.listen = {"127.0.0.1", port};
  worker.admin = {"127.0.0.1", static_cast<uint16_t>(port + 1)};
  worker.transfer = {"127.0.0.1", static_cast<uint16_t>(port + 2)};
  return worker;
}

absl::Status SizeWorkers(const Tree& root, const std::string& role, uint16_t base,
                         std::vector<Worker>& workers) {
  workers = {DefaultWorker(role, 0, base)};
  const Tree* section = root.Find("workers");
  const Tree* list = section == nullptr ? nullptr : section->Find(role);
  if (list == nullptr) return absl::OkStatus();
  if (list->kind != Tree::Kind::kList) {
    return Error(list->place, "workers." + role,
                 absl::StrCat("must be a list of workers, not ", KindName(list->kind)));
  }
  if (list->entries.size() > kWorkersMax) {
    return Error(list->place, "workers." + role, "more than 1024 workers");
  }
  workers.clear();
  for (size_t i = 0; i < list->entries.size(); ++i) {
    workers.push_back(DefaultWorker(role, i, base));
  }
  return absl::OkStatus();
}

// Reads a tree into the fields; knows which paths exist.
class Filler {
 public:
  explicit Filler(Config& config) : config_(config), fields_(Fields(config)) {}

  absl::Status Fill(const Tree& root) { return Walk(root, ""); }

 private:
  const Field* FindField(const std::string& path) const {
    for (const Field& field : fields_) {
      if (field.path == path) return &field;
    }
    return nullptr;
  }

  // Keys that may stand below `path`.
  std::vector<std::string> Known(const std::string& path) const {
    std::set<std::string> keys;
    if (path.empty()) keys = {"version", "workers"};
    if (path == "workers") keys = {"prefill", "decode"};
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const Field& field : fields_) {
      if (!absl::StartsWith(field.path, prefix)) continue;
      const std::string rest = field.path.substr(prefix.size());
      keys.insert(rest.substr(0, rest.find('.')));
    }
    return {keys.begin(), keys.end()};
  }

  absl::Status Unknown(const Tree& tree, const std::string& parent, const std::string& key) {
    const std::vector<std::string> known = Known(parent);
    const std::string nearest = Nearest(key, known);
    const std::string where = parent.empty() ? "at the top" : "under " + parent;
    return absl::InvalidArgumentError(
        absl::StrCat(tree.place, ": unknown key '", key, "' ", where,
                     nearest.empty() ? absl::StrCat("; known: ", absl::StrJoin(known, ", "))
                                     : absl::StrCat("; did you mean '", nearest, "'?")));
  }

  absl::Status Walk(const Tree& tree, const std::string& path) {
    if (const Field* field = FindField(path)) return Set(tree, *field);
    if (tree.kind != Tree::Kind::kMap && tree.kind != Tree::Kind::kList) {
      return Error(tree.place, path.empty() ? "document" : path,
                   absl::StrCat("must be a map, not ", KindName(tree.kind)));
    }
    const bool list = tree.kind == Tree::Kind::kList;
    if (list && path != "workers.prefill" && path != "workers.decode") {
      return Error(tree.place, path.empty() ? "document" : path, "must be a map, not a list");
    }
    for (size_t i = 0; i < tree.entries.size(); ++i) {
      const auto& [name, child] = tree.entries[i];
      const std::string key = list ? absl::StrCat(i) : name;
      if (path.empty() && key == "version") {
        RETURN_IF_ERROR(Version(child));
        continue;
      }
      const std::vector<std::string> known = Known(path);
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        return Unknown(child, path, key);
      }
      RETURN_IF_ERROR(Walk(child, path.empty() ? key : path + "." + key));
    }
    return absl::OkStatus();
  }

  absl::Status Version(const Tree& tree) {
    if (tree.kind == Tree::Kind::kScalar && tree.scalar == "1") return absl::OkStatus();
    return Error(tree.place, "version", "only version 1 is known");
  }

  absl::Status Set(const Tree& tree, const Field& field) {
    std::string text;
    if (field.list) {
      if (tree.kind != Tree::Kind::kList) {
        return Error(tree.place, field.path,
                     absl::StrCat("must be a list such as [lo], not ", KindName(tree.kind)));
      }
      for (const auto& [key, item] : tree.entries) {
        if (item.kind != Tree::Kind::kScalar || item.scalar.find(',') != std::string::npos) {
          return Error(item.place, field.path, "must be a list of plain words");
        }
        absl::StrAppend(&text, text.empty() ? "" : ",", item.scalar);
      }
    } else if (tree.kind == Tree::Kind::kNull) {
      return Error(tree.place, field.path, "has no value; leave the key out for its default");
    } else if (tree.kind != Tree::Kind::kScalar) {
      return Error(tree.place, field.path,
                   absl::StrCat("must be a single value, not ", KindName(tree.kind)));
    } else {
      text = tree.scalar;
    }
    if (absl::Status status = field.set(text); !status.ok()) {
      return Error(tree.place, field.path, status.message());
    }
    config_.origins[field.path] = tree.place;
    return absl::OkStatus();
  }

  Config& config_;
  const std::vector<Field> fields_;
};

std::string OriginOf(const Config& config, const std::string& path) {
  const auto found = config.origins.find(path);
  return found == config.origins.end() ? "default" : found->second;
}

bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

// Every address is used once, every name once.
absl::Status CheckUnique(const Config& config) {
  std::map<std::string, std::string> used;
  auto use = [&](const std::string& value, const std::string& path) -> absl::Status {
    const auto [first, inserted] = used.emplace(value, path);
    if (inserted) return absl::OkStatus();
    return Error(OriginOf(config, path), path,
                 absl::StrCat("'", value, "' is already that of ", first->second));
  };
  auto address = [&](const Address& at, const std::string& path) -> absl::Status {
    return at.port == 0 ? absl::OkStatus() : use(at.text(), path);
  };
  RETURN_IF_ERROR(address(config.frontend.http, "frontend.http"));
  RETURN_IF_ERROR(address(config.frontend.grpc, "frontend.grpc"));
  RETURN_IF_ERROR(address(config.frontend.admin, "frontend.admin"));
  for (const auto& [role, workers] : {std::pair("prefill", &config.workers.prefill),
                                      std::pair("decode", &config.workers.decode)}) {
    for (size_t i = 0; i < workers->size(); ++i) {
      const Worker& worker = (*workers)[i];
      const std::string path = absl::StrCat("workers.", role, ".", i, ".");
      RETURN_IF_ERROR(use(worker.name, path + "name"));
      RETURN_IF_ERROR(address(worker.listen, path + "listen"));
      RETURN_IF_ERROR(address(worker.admin, path + "admin"));
      RETURN_IF_ERROR(address(worker.transfer, path + "transfer"));
    }
  }
  return absl::OkStatus();
}

// Where one worker is remote, nobody may be known to others by a loopback or unspecified
// address: a peer would connect to itself.
absl::Status CheckAdvertised(const Config& config) {
  struct Known {
    std::string path;
    Address address;
  };
  std::vector<Known> all;
  for (const auto& [role, workers] : {std::pair("prefill", &config.workers.prefill),
                                      std::pair("decode", &config.workers.decode)}) {
    for (size_t i = 0; i < workers->size(); ++i) {
      const Worker& worker = (*workers)[i];
      const std::string path = absl::StrCat("workers.", role, ".", i, ".");
      all.push_back({path + "listen", worker.advertise_listen.value_or(worker.listen)});
      all.push_back({path + "transfer", worker.advertise_transfer.value_or(worker.transfer)});
    }
  }
  const bool remote = std::any_of(all.begin(), all.end(), [](const Known& known) {
    return !IsLoopback(known.address.host) && known.address.host != "0.0.0.0" &&
           known.address.host != "::";
  });
  for (const Known& known : all) {
    const bool unspecified = known.address.host == "0.0.0.0" || known.address.host == "::";
    if (unspecified || (remote && IsLoopback(known.address.host))) {
      const size_t dot = known.path.rfind('.') + 1;
      return Error(OriginOf(config, known.path), known.path,
                   absl::StrCat("others cannot reach '", known.address.text(),
                                "'; give the address that they use as ", known.path.substr(0, dot),
                                "advertise_", known.path.substr(dot)));
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const Config& config) {
  if (config.workers.decode.empty()) {
    return Error(OriginOf(config, "workers.decode"), "workers.decode",
                 "at least one decode worker is needed");
  }
  RETURN_IF_ERROR(CheckUnique(config));
  RETURN_IF_ERROR(CheckAdvertised(config));
  if (config.kv_transfer.require_rdma && config.kv_transfer.transport != TransportChoice::kAuto) {
    return Error(OriginOf(config, "kv_transfer.require_rdma"), "kv_transfer.require_rdma",
                 "contradicts kv_transfer.transport, which forces another transport");
  }
  return absl::OkStatus();
}

absl::Status ApplyOverrides(const Overrides& overrides, Config& config, Tree& root) {
  for (const Field& field : Fields(config)) {
    const std::string name = absl::StrCat(
        "BATON_", absl::AsciiStrToUpper(absl::StrReplaceAll(field.path, {{".", "_"}})));
    const auto found = overrides.environment.find(name);
    if (found == overrides.environment.end()) continue;
    RETURN_IF_ERROR(SetPath(root, field.path, found->second, "environment " + name));
  }
  for (const std::string& set : overrides.set) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--set ", set, ": write --set key.path=value"));
    }
    RETURN_IF_ERROR(
        SetPath(root, set.substr(0, equals), set.substr(equals + 1), "flag --set " + set));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Config> Parse(const std::string& text, const std::string& name,
                             const Overrides& overrides) {
  ASSIGN_OR_RETURN(Tree root, ParseYaml(text, name));
  if (root.kind != Tree::Kind::kMap) {
    return absl::InvalidArgumentError(
        absl::StrCat(root.place, ": the document must be a map that starts with version: 1"));
  }
  if (root.Find("version") == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(root.place, ": the key 'version' is missing"));
  }
  Config config;
  RETURN_IF_ERROR(SizeWorkers(root, "prefill", 8101, config.workers.prefill));
  RETURN_IF_ERROR(SizeWorkers(root, "decode", 8201, config.workers.decode));
  RETURN_IF_ERROR(ApplyOverrides(overrides, config, root));
  RETURN_IF_ERROR(Filler(config).Fill(root));
  RETURN_IF_ERROR(Check(config));
  return config;
}

absl::StatusOr<Config> Load(const std::string& path, const Overrides& overrides) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot open the configuration"));
  std::ostringstream text;
  text << file.rdbuf();
  return Parse(text.str(), path, overrides);
}

std::vector<std::string> Differences(const Config& a, const Config& b) {
  Config copies[] = {a, b};
  std::map<std::string, std::string> values;
  for (const Field& field : Fields(copies[0])) values[field.path] = field.get();
  std::vector<std::string> paths;
  for (const Field& field : Fields(copies[1])) {
    const auto found = values.find(field.path);
    if (found == values.end() || found->second != field.get()) paths.push_back(field.path);
    if (found != values.end()) values.erase(found);
  }
  for (const auto& [path, value] : values) paths.push_back(path);
  return paths;
}

std::string Print(const Config& config) {
  Config copy = config;
  std::string out = "version: 1\n";
  std::vector<std::string> open;  // the sections above the current line
  for (const Field& field : Fields(copy)) {
    std::string value = field.get();
    if (value.empty()) continue;
    std::vector<std::string> steps = absl::StrSplit(field.path, '.');
    const std::string leaf = steps.back();
    steps.pop_back();
    size_t common = 0;
    while (common < steps.size() && common < open.size() && steps[common] == open[common]) {
      ++common;
    }
    std::string dash;
    for (size_t depth = common; depth < steps.size(); ++depth) {
      const bool item = absl::ascii_isdigit(steps[depth][0]);
      if (item) {
        dash = "- ";
      } else {
        absl::StrAppend(&out, std::string(2 * depth, ' '), steps[depth], ":\n");
        if (steps[depth] == "workers" && config.workers.prefill.empty()) {
          absl::StrAppend(&out, "  prefill: []\n");
        }
      }
    }
    open = steps;
    std::string indent(2 * steps.size(), ' ');
    if (!dash.empty()) indent.replace(indent.size() - 2, 2, dash);
    if (field.list) value = absl::StrCat("[", absl::StrReplaceAll(value, {{",", ", "}}), "]");
    absl::StrAppend(&out, indent, leaf, ": ", value, "  # ", OriginOf(config, field.path), "\n");
  }
  return out;
}

}  // namespace baton::config
