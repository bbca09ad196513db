// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Golden rows and the model they were made from, for tests.  The model is not in the tree;
// a test that finds none says so and passes.
#pragma once

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/gguf.h"
#include "engine/text/text_model.h"

namespace baton::text {

inline std::vector<nlohmann::json> ReadRows(const std::string& path) {
  std::ifstream file(path);
  REQUIRE(file.is_open());
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

// Null, with a message, if the default model is not there.
inline const TextModel* DefaultModel() {
  static const std::optional<TextModel> model = []() -> std::optional<TextModel> {
    auto file = engine::Gguf::Open(BATON_SOURCE_DIR "/models/smollm2-135m-instruct-q4_1.gguf");
    if (!file.ok()) {
      std::fprintf(stderr, "SKIPPED: %s\n", std::string(file.status().message()).c_str());
      return std::nullopt;
    }
    auto loaded = TextModel::Load(*file);
    INFO(loaded.status());
    REQUIRE(loaded.ok());
    return *std::move(loaded);
  }();
  return model.has_value() ? &*model : nullptr;
}

inline std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

}  // namespace baton::text
